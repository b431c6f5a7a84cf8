#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "gpulet/schedule/mig.h"
#include "schedule/mig/deployment_state.h"

namespace gpulet::schedule::mig {
namespace {

// The rates that a stage's creations add and its removals take, by service. A migration counts as a
// creation with the difference of its rates.
struct RateChange {
  std::vector<double> gained, lost;
};

// For each service the last stage whose additions must be complete before this stage's removals
// start; empty where none must be. This suffices for any order of actions: let s be the last stage
// with a completed removal. It bounds the lost rates, and the additions that s waited for are
// complete.
std::vector<std::optional<std::uint32_t>> stages_needed(const TransitionGoal& goal,
                                                        const std::vector<RateChange>& changes,
                                                        std::uint32_t stage) {
  std::vector<double> rates(goal.min_rate.size(), 0);
  for (const Placement& placement : goal.from) {
    for (const ServiceRate& part : goal.parts_of(placement)) rates[part.service] += part.rate;
  }
  std::vector<std::optional<std::uint32_t>> needed(rates.size());
  for (std::size_t service = 0; service < rates.size(); ++service) {
    const double least = goal.min_rate[service] * (1 - kRateSlack);
    double rate = rates[service];
    for (std::uint32_t done = 0; done <= stage; ++done) rate -= changes[done].lost[service];
    for (std::uint32_t done = 0; done <= stage && rate < least; ++done) {
      rate += changes[done].gained[service];
      needed[service] = done;
    }
  }
  return needed;
}

// A migration must not lower a rate, so that it depends on no other action for the rates.
bool can_migrate(const ServingInstance& from, const ServingInstance& to) {
  if (from.instance.slices != to.instance.slices || !same_services(from.parts, to.parts))
    return false;
  return std::equal(from.parts.begin(), from.parts.end(), to.parts.begin(),
                    [](const ServiceRate& a, const ServiceRate& b) { return a.rate <= b.rate; });
}

// Turns stages into actions that run in parallel where nothing orders them (MIG-serving, section 6,
// optimisations). REQUIRES: the stages keep all minimum rates.
class ActionPlanner {
 public:
  explicit ActionPlanner(const TransitionGoal& goal)
      : goal_(goal),
        task_(*goal.task),
        existing_(task_.devices.size()),
        last_repartition_(task_.devices.size()) {
    for (const ServingInstance& serving : task_.from)
      existing_[serving.device].insert(serving.instance);
  }

  std::vector<Action> plan(const std::vector<Stage>& stages) {
    std::vector<Moves> moves;
    for (const Stage& stage : stages) moves.push_back(moves_of(stage));
    const std::vector<RateChange> changes = changes_of(moves);
    for (std::uint32_t stage = 0; stage < stages.size(); ++stage) {
      repartition(stage, stages[stage]);
      create(stage, moves[stage]);
      remove(stage, moves[stage], changes);
    }
    return std::move(actions_);
  }

 private:
  struct Moves {
    std::vector<ServingInstance> created, removed;
    std::vector<std::pair<ServingInstance, ServingInstance>> migrated;  // from, to
  };

  // Pairs removals with creations: within a device first, then within a node, then across nodes.
  Moves moves_of(const Stage& stage) const {
    Moves moves{stage.created, stage.removed, {}};
    const auto pair_where =
        [&](const std::function<bool(const ServingInstance&, const ServingInstance&)>& near) {
          for (auto from = moves.removed.begin(); from != moves.removed.end();) {
            const auto to = std::find_if(moves.created.begin(), moves.created.end(),
                                         [&](const ServingInstance& one) {
                                           return can_migrate(*from, one) && near(*from, one);
                                         });
            if (to == moves.created.end()) {
              ++from;
              continue;
            }
            moves.migrated.emplace_back(*from, *to);
            moves.created.erase(to);
            from = moves.removed.erase(from);
          }
        };
    pair_where(
        [](const ServingInstance& a, const ServingInstance& b) { return a.device == b.device; });
    pair_where([&](const ServingInstance& a, const ServingInstance& b) {
      return goal_.same_node(a.device, b.device);
    });
    pair_where([](const ServingInstance&, const ServingInstance&) { return true; });
    return moves;
  }

  std::vector<RateChange> changes_of(const std::vector<Moves>& stages) const {
    std::vector<RateChange> changes;
    for (const Moves& moves : stages) {
      RateChange& change = changes.emplace_back();
      change.gained = rates_of(moves.created, task_.services.size());
      change.lost = rates_of(moves.removed, task_.services.size());
      for (const auto& [from, to] : moves.migrated) {
        for (const ServiceRate& part : to.parts)
          change.gained[part.service] += part.rate - rate_of(from.parts, part.service);
      }
    }
    return changes;
  }

  std::size_t add(Action action) {
    std::sort(action.after.begin(), action.after.end());
    action.after.erase(std::unique(action.after.begin(), action.after.end()), action.after.end());
    actions_.push_back(std::move(action));
    return actions_.size() - 1;
  }

  void wait_for(Action& action, const std::map<InstanceSlot, std::size_t>& known,
                const InstanceSlot& slot) const {
    if (const auto found = known.find(slot); found != known.end())
      action.after.push_back(found->second);
  }

  // Replaces idle instances on devices that lack an instance of the stage.
  void repartition(std::uint32_t stage, const Stage& planned) {
    std::map<std::uint32_t, Action> by_device;
    for (const ServingInstance& serving : planned.created) {
      if (existing_[serving.device].contains(serving.instance)) continue;
      Action& action = by_device[serving.device];
      if (action.made.empty()) {
        action.kind = ActionKind::repartition;
        action.stage = stage;
        action.device = serving.device;
        action.target = serving;
      }
      action.made.push_back(serving.instance);
    }
    for (auto& [device, action] : by_device) {
      for (const partition::MigInstance& there : existing_[device]) {
        const bool blocking =
            std::any_of(action.made.begin(), action.made.end(), [&, at = device](const auto& made) {
              return !goal_.geometry(at).compatible(there, made);
            });
        if (blocking) action.cut.push_back(there);
      }
      for (const partition::MigInstance& gone : action.cut) {
        existing_[device].erase(gone);
        wait_for(action, removed_by_, {device, gone});
      }
      existing_[device].insert(action.made.begin(), action.made.end());
      if (last_repartition_[device]) action.after.push_back(*last_repartition_[device]);
      last_repartition_[device] = add(action);
    }
  }

  // Waits until the instance exists, if the device's last repartition makes it, and is idle.
  void wait_for_slot(Action& action) const {
    if (last_repartition_[action.device]) {
      const Action& cut = actions_[*last_repartition_[action.device]];
      const bool made =
          std::find(cut.made.begin(), cut.made.end(), action.target.instance) != cut.made.end();
      if (made) action.after.push_back(*last_repartition_[action.device]);
    }
    wait_for(action, removed_by_, slot_of(action.target));
  }

  void create(std::uint32_t stage, const Moves& moves) {
    std::map<InstanceSlot, std::size_t> vacated;
    for (const ServingInstance& serving : moves.created) {
      Action action{ActionKind::create, stage, serving.device, serving, 0, {}, {}, {}, {}};
      wait_for_slot(action);
      created_by_[slot_of(serving)] = add_provider(add(std::move(action)));
    }
    for (const auto& [from, to] : moves.migrated) {
      Action action{ActionKind::migrate, stage, to.device, to, from.device,
                    from.instance,       {},    {},        {}};
      wait_for_slot(action);
      wait_for(action, created_by_, slot_of(from));
      const std::size_t index = add_provider(add(std::move(action)));
      created_by_[slot_of(to)] = index;
      vacated[slot_of(from)] = index;
    }
    for (const auto& [slot, index] : vacated) removed_by_[slot] = index;
  }

  std::size_t add_provider(std::size_t index) {
    for (const ServiceRate& part : actions_[index].target.parts)
      providers_[part.service].push_back(index);
    return index;
  }

  void remove(std::uint32_t stage, const Moves& moves, const std::vector<RateChange>& changes) {
    const std::vector<std::optional<std::uint32_t>> needed = stages_needed(goal_, changes, stage);
    for (const ServingInstance& serving : moves.removed) {
      Action action{ActionKind::remove, stage, serving.device, serving, 0, {}, {}, {}, {}};
      wait_for(action, created_by_, slot_of(serving));
      for (const ServiceRate& part : serving.parts) {
        if (!needed[part.service]) continue;
        for (const std::size_t index : providers_[part.service]) {
          if (actions_[index].stage > *needed[part.service]) break;
          action.after.push_back(index);
        }
      }
      removed_by_[slot_of(serving)] = add(std::move(action));
    }
  }

  const TransitionGoal& goal_;
  const TransitionTask& task_;
  std::vector<Action> actions_;
  std::vector<std::set<partition::MigInstance>> existing_;       // by device; in use or idle
  std::vector<std::optional<std::size_t>> last_repartition_;     // by device
  std::map<InstanceSlot, std::size_t> created_by_, removed_by_;  // the last action that did
  std::map<std::uint32_t, std::vector<std::size_t>>
      providers_;  // actions that add a rate to the service, by stage
};

struct StageSequence {
  std::vector<StageChange> changes;
  std::optional<Placement> blocked_at;  // an instance that cannot be created; empty: success
};

// Terminates: every stage creates an instance of `to`, which stays, or removes an instance without
// a replacement, or is followed by a stage that creates an instance of `to`.
template <typename FindReplicas>
StageSequence plan_stages(const TransitionGoal& goal, const FindReplicas& find_replicas) {
  DeploymentState state(goal);
  StageSequence sequence;
  while (!state.finished()) {
    create_where_free(state);
    remove_unneeded(state);
    if (state.changed()) {
      sequence.changes.push_back(state.finish_stage());
      continue;
    }
    const std::optional<std::vector<StageChange>> changes = find_replicas(state);
    if (!changes) {
      sequence.blocked_at = blocked(state).front();
      return sequence;
    }
    for (const StageChange& change : *changes) state.apply(change);
    sequence.changes.insert(sequence.changes.end(), changes->begin(), changes->end());
  }
  return sequence;
}

StageSequence plan_with_replicas(const TransitionGoal& goal, std::size_t most_extra_devices) {
  ReplicaPlanner planner({.most_extra_devices = most_extra_devices});
  return plan_stages(goal, [&](const DeploymentState& state) { return planner.find(state); });
}

StageSequence plan_with_spares(const TransitionGoal& goal) {
  return plan_stages(goal,
                     [](const DeploymentState& state) -> std::optional<std::vector<StageChange>> {
                       const std::optional<StageChange> change = move_to_spares(state);
                       if (!change) return std::nullopt;
                       return std::vector{*change};
                     });
}

bool has_temporary_replicas(const StageSequence& sequence) {
  return std::any_of(sequence.changes.begin(), sequence.changes.end(),
                     [](const StageChange& change) {
                       return std::any_of(change.created.begin(), change.created.end(),
                                          [](const Placement& one) { return one.temporary; });
                     });
}

ServingInstance serving_of(const Placement& placement, const TransitionGoal& goal) {
  return {placement.slot.device, placement.slot.instance, goal.parts_of(placement)};
}

bool by_slot(const ServingInstance& a, const ServingInstance& b) {
  if (a.device != b.device) return a.device < b.device;
  return a.instance.start < b.instance.start;
}

std::vector<Stage> stages_of(const StageSequence& sequence, const TransitionGoal& goal) {
  const TransitionTask& task = *goal.task;
  std::map<InstanceSlot, ServingInstance> there;
  for (const Placement& placement : goal.from) there[placement.slot] = serving_of(placement, goal);
  std::vector<Stage> stages;
  std::vector<double> rates = rates_of(task.from, task.services.size());
  for (const StageChange& change : sequence.changes) {
    Stage& stage = stages.emplace_back();
    for (const Placement& placement : change.created) {
      stage.created.push_back(serving_of(placement, goal));
      there[placement.slot] = stage.created.back();
    }
    std::vector<ServingInstance> fullest;
    for (const auto& [slot, serving] : there) fullest.push_back(serving);
    stage.devices_in_use = devices_of(fullest);
    for (const Placement& placement : change.removed) {
      stage.removed.push_back(serving_of(placement, goal));
      there.erase(placement.slot);
    }
    std::sort(stage.created.begin(), stage.created.end(), by_slot);
    std::sort(stage.removed.begin(), stage.removed.end(), by_slot);
    for (const auto& [slot, serving] : there) stage.after.push_back(serving);
    if (stages.size() == sequence.changes.size()) stage.after = task.to;
    std::sort(stage.after.begin(), stage.after.end(), by_slot);
    const std::vector<double> before =
        std::exchange(rates, rates_of(stage.after, task.services.size()));
    for (std::size_t service = 0; service < rates.size(); ++service)
      stage.least_rate.push_back(std::min(before[service], rates[service]));
  }
  return stages;
}

Transition transition_of(const StageSequence& sequence, const TransitionGoal& goal) {
  Transition transition;
  transition.stages = stages_of(sequence, goal);
  const std::size_t planned = std::max(devices_of(goal.task->from), devices_of(goal.task->to));
  for (const Stage& stage : transition.stages) {
    if (stage.devices_in_use <= planned) continue;
    transition.extra_devices = std::max(transition.extra_devices, stage.devices_in_use - planned);
  }
  transition.actions = ActionPlanner(goal).plan(transition.stages);
  return transition;
}

// Minimises the sum of stages and extra devices: another extra device must save more than one
// stage.
std::optional<Transition> best_transition(const TransitionGoal& goal) {
  const auto spare =
      static_cast<std::size_t>(std::count(goal.planned.begin(), goal.planned.end(), false));
  std::optional<Transition> best;
  std::size_t best_cost = 0;
  for (std::size_t extra = 0; extra <= spare; extra += 1 + extra / 4) {
    if (best && extra + 1 >= best_cost) break;
    const StageSequence sequence = plan_with_replicas(goal, extra);
    if (sequence.blocked_at) continue;
    Transition transition = transition_of(sequence, goal);
    const std::size_t cost = transition.stages.size() + transition.extra_devices;
    if (!best || cost < best_cost) {
      best = std::move(transition);
      best_cost = cost;
    }
    if (!has_temporary_replicas(sequence)) break;
  }
  if (best) return best;
  if (const StageSequence sequence = plan_with_replicas(goal, spare); !sequence.blocked_at)
    return transition_of(sequence, goal);
  if (const StageSequence sequence = plan_with_spares(goal); !sequence.blocked_at)
    return transition_of(sequence, goal);
  return std::nullopt;
}

// Whether a transition exists with these additional free devices of each type.
bool suffices(TransitionTask task, const std::map<std::string, std::size_t>& more) {
  std::map<std::string, std::size_t> left = more;
  const std::size_t known = task.devices.size();
  for (std::size_t device = 0; device < known; ++device) {
    std::size_t& count = left[std::string(task.devices[device].geometry.name())];
    for (; count > 0; --count) task.devices.push_back(TransitionDevice(task.devices[device]));
  }
  const TransitionGoal goal = goal_of(task);
  return !plan_with_replicas(goal, task.devices.size()).blocked_at ||
         !plan_with_spares(goal).blocked_at;
}

// The additional free devices of each type that make a transition possible. As many as `from` uses
// always suffice; lowers the number of each type in turn.
std::map<std::string, std::size_t> missing_devices(const TransitionGoal& goal) {
  const TransitionTask& task = *goal.task;
  std::map<std::string, std::vector<ServingInstance>> by_type;
  for (const ServingInstance& serving : task.from)
    by_type[std::string(task.devices[serving.device].geometry.name())].push_back(serving);
  std::map<std::string, std::size_t> more;
  for (const auto& [type, serving] : by_type) more[type] = devices_of(serving);
  for (auto& [type, most] : more) {
    std::map<std::string, std::size_t> fewer = more;
    for (std::size_t count = 0; count < most; ++count) {
      fewer[type] = count;
      if (suffices(task, fewer)) most = count;
    }
  }
  return more;
}

Status unavailable(const TransitionGoal& goal) {
  const Placement blocked_placement = *plan_with_replicas(goal, goal.planned.size()).blocked_at;
  std::string more;
  for (const auto& [type, count] : missing_devices(goal)) {
    if (count == 0) continue;
    more += fmt::format("{}{} more free {} ({})", more.empty() ? "" : " and ", count,
                        count == 1 ? "device" : "devices", type);
  }
  const auto& [device, instance] = blocked_placement.slot;
  return {StatusCode::unavailable,
          fmt::format("cannot create {} on device {} of {}: the instances there are needed and fit "
                      "nowhere else; {} would suffice",
                      to_string(instance), device, goal.task->devices[device].node, more)};
}

}  // namespace

Result<Transition> plan_transition(const TransitionTask& task) {
  if (Status status = check(task); !status.ok()) return status;
  const TransitionGoal goal = goal_of(task);
  std::optional<Transition> best = best_transition(goal);
  if (!best) return unavailable(goal);
  return *std::move(best);
}

std::string_view to_string(ActionKind kind) {
  constexpr std::array<std::string_view, 4> kNames{"create", "remove", "migrate", "repartition"};
  return kNames.at(static_cast<std::size_t>(kind));
}

ActionCounts count_actions(const Transition& transition, const TransitionTask& task) {
  ActionCounts counts;
  for (const Action& action : transition.actions) {
    const bool within = task.devices[action.device].node == task.devices[action.from_device].node;
    const std::array by_kind{&counts.created, &counts.removed,
                             within ? &counts.migrated_within_nodes : &counts.migrated_across_nodes,
                             &counts.repartitions};
    ++*by_kind.at(static_cast<std::size_t>(action.kind));
  }
  return counts;
}

}  // namespace gpulet::schedule::mig
