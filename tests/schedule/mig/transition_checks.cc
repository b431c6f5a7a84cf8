#include "tests/schedule/mig/transition_checks.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace gpulet::schedule::mig::testing {
namespace {

using partition::MigInstance;
using Place = std::pair<std::uint32_t, MigInstance>;

Place place_of(const ServingInstance& instance) { return {instance.device, instance.instance}; }

std::string name(const Place& place) {
  return to_string(place.second) + " on device " + std::to_string(place.first);
}

// The memory slices of an instance; 0 where it does not exist.
std::uint32_t bits(const TransitionDevice& device, const MigInstance& instance) {
  struct Row {
    std::uint32_t slices, memory;
    std::set<std::uint32_t> starts;
  };
  static const std::vector<Row> of_seven{
      {1, 1, {0, 1, 2, 3, 4, 5, 6}}, {2, 2, {0, 2, 4}}, {3, 4, {0, 4}}, {4, 4, {0}}, {7, 8, {0}}};
  static const std::vector<Row> of_four{{1, 1, {0, 1, 2, 3}}, {2, 2, {0, 2}}, {4, 4, {0}}};
  for (const Row& row : device.geometry.name() == "a30" ? of_four : of_seven) {
    if (row.slices == instance.slices && row.starts.contains(instance.start))
      return ((1U << row.memory) - 1) << instance.start;
  }
  return 0;
}

struct Rates {
  std::vector<double> least;
  std::map<Place, std::vector<ServiceRate>> stays;  // capacity during the transition

  explicit Rates(const TransitionTask& task) {
    const std::vector<double> before = sum(task.from, task.services.size());
    const std::vector<double> after = sum(task.to, task.services.size());
    for (std::size_t service = 0; service < before.size(); ++service)
      least.push_back(std::min(before[service], after[service]));
    for (const ServingInstance& from : task.from) {
      for (const ServingInstance& to : task.to) {
        if (place_of(from) != place_of(to) || from.parts.size() != to.parts.size()) continue;
        std::vector<ServiceRate> most = from.parts;
        bool same = true;
        for (std::size_t at = 0; at < most.size(); ++at) {
          same = same && most[at].service == to.parts[at].service;
          most[at].rate = std::max(most[at].rate, to.parts[at].rate);
        }
        if (same) stays[place_of(from)] = most;
      }
    }
  }

  static std::vector<double> sum(const std::vector<ServingInstance>& all_serving,
                                 std::size_t services) {
    std::vector<double> rates(services, 0);
    for (const ServingInstance& instance : all_serving) {
      for (const ServiceRate& part : instance.parts) rates[part.service] += part.rate;
    }
    return rates;
  }

  [[nodiscard]] std::string fault(const std::vector<double>& rates) const {
    for (std::size_t service = 0; service < least.size(); ++service) {
      if (rates[service] < least[service] * (1 - 1e-6))
        return "service " + std::to_string(service) + " has " + std::to_string(rates[service]) +
               " of " + std::to_string(least[service]);
    }
    return "";
  }
};

using There = std::map<Place, std::vector<ServiceRate>>;

There start_of(const TransitionTask& task, const Rates& rates) {
  There there;
  for (const ServingInstance& instance : task.from) there[place_of(instance)] = instance.parts;
  for (const auto& [place, parts] : rates.stays) there[place] = parts;
  return there;
}

There there_of(const std::vector<ServingInstance>& all_serving) {
  There there;
  for (const ServingInstance& instance : all_serving) there[place_of(instance)] = instance.parts;
  return there;
}

std::string fault_in_layouts(const std::set<Place>& places, const TransitionTask& task) {
  std::map<std::uint32_t, std::vector<MigInstance>> layouts;
  for (const auto& [device, instance] : places) layouts[device].push_back(instance);
  for (const auto& [device, layout] : layouts) {
    if (!is_legal(task.devices[device], layout))
      return "device " + std::to_string(device) + " has an illegal layout";
  }
  return "";
}

std::set<Place> places_of(const There& there) {
  std::set<Place> places;
  for (const auto& [place, parts] : there) places.insert(place);
  return places;
}

bool nearly_equal(const std::vector<double>& a, const std::vector<double>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](double one, double other) {
    return std::abs(one - other) <= 1e-6 * std::max(1.0, std::abs(one));
  });
}

class Replay {
 public:
  Replay(const Transition& transition, const TransitionTask& task)
      : actions_(transition.actions), task_(task), rates_(task), serving_(start_of(task, rates_)) {
    for (const auto& [place, parts] : serving_) {
      taken_.insert(place);
      cut_into_.insert(place);
    }
    state_.assign(actions_.size(), 0);
  }

  std::string run(const std::function<std::size_t(std::size_t)>& pick) {
    for (;;) {
      std::vector<std::size_t> possible;
      for (std::size_t index = 0; index < actions_.size(); ++index) {
        if (state_[index] > 0 ? state_[index] < kDone : is_ready(index)) possible.push_back(index);
      }
      if (possible.empty()) break;
      const std::size_t index = possible[pick(possible.size())];
      std::string fault = advance(actions_[index], state_[index]++);
      if (fault.empty()) fault = rates_.fault(sum());
      if (fault.empty()) fault = fault_in_layouts(taken_, task_);
      if (fault.empty()) fault = fault_in_layouts(cut_into_, task_);
      if (!fault.empty()) return "action " + std::to_string(index) + ": " + fault;
    }
    if (std::count(state_.begin(), state_.end(), kDone) != std::ssize(state_)) return "deadlock";
    if (taken_ != places_of(there_of(task_.to))) return "the target is not reached";
    for (const ServingInstance& instance : task_.to) {
      for (std::size_t at = 0; at < instance.parts.size(); ++at) {
        if (serving_[place_of(instance)][at].service != instance.parts[at].service)
          return "wrong services at " + name(place_of(instance));
      }
    }
    return "";
  }

 private:
  static constexpr int kDone = 3;

  bool is_ready(std::size_t index) const {
    const std::vector<std::size_t>& after = actions_[index].after;
    return std::all_of(after.begin(), after.end(),
                       [&](std::size_t before) { return state_[before] == kDone; });
  }

  std::vector<double> sum() const {
    std::vector<ServingInstance> all_serving;
    for (const auto& [place, parts] : serving_)
      all_serving.push_back({place.first, place.second, parts});
    return Rates::sum(all_serving, task_.services.size());
  }

  // Runs one of the three parts of an action: begin, first half, second half.
  std::string advance(const Action& action, int half) {
    const Place place = place_of(action.target);
    const bool is_move = action.kind == ActionKind::migrate;
    if (action.kind == ActionKind::repartition) return half == 0 ? cut(action) : "";
    if (action.kind == ActionKind::remove) return take_away(place, half);
    if (half == 0) {
      if (!cut_into_.contains(place)) return "there is no " + name(place);
      if (!taken_.insert(place).second) return name(place) + " is in use";
    }
    if (half == 1) serving_[place] = action.target.parts;
    if (is_move && half > 0)
      return take_away({action.from_device, action.from_instance}, half == 1 ? 0 : 2);
    return "";
  }

  std::string take_away(const Place& place, int half) {
    if (half == 0 && serving_.erase(place) == 0) return "nothing serves at " + name(place);
    if (half == 2) taken_.erase(place);
    return "";
  }

  std::string cut(const Action& action) {
    for (const MigInstance& gone : action.cut) {
      if (taken_.contains({action.device, gone})) return name({action.device, gone}) + " is in use";
      if (cut_into_.erase({action.device, gone}) == 0)
        return "there is no " + name({action.device, gone});
    }
    for (const MigInstance& made : action.made) cut_into_.insert({action.device, made});
    return "";
  }

  const std::vector<Action>& actions_;
  const TransitionTask& task_;
  Rates rates_;
  There serving_;
  std::set<Place> taken_, cut_into_;
  std::vector<int> state_;
};

}  // namespace

bool is_legal(const TransitionDevice& device, const std::vector<MigInstance>& instances) {
  std::uint32_t taken = 0;
  std::set<std::uint32_t> sizes;
  for (const MigInstance& instance : instances) {
    const std::uint32_t own = bits(device, instance);
    if (own == 0 || (taken & own) != 0) return false;
    taken |= own;
    sizes.insert(instance.slices);
  }
  return device.geometry.allows_3g_beside_4g() || !sizes.contains(3) || !sizes.contains(4);
}

std::string fault_in_stages(const Transition& transition, const TransitionTask& task) {
  const Rates rates(task);
  There there = start_of(task, rates);
  std::vector<double> before = Rates::sum(task.from, task.services.size());
  for (std::size_t at = 0; at < transition.stages.size(); ++at) {
    const Stage& stage = transition.stages[at];
    const std::string where = "stage " + std::to_string(at) + ": ";
    if (stage.created.empty() && stage.removed.empty()) return where + "no changes";
    for (const ServingInstance& instance : stage.created) {
      if (!there.emplace(place_of(instance), instance.parts).second)
        return where + name(place_of(instance)) + " is taken";
    }
    if (std::string fault = fault_in_layouts(places_of(there), task); !fault.empty())
      return where + fault;
    std::set<std::uint32_t> devices;
    for (const auto& [place, parts] : there) devices.insert(place.first);
    if (devices.size() != stage.devices_in_use) return where + "wrong number of devices in use";
    for (const ServingInstance& instance : stage.removed) {
      if (there.erase(place_of(instance)) == 0)
        return where + "nothing is at " + name(place_of(instance));
    }
    const bool last = at + 1 == transition.stages.size();
    if (last) {
      There to = there_of(task.to);
      if (places_of(there) != places_of(to)) return where + "not the target deployment";
      there = to;
    }
    if (there != there_of(stage.after)) return where + "wrong instances after the stage";
    if (!std::is_sorted(stage.after.begin(), stage.after.end(),
                        [](const ServingInstance& a, const ServingInstance& b) {
                          return std::pair(a.device, a.instance.start) <
                                 std::pair(b.device, b.instance.start);
                        }))
      return where + "unsorted instances";
    const std::vector<double> now = Rates::sum(stage.after, task.services.size());
    std::vector<double> least = now;
    for (std::size_t service = 0; service < least.size(); ++service)
      least[service] = std::min(least[service], before[service]);
    if (!nearly_equal(least, stage.least_rate)) return where + "wrong least rates";
    if (std::string fault = rates.fault(least); !fault.empty()) return where + fault;
    before = now;
  }
  return "";
}

std::string fault_in_replay(const Transition& transition, const TransitionTask& task,
                            const std::function<std::size_t(std::size_t)>& pick) {
  for (std::size_t index = 0; index < transition.actions.size(); ++index) {
    const Action& action = transition.actions[index];
    for (const std::size_t before : action.after) {
      if (before >= index) return "action " + std::to_string(index) + " waits for a later one";
    }
    if (action.stage >= transition.stages.size())
      return "action " + std::to_string(index) + " has no stage";
  }
  return Replay(transition, task).run(pick);
}

}  // namespace gpulet::schedule::mig::testing
