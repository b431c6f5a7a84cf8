#include "mig/transition_actions.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "mig/transition_rates.h"

namespace gpulet::mig {
namespace {

Site place_of(const Holding& holding) { return {holding.device, holding.instance}; }

// What is migrated gives at least what it gave, so that rates need no other action to hold.
bool can_migrate(const Holding& from, const Holding& to) {
  if (from.instance.slices != to.instance.slices || !same_services(from.parts, to.parts))
    return false;
  return std::equal(from.parts.begin(), from.parts.end(), to.parts.begin(),
                    [](const Part& a, const Part& b) { return a.rate <= b.rate; });
}

class Actions {
 public:
  explicit Actions(const Goal& goal)
      : goal_(goal),
        task_(*goal.task),
        cut_into_(task_.devices.size()),
        last_cut_(task_.devices.size()) {
    for (const Holding& holding : task_.from) cut_into_[holding.device].insert(holding.instance);
  }

  std::vector<Action> of(const std::vector<Stage>& stages) {
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
    std::vector<Holding> created, removed;
    std::vector<std::pair<Holding, Holding>> migrated;  // from, to
  };

  // Those within a device before those within a node before all others.
  Moves moves_of(const Stage& stage) const {
    Moves moves{stage.created, stage.removed, {}};
    const auto pair_where = [&](const std::function<bool(const Holding&, const Holding&)>& near) {
      for (auto from = moves.removed.begin(); from != moves.removed.end();) {
        const auto to = std::find_if(
            moves.created.begin(), moves.created.end(),
            [&](const Holding& one) { return can_migrate(*from, one) && near(*from, one); });
        if (to == moves.created.end()) {
          ++from;
          continue;
        }
        moves.migrated.emplace_back(*from, *to);
        moves.created.erase(to);
        from = moves.removed.erase(from);
      }
    };
    pair_where([](const Holding& a, const Holding& b) { return a.device == b.device; });
    pair_where(
        [&](const Holding& a, const Holding& b) { return goal_.same_node(a.device, b.device); });
    pair_where([](const Holding&, const Holding&) { return true; });
    return moves;
  }

  std::vector<RateChange> changes_of(const std::vector<Moves>& stages) const {
    std::vector<RateChange> changes;
    for (const Moves& moves : stages) {
      RateChange& change = changes.emplace_back();
      change.gained = rates_of(moves.created, task_.services.size());
      change.lost = rates_of(moves.removed, task_.services.size());
      for (const auto& [from, to] : moves.migrated) {
        for (const Part& part : to.parts)
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

  void wait_for(Action& action, const std::map<Site, std::size_t>& known, const Site& site) const {
    if (const auto found = known.find(site); found != known.end())
      action.after.push_back(found->second);
  }

  // Devices that lack an instance that the stage wants: idle ones make room for it.
  void repartition(std::uint32_t stage, const Stage& planned) {
    std::map<std::uint32_t, Action> by_device;
    for (const Holding& holding : planned.created) {
      if (cut_into_[holding.device].contains(holding.instance)) continue;
      Action& action = by_device[holding.device];
      if (action.made.empty()) {
        action.kind = ActionKind::repartition;
        action.stage = stage;
        action.device = holding.device;
        action.holding = holding;
      }
      action.made.push_back(holding.instance);
    }
    for (auto& [device, action] : by_device) {
      for (const partition::MigInstance& there : cut_into_[device]) {
        const bool in_the_way =
            std::any_of(action.made.begin(), action.made.end(), [&, at = device](const auto& made) {
              return !goal_.geometry(at).compatible(there, made);
            });
        if (in_the_way) action.cut.push_back(there);
      }
      for (const partition::MigInstance& gone : action.cut) {
        cut_into_[device].erase(gone);
        wait_for(action, removed_by_, {device, gone});
      }
      cut_into_[device].insert(action.made.begin(), action.made.end());
      if (last_cut_[device]) action.after.push_back(*last_cut_[device]);
      last_cut_[device] = add(action);
    }
  }

  // When the place is there: the last repartition of the device made it or left it alone, and what
  // stood there is gone.
  void place(Action& action) const {
    if (last_cut_[action.device]) {
      const Action& cut = actions_[*last_cut_[action.device]];
      const bool made =
          std::find(cut.made.begin(), cut.made.end(), action.holding.instance) != cut.made.end();
      if (made) action.after.push_back(*last_cut_[action.device]);
    }
    wait_for(action, removed_by_, place_of(action.holding));
  }

  void create(std::uint32_t stage, const Moves& moves) {
    std::map<Site, std::size_t> vacated;
    for (const Holding& holding : moves.created) {
      Action action{ActionKind::create, stage, holding.device, holding, 0, {}, {}, {}, {}};
      place(action);
      created_by_[place_of(holding)] = gives(add(std::move(action)));
    }
    for (const auto& [from, to] : moves.migrated) {
      Action action{ActionKind::migrate, stage, to.device, to, from.device,
                    from.instance,       {},    {},        {}};
      place(action);
      wait_for(action, created_by_, place_of(from));
      const std::size_t index = gives(add(std::move(action)));
      created_by_[place_of(to)] = index;
      vacated[place_of(from)] = index;
    }
    for (const auto& [site, index] : vacated) removed_by_[site] = index;
  }

  std::size_t gives(std::size_t index) {
    for (const Part& part : actions_[index].holding.parts) giving_[part.service].push_back(index);
    return index;
  }

  void remove(std::uint32_t stage, const Moves& moves, const std::vector<RateChange>& changes) {
    const std::vector<std::optional<std::uint32_t>> needed = stages_needed(goal_, changes, stage);
    for (const Holding& holding : moves.removed) {
      Action action{ActionKind::remove, stage, holding.device, holding, 0, {}, {}, {}, {}};
      wait_for(action, created_by_, place_of(holding));
      for (const Part& part : holding.parts) {
        if (!needed[part.service]) continue;
        for (const std::size_t index : giving_[part.service]) {
          if (actions_[index].stage > *needed[part.service]) break;
          action.after.push_back(index);
        }
      }
      removed_by_[place_of(holding)] = add(std::move(action));
    }
  }

  const Goal& goal_;
  const TransitionTask& task_;
  std::vector<Action> actions_;
  std::vector<std::set<partition::MigInstance>> cut_into_;    // in use or idle, by device
  std::vector<std::optional<std::size_t>> last_cut_;          // by device
  std::map<Site, std::size_t> created_by_, removed_by_;       // the last that did
  std::map<std::uint32_t, std::vector<std::size_t>> giving_;  // by service, in order of stages
};

}  // namespace

std::vector<Action> actions_of(const std::vector<Stage>& stages, const Goal& goal) {
  return Actions(goal).of(stages);
}

}  // namespace gpulet::mig
