#include "schedule/mig/deployment_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

namespace gpulet::schedule::mig {
namespace {

std::uint32_t add_content(TransitionGoal& goal, const ServingInstance& serving) {
  goal.contents.push_back(
      {goal.geometry(serving.device).name(), serving.instance.slices, serving.parts});
  return static_cast<std::uint32_t>(goal.contents.size() - 1);
}

// Instances of one size have the same capacity for a service; their rates differ only by the
// planned load. So the highest rate of each size is the best estimate of the capacity.
void choose_replica_contents(TransitionGoal& goal) {
  using Key = std::tuple<std::string_view, std::uint32_t, std::vector<std::uint32_t>>;
  std::map<Key, std::uint32_t> best;
  for (std::uint32_t index = 0; index < goal.contents.size(); ++index) {
    const Content& content = goal.contents[index];
    std::vector<std::uint32_t> services;
    double rate = 0;
    for (const ServiceRate& part : content.parts) {
      services.push_back(part.service);
      rate += part.rate;
    }
    const auto [at, is_new] = best.try_emplace({content.type, content.slices, services}, index);
    double best_rate = 0;
    for (const ServiceRate& part : goal.contents[at->second].parts) best_rate += part.rate;
    if (rate > best_rate) at->second = index;
  }
  for (const auto& [key, index] : best) goal.replica_contents.push_back(index);
}

std::string where(const TransitionTask& task, const ServingInstance& serving) {
  return fmt::format(
      "{} on device {}{}", to_string(serving.instance), serving.device,
      serving.device < task.devices.size() ? " of " + task.devices[serving.device].node : "");
}

template <typename... Values>
Status invalid_task(fmt::format_string<const Values&...> format, const Values&... values) {
  return {StatusCode::invalid, fmt::format(format, values...)};
}

Status check_parts(const TransitionTask& task, const ServingInstance& serving) {
  const std::string name = where(task, serving);
  if (serving.parts.empty())
    return invalid_task("{} serves nothing; remove it from the list", name);
  for (std::size_t at = 0; at < serving.parts.size(); ++at) {
    const ServiceRate& part = serving.parts[at];
    if (part.service >= task.services.size()) {
      return invalid_task("{} has service {}, but the task has only {} services", name,
                          part.service, task.services.size());
    }
    if (!(part.rate >= 0 && part.rate < 1e18)) {
      return invalid_task("{} gives {} {:f} requests/s; a rate must be finite and not negative",
                          name, task.services[part.service], part.rate);
    }
    if (at > 0 && serving.parts[at - 1].service >= part.service) {
      return invalid_task("{} has unsorted or repeated services; sort its parts by service", name);
    }
  }
  return {};
}

Status check_serving(const TransitionTask& task, const std::vector<ServingInstance>& all) {
  std::vector<std::vector<partition::MigInstance>> layouts(task.devices.size());
  for (const ServingInstance& serving : all) {
    if (serving.device >= task.devices.size()) {
      return invalid_task("{}: the task has only {} devices", where(task, serving),
                          task.devices.size());
    }
    std::vector<partition::MigInstance>& layout = layouts[serving.device];
    layout.push_back(serving.instance);
    if (!task.devices[serving.device].geometry.legal(layout)) {
      return invalid_task("{} does not exist or overlaps another instance", where(task, serving));
    }
    if (Status status = check_parts(task, serving); !status.ok()) return status;
  }
  return {};
}

}  // namespace

double rate_of(const std::vector<ServiceRate>& parts, std::uint32_t service) {
  for (const ServiceRate& part : parts) {
    if (part.service == service) return part.rate;
  }
  return 0;
}

bool same_services(const std::vector<ServiceRate>& one, const std::vector<ServiceRate>& other) {
  return std::equal(
      one.begin(), one.end(), other.begin(), other.end(),
      [](const ServiceRate& a, const ServiceRate& b) { return a.service == b.service; });
}

std::vector<double> rates_of(const std::vector<ServingInstance>& all, std::size_t services) {
  std::vector<double> rates(services, 0);
  for (const ServingInstance& serving : all) {
    for (const ServiceRate& part : serving.parts) rates[part.service] += part.rate;
  }
  return rates;
}

std::size_t devices_of(const std::vector<ServingInstance>& all) {
  std::set<std::uint32_t> devices;
  for (const ServingInstance& serving : all) devices.insert(serving.device);
  return devices.size();
}

TransitionGoal goal_of(const TransitionTask& task) {
  TransitionGoal goal;
  goal.task = &task;
  goal.planned.assign(task.devices.size(), false);
  const std::vector<double> old_need = rates_of(task.from, task.services.size());
  const std::vector<double> new_need = rates_of(task.to, task.services.size());
  for (std::size_t service = 0; service < task.services.size(); ++service)
    goal.min_rate.push_back(std::min(old_need[service], new_need[service]));

  std::map<InstanceSlot, const ServingInstance*> old;
  for (const ServingInstance& serving : task.from) old[slot_of(serving)] = &serving;
  std::set<InstanceSlot> stays;
  for (const ServingInstance& serving : task.to) {
    goal.planned[serving.device] = true;
    const auto there = old.find(slot_of(serving));
    if (there == old.end() || !same_services(there->second->parts, serving.parts)) {
      goal.to.push_back({slot_of(serving), add_content(goal, serving), true, false});
      continue;
    }
    ServingInstance both = serving;
    for (std::size_t at = 0; at < both.parts.size(); ++at)
      both.parts[at].rate = std::max(both.parts[at].rate, there->second->parts[at].rate);
    goal.from.push_back({slot_of(both), add_content(goal, both), true, false});
    stays.insert(slot_of(both));
  }
  for (const ServingInstance& serving : task.from) {
    goal.planned[serving.device] = true;
    if (stays.contains(slot_of(serving))) continue;
    goal.from.push_back({slot_of(serving), add_content(goal, serving), false, false});
  }
  const auto by_slot = [](const Placement& a, const Placement& b) { return a.slot < b.slot; };
  std::sort(goal.from.begin(), goal.from.end(), by_slot);
  std::sort(goal.to.begin(), goal.to.end(), by_slot);
  choose_replica_contents(goal);
  return goal;
}

Status check(const TransitionTask& task) {
  if (Status status = check_serving(task, task.from); !status.ok()) return status.within("from");
  if (Status status = check_serving(task, task.to); !status.ok()) return status.within("to");
  return {};
}

DeploymentState::DeploymentState(const TransitionGoal& goal)
    : goal_(&goal),
      placements_(goal.task->devices.size()),
      taken_(goal.task->devices.size(), 0),
      missing_(goal.to),
      rates_(goal.task->services.size(), 0) {
  for (const Placement& placement : goal.from) put(placement);
}

void DeploymentState::put(const Placement& placement) {
  placements_[placement.slot.device].push_back(placement);
  taken_[placement.slot.device] |= goal_->memory_of(placement.slot);
  for (const ServiceRate& part : goal_->parts_of(placement)) rates_[part.service] += part.rate;
}

std::vector<Placement> DeploymentState::remaining() const {
  std::vector<Placement> remaining;
  for (const std::vector<Placement>& device : placements_) {
    for (const Placement& placement : device) {
      if (!is_removed(placement.slot)) remaining.push_back(placement);
    }
  }
  return remaining;
}

bool DeploymentState::finished() const {
  const std::vector<Placement> there = remaining();
  return missing_.empty() && !changed() &&
         std::all_of(there.begin(), there.end(), [](const Placement& one) { return one.final; });
}

bool DeploymentState::fits(const InstanceSlot& slot) const {
  if ((taken_[slot.device] & goal_->memory_of(slot)) != 0) return false;
  const partition::MigGeometry& geometry = goal_->geometry(slot.device);
  if (geometry.allows_3g_beside_4g()) return true;
  return std::all_of(placements_[slot.device].begin(), placements_[slot.device].end(),
                     [&](const Placement& there) {
                       return geometry.compatible(there.slot.instance, slot.instance);
                     });
}

std::vector<Placement> DeploymentState::blockers(const InstanceSlot& slot) const {
  std::vector<Placement> found;
  const partition::MigGeometry& geometry = goal_->geometry(slot.device);
  for (const Placement& there : placements_[slot.device]) {
    if (geometry.compatible(there.slot.instance, slot.instance) || is_removed(there.slot)) continue;
    found.push_back(there);
  }
  return found;
}

bool DeploymentState::overlaps_missing(const InstanceSlot& slot) const {
  const auto from = std::lower_bound(
      missing_.begin(), missing_.end(), InstanceSlot{slot.device, {}},
      [](const Placement& placement, const InstanceSlot& value) { return placement.slot < value; });
  for (auto at = from; at != missing_.end() && at->slot.device == slot.device; ++at) {
    if ((goal_->memory_of(at->slot) & goal_->memory_of(slot)) != 0) return true;
  }
  return false;
}

std::uint32_t DeploymentState::capacity_lost(const InstanceSlot& slot) const {
  std::uint32_t lost = 0;
  const std::uint32_t own = goal_->memory_of(slot);
  for (const partition::MigProfile& profile : goal_->geometry(slot.device).profiles()) {
    for (const std::uint32_t start : profile.starts()) {
      const std::uint32_t memory = goal_->memory_of({slot.device, {profile.slices, start}});
      if ((memory & taken_[slot.device]) == 0 && (memory & own) != 0) lost += profile.memory_slices;
    }
  }
  return lost;
}

std::size_t DeploymentState::extra_devices() const {
  std::size_t count = 0;
  for (std::size_t device = 0; device < placements_.size(); ++device) {
    if (!goal_->planned[device] && !placements_[device].empty()) ++count;
  }
  return count;
}

double DeploymentState::shortfall(std::uint32_t service) const {
  const double least = goal_->min_rate[service];
  return rates_[service] >= least * (1 - kRateSlack) ? 0 : least - rates_[service];
}

bool DeploymentState::can_remove(std::span<const Placement> placements) const {
  std::vector<double> rates = rates_;
  for (const Placement& placement : placements) {
    for (const ServiceRate& part : goal_->parts_of(placement)) rates[part.service] -= part.rate;
  }
  for (std::size_t service = 0; service < rates.size(); ++service) {
    const bool falls = rates[service] < rates_[service];
    if (falls && rates[service] < goal_->min_rate[service] * (1 - kRateSlack)) return false;
  }
  return true;
}

void DeploymentState::create(const Placement& placement) {
  put(placement);
  change_.created.push_back(placement);
  if (!placement.final) return;
  std::erase_if(missing_, [&](const Placement& one) { return one.slot == placement.slot; });
}

void DeploymentState::remove(const Placement& placement) {
  for (const ServiceRate& part : goal_->parts_of(placement)) rates_[part.service] -= part.rate;
  change_.removed.push_back(placement);
}

StageChange DeploymentState::finish_stage() {
  for (const Placement& gone : change_.removed) {
    std::erase_if(placements_[gone.slot.device],
                  [&](const Placement& one) { return one.slot == gone.slot; });
    taken_[gone.slot.device] &= ~goal_->memory_of(gone.slot);
  }
  return std::exchange(change_, {});
}

void DeploymentState::apply(const StageChange& change) {
  for (const Placement& placement : change.created) create(placement);
  for (const Placement& placement : change.removed) remove(placement);
  finish_stage();
}

bool DeploymentState::is_removed(const InstanceSlot& slot) const {
  return std::any_of(change_.removed.begin(), change_.removed.end(),
                     [&](const Placement& one) { return one.slot == slot; });
}

namespace {

// The sum over services: the part of the minimum rate that the placements serve.
double loss_of(const std::vector<Placement>& placements, const TransitionGoal& goal) {
  double loss = 0;
  for (const Placement& placement : placements) {
    for (const ServiceRate& part : goal.parts_of(placement)) {
      if (goal.min_rate[part.service] > 0) loss += part.rate / goal.min_rate[part.service];
    }
  }
  return loss;
}

void remove_blockers(DeploymentState& state) {
  for (const Placement& wanted : blocked(state)) {
    const std::vector<Placement> blocking = state.blockers(wanted.slot);
    if (!state.can_remove(blocking)) continue;
    for (const Placement& placement : blocking) state.remove(placement);
  }
}

// Once the final instances of a service reach its minimum rate, its other instances are surplus now
// and later.
void remove_surplus(DeploymentState& state) {
  const TransitionGoal& goal = state.goal();
  std::vector<double> settled(goal.min_rate.size(), 0);
  const std::vector<Placement> remaining = state.remaining();
  for (const Placement& placement : remaining) {
    if (!placement.final) continue;
    for (const ServiceRate& part : goal.parts_of(placement)) settled[part.service] += part.rate;
  }
  for (const Placement& placement : remaining) {
    const std::vector<ServiceRate>& parts = goal.parts_of(placement);
    const bool needed = std::any_of(parts.begin(), parts.end(), [&](const ServiceRate& part) {
      return settled[part.service] < goal.min_rate[part.service] * (1 - kRateSlack);
    });
    if (!placement.final && !needed) state.remove(placement);
  }
}

void remove_temporary_replicas(DeploymentState& state) {
  std::vector<Placement> replicas = state.remaining();
  std::erase_if(replicas, [](const Placement& placement) { return !placement.temporary; });
  std::stable_partition(replicas.begin(), replicas.end(), [&](const Placement& placement) {
    return !state.goal().planned[placement.slot.device];
  });
  for (const Placement& placement : replicas) {
    if (state.can_remove({&placement, 1})) state.remove(placement);
  }
}

}  // namespace

std::vector<Placement> blocked(const DeploymentState& state) {
  std::vector<std::pair<double, Placement>> found;
  for (const Placement& wanted : state.missing()) {
    const std::vector<Placement> blocking = state.blockers(wanted.slot);
    if (!blocking.empty()) found.emplace_back(loss_of(blocking, state.goal()), wanted);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Placement> order;
  for (const auto& [loss, wanted] : found) order.push_back(wanted);
  return order;
}

void create_where_free(DeploymentState& state) {
  const std::vector<Placement> missing = state.missing();
  for (const Placement& wanted : missing) {
    if (state.fits(wanted.slot)) state.create(wanted);
  }
}

void remove_unneeded(DeploymentState& state) {
  remove_blockers(state);
  remove_surplus(state);
  remove_temporary_replicas(state);
}

namespace {

// Limits of the search for moves that make room for a replica: its depth, and the number of slots
// that it tries to free.
constexpr int kMostPriorMoves = 2;
constexpr std::size_t kMostSlots = 12;

template <typename Body>
void for_each_slot(const TransitionGoal& goal, const Content& content, const Body& body) {
  for (std::uint32_t device = 0; device < goal.planned.size(); ++device) {
    const partition::MigGeometry& geometry = goal.geometry(device);
    if (geometry.name() != content.type) continue;
    for (const std::uint32_t start : geometry.find(content.slices)->starts())
      body(InstanceSlot{device, {content.slices, start}});
  }
}

bool overlaps(const TransitionGoal& goal, const InstanceSlot& slot,
              const std::vector<InstanceSlot>& others) {
  return std::any_of(others.begin(), others.end(), [&](const InstanceSlot& other) {
    return other.device == slot.device &&
           !goal.geometry(slot.device).compatible(other.instance, slot.instance);
  });
}

// The contents that a replica of the service may have: those of the replaced instances, and the
// best of each size.
std::vector<std::uint32_t> contents_for(const TransitionGoal& goal, std::uint32_t service,
                                        const std::vector<Placement>& replaced) {
  std::vector<std::uint32_t> contents;
  const auto add = [&](std::uint32_t content) {
    const bool known = std::find(contents.begin(), contents.end(), content) != contents.end();
    if (!known && rate_of(goal.contents[content].parts, service) > 0) contents.push_back(content);
  };
  for (const Placement& placement : replaced) add(placement.content);
  for (const std::uint32_t content : goal.replica_contents) add(content);
  return contents;
}

}  // namespace

// Chooses the smallest replica that makes up the shortfall, or, where none does, the one with the
// highest rate; the caller then adds more. Prefers slots that no missing instance needs, then
// devices in use, then the same node, then slots that fragment a device least.
std::optional<Placement> ReplicaPlanner::choose(const DeploymentState& state, std::uint32_t service,
                                                const std::vector<Placement>& replaced,
                                                const std::vector<InstanceSlot>& reserved) const {
  const TransitionGoal& goal = state.goal();
  const bool may_open = state.extra_devices() < most_extra_devices_;
  const double shortfall = state.shortfall(service);
  using Cost = std::tuple<double, bool, bool, std::uint32_t, bool, bool, std::uint32_t>;
  std::optional<std::pair<Cost, Placement>> best;
  for (const std::uint32_t content : contents_for(goal, service, replaced)) {
    const double rate = rate_of(goal.contents[content].parts, service);
    const bool enough = rate >= shortfall * (1 - kRateSlack);
    const bool is_copy = std::any_of(replaced.begin(), replaced.end(),
                                     [&](const Placement& one) { return one.content == content; });
    for_each_slot(goal, goal.contents[content], [&](const InstanceSlot& slot) {
      const bool opens = state.opens_extra_device(slot);
      if ((opens && !may_open) || !state.fits(slot) || overlaps(goal, slot, reserved)) return;
      const Cost cost{enough ? -shortfall : -rate,
                      state.overlaps_missing(slot),
                      opens,
                      goal.geometry(slot.device).find(slot.instance.slices)->memory_slices,
                      !is_copy,
                      !goal.same_node(slot.device, reserved.front().device),
                      state.capacity_lost(slot)};
      if (!best || cost < best->first) best.emplace(cost, Placement{slot, content, false, true});
    });
  }
  if (!best) return std::nullopt;
  return best->second;
}

// Within the current stage. Leaves the state unchanged where there is no room.
bool ReplicaPlanner::replace_blockers(DeploymentState& state, const InstanceSlot& slot,
                                      const std::vector<InstanceSlot>& reserved) const {
  const std::vector<Placement> blocking = state.blockers(slot);
  DeploymentState trial = state;
  for (const Placement& placement : blocking) {
    if (placement.final) return false;
    trial.remove(placement);
  }
  for (std::uint32_t service = 0; service < state.goal().min_rate.size(); ++service) {
    while (trial.shortfall(service) > 0) {
      const auto temporary = choose(trial, service, blocking, reserved);
      if (!temporary) return false;
      trial.create(*temporary);
    }
  }
  state = std::move(trial);
  return true;
}

// Frees the slot, after other moves where there is no room for replicas yet. `reserved` begins with
// the slot.
ReplicaPlanner::Changes ReplicaPlanner::free_slot(const DeploymentState& state,
                                                  const InstanceSlot& slot,
                                                  std::vector<InstanceSlot> reserved,
                                                  int prior_moves) {
  if (effort_left_ == 0) return std::nullopt;
  --effort_left_;
  DeploymentState trial = state;
  if (replace_blockers(trial, slot, reserved)) return std::vector{trial.finish_stage()};
  if (prior_moves == 0) return std::nullopt;

  const TransitionGoal& goal = state.goal();
  const std::vector<Placement> blocking = state.blockers(slot);
  std::map<InstanceSlot, double> slots;  // with the memory slices to free in each
  for (const Placement& replaced : blocking) {
    if (replaced.final) return std::nullopt;
    for (const ServiceRate& part : goal.parts_of(replaced)) {
      for (const std::uint32_t content : contents_for(goal, part.service, blocking)) {
        for_each_slot(goal, goal.contents[content], [&](const InstanceSlot& other) {
          if (overlaps(goal, other, reserved)) return;
          double memory = 0;
          for (const Placement& there : state.blockers(other)) {
            if (there.final) return;
            memory += goal.geometry(other.device).find(there.slot.instance.slices)->memory_slices;
          }
          if (memory > 0) slots.emplace(other, memory);
        });
      }
    }
  }
  std::vector<std::pair<double, InstanceSlot>> order;
  for (const auto& [other, memory] : slots) order.emplace_back(memory, other);
  std::sort(order.begin(), order.end());
  if (order.size() > kMostSlots) order.resize(kMostSlots);
  for (const auto& [memory, other] : order) {
    std::vector<InstanceSlot> also_free = reserved;
    also_free.insert(also_free.begin(), other);
    Changes first = free_slot(state, other, also_free, prior_moves - 1);
    if (!first) continue;
    DeploymentState after = state;
    for (const StageChange& change : *first) after.apply(change);
    const Changes rest = free_slot(after, slot, reserved, prior_moves - 1);
    if (!rest) continue;
    first->insert(first->end(), rest->begin(), rest->end());
    return first;
  }
  return std::nullopt;
}

ReplicaPlanner::Changes ReplicaPlanner::find(const DeploymentState& state) {
  const std::vector<Placement> wanted = blocked(state);
  DeploymentState stage = state;
  std::vector<InstanceSlot> freed;
  for (const Placement& one : wanted) {
    std::vector<InstanceSlot> reserved = freed;
    reserved.insert(reserved.begin(), one.slot);
    if (replace_blockers(stage, one.slot, reserved)) freed.push_back(one.slot);
  }
  if (!freed.empty()) return std::vector{stage.finish_stage()};
  for (int prior_moves = 1; prior_moves <= kMostPriorMoves; ++prior_moves) {
    for (const Placement& one : wanted) {
      if (Changes changes = free_slot(state, one.slot, {one.slot}, prior_moves)) return changes;
    }
  }
  return std::nullopt;
}

std::optional<StageChange> move_to_spares(const DeploymentState& state) {
  const TransitionGoal& goal = state.goal();
  DeploymentState stage = state;
  std::map<std::uint32_t, std::uint32_t> spare_of;
  std::vector<bool> used = goal.planned;
  for (const Placement& wanted : blocked(state)) {
    const std::uint32_t device = wanted.slot.device;
    if (!spare_of.contains(device)) {
      std::uint32_t spare = 0;
      while (spare < used.size() && (used[spare] || goal.geometry(spare) != goal.geometry(device)))
        ++spare;
      if (spare == used.size()) return std::nullopt;
      used[spare] = true;
      spare_of[device] = spare;
    }
    for (const Placement& placement : stage.blockers(wanted.slot)) {
      stage.create({{spare_of[device], placement.slot.instance}, placement.content, false, true});
      stage.remove(placement);
    }
  }
  return stage.finish_stage();
}

}  // namespace gpulet::schedule::mig
