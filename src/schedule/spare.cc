#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpulet/schedule/scaling.h"
#include "schedule/duty_cycle.h"
#include "schedule/plan_context.h"
#include "schedule/plan_output.h"

namespace gpulet::schedule {
namespace {

constexpr double kSlack = 1 + kRoundingSlack;

// A larger size is worth its share if it does one of two things for the gpulet: the longest time of
// a request falls to `time` of what it was, or the round holds bursts that are larger by
// `deviations` standard deviations.
struct Worthwhile {
  double time = 1;
  double deviations = 0;
};
constexpr Worthwhile kForNew{0.9, 0.5};
// A gpulet that runs needs a new process for another size.
constexpr Worthwhile kForRunning{0.75, 1};

// A gpulet of the device. Sizes are indices into those of the device's class.
struct Member {
  PlannedGpulet* gpulet = nullptr;
  std::uint32_t chosen = 0;  // by the policy
  std::uint32_t least = 0;   // at most `chosen`; no smaller size holds a round
  std::optional<std::uint32_t> running;
  std::vector<BatchSlot> slots;       // without curves
  std::vector<std::uint32_t> models;  // of the slots
};

using Sizes = std::vector<std::uint32_t>;  // parallel to the members

// The round of a member. It depends on the sizes of all members and nothing else, so that a plan in
// force is found again.
struct Outcome {
  TolerantRound round;
  std::vector<BatchSlot> slots;    // with curves
  std::vector<double> longest_ms;  // time of a request of each slot
  double part_of_slo = 0;          // the largest of them
};

// A way to divide the device.
struct Partition {
  Sizes sizes;
  std::vector<Outcome> outcomes;  // parallel to the sizes
};

bool no_worse(const Outcome& now, const Outcome& before) {
  if (now.round.deviations != before.round.deviations)
    return now.round.deviations > before.round.deviations;
  return std::equal(now.longest_ms.begin(), now.longest_ms.end(), before.longest_ms.begin(),
                    [](double left, double right) { return left <= right * kSlack; });
}

bool no_worse(const std::vector<Outcome>& now, const std::vector<Outcome>& before) {
  return std::equal(
      now.begin(), now.end(), before.begin(),
      [](const Outcome& left, const Outcome& right) { return no_worse(left, right); });
}

bool improves(const Outcome& now, const Outcome& before, const Worthwhile& least) {
  const double gain = now.round.deviations - before.round.deviations;
  return gain >= least.deviations ||
         (gain >= 0 && now.part_of_slo <= before.part_of_slo * least.time);
}

// Of its worst member.
Outcome worst_of(const std::vector<Outcome>& outcomes) {
  Outcome worst;
  worst.round.deviations = kMaxDeviations;
  for (const Outcome& one : outcomes) {
    worst.round.deviations = std::min(worst.round.deviations, one.round.deviations);
    worst.part_of_slo = std::max(worst.part_of_slo, one.part_of_slo);
  }
  return worst;
}

// Whether the times of all members together, each compared with itself, are no longer.
bool no_longer(const std::vector<Outcome>& now, const std::vector<Outcome>& before) {
  double ratio = 1;
  for (std::size_t at = 0; at < now.size(); ++at)
    ratio *= now[at].part_of_slo / before[at].part_of_slo;
  return ratio <= kSlack;
}

class DeviceDivision {
 public:
  DeviceDivision(PlanContext& context, std::uint32_t device,
                 const std::vector<PlannedGpulet*>& gpulets)
      : context_(context),
        device_class_(context.class_of(device)),
        percents_(context.classes()[device_class_].sizes) {
    for (PlannedGpulet* gpulet : gpulets) add(gpulet);
  }

  // Finds the gpulets that run on the device; each of them becomes at most one member.
  void match(std::vector<const PlannedGpulet*> running) {
    // Equal models first: reconcile() prefers them as well.
    for (const bool equal : {true, false}) {
      for (Member& member : members_) {
        if (member.running) continue;
        const auto found = std::find_if(running.begin(), running.end(), [&](const auto* one) {
          return has_models(*one, *member.gpulet, equal);
        });
        if (found == running.end()) continue;
        member.running = context_.classes()[device_class_].find_size((*found)->size);
        running.erase(found);
      }
    }
  }

  void run() {
    if (!has_spare()) return;
    find_least_sizes();
    if (std::optional<Partition> kept = keep_running_sizes()) {
      grow(*kept);
      return write(*kept);
    }
    std::optional<Partition> best = partition_at(sizes_of(&Member::chosen));
    if (best) grow(*best);
    if (sizes_of(&Member::least) != sizes_of(&Member::chosen)) {
      std::optional<Partition> redivided = partition_at(sizes_of(&Member::least));
      if (redivided) grow(*redivided);
      const bool better =
          redivided &&
          (!best || (improves(worst_of(redivided->outcomes), worst_of(best->outcomes), kForNew) &&
                     no_longer(redivided->outcomes, best->outcomes)));
      if (better) best = std::move(redivided);
    }
    if (best) write(*best);
  }

 private:
  void add(PlannedGpulet* gpulet) {
    Member& member = members_.emplace_back();
    member.gpulet = gpulet;
    member.chosen = *context_.classes()[device_class_].find_size(gpulet->size);
    member.least = member.chosen;
    for (const Assignment& one : gpulet->assignments) {
      const std::uint32_t model = *context_.find_model(one.model);
      member.slots.push_back({nullptr, one.rate, one.slo_ms, model});
      member.models.push_back(model);
    }
  }

  static bool has_models(const PlannedGpulet& running, const PlannedGpulet& planned, bool equal) {
    if (equal && running.assignments.size() != planned.assignments.size()) return false;
    return std::all_of(
        planned.assignments.begin(), planned.assignments.end(), [&](const Assignment& wanted) {
          return std::any_of(running.assignments.begin(), running.assignments.end(),
                             [&](const Assignment& one) { return one.model == wanted.model; });
        });
  }

  template <typename Size>
  [[nodiscard]] Sizes sizes_of(Size size) const {
    Sizes sizes;
    for (const Member& member : members_) sizes.push_back(member.*size);
    return sizes;
  }

  [[nodiscard]] int free_percent(const Sizes& sizes) const {
    int free = kWholeDevice.percent;
    for (const std::uint32_t size : sizes) free -= percents_[size];
    return free;
  }

  // Whether a gpulet could be larger than the policy chose if all others were as small as they can
  // be alone: no round is faster beside neighbours.
  [[nodiscard]] bool has_spare() const {
    Sizes least = sizes_of(&Member::chosen);
    for (std::size_t at = 0; members_.size() > 1 && at < members_.size(); ++at) {
      for (std::uint32_t size = 0; size < members_[at].chosen; ++size) {
        std::vector<BatchSlot> slots = members_[at].slots;
        for (BatchSlot& slot : slots) slot.curve = &context_.curve(slot.model, device_class_, size);
        if (!min_duty_cycle_ms(slots)) continue;
        least[at] = size;
        break;
      }
    }
    const int free = free_percent(least);
    for (std::size_t at = 0; at < members_.size(); ++at) {
      const std::uint32_t larger = members_[at].chosen + 1;
      if (larger < percents_.size() && percents_[larger] - percents_[least[at]] <= free)
        return true;
    }
    return false;
  }

  void find_least_sizes() {
    for (std::size_t at = 0; at < members_.size(); ++at) {
      Sizes sizes = sizes_of(&Member::chosen);
      for (std::uint32_t size = 0; size < members_[at].chosen; ++size) {
        sizes[at] = size;
        if (!outcome_of(at, sizes)) continue;
        members_[at].least = size;
        break;
      }
    }
  }

  // ---- rounds

  // Empty where a member has no round.
  [[nodiscard]] std::optional<Partition> partition_at(Sizes sizes) {
    if (free_percent(sizes) < 0) return std::nullopt;
    Partition partition;
    for (std::size_t at = 0; at < members_.size(); ++at) {
      std::optional<Outcome> outcome = outcome_of(at, sizes);
      if (!outcome) return std::nullopt;
      partition.outcomes.push_back(*std::move(outcome));
    }
    partition.sizes = std::move(sizes);
    return partition;
  }

  [[nodiscard]] std::optional<Outcome> outcome_of(std::size_t at, const Sizes& sizes) {
    Outcome outcome;
    outcome.slots = slots_of(at, sizes);
    std::optional<TolerantRound> round = burst_tolerant_round(outcome.slots);
    if (!round) return std::nullopt;
    outcome.round = *std::move(round);
    for (std::size_t slot = 0; slot < outcome.slots.size(); ++slot) {
      const BatchSlot& one = outcome.slots[slot];
      outcome.longest_ms.push_back(outcome.round.round.duty_cycle_ms +
                                   one.curve->latency_ms[outcome.round.round.batches[slot] - 1]);
      outcome.part_of_slo = std::max(outcome.part_of_slo, outcome.longest_ms.back() / one.slo_ms);
    }
    return outcome;
  }

  [[nodiscard]] std::vector<BatchSlot> slots_of(std::size_t at, const Sizes& sizes) {
    const bool beside = members_.size() > 1 && context_.interferes(device_class_);
    std::vector<Neighbour> neighbours;
    for (std::size_t other = 0; beside && other < members_.size(); ++other) {
      if (other != at) neighbours.push_back({sizes[other], members_[other].models});
    }
    std::vector<BatchSlot> slots = members_[at].slots;
    for (BatchSlot& slot : slots) {
      slot.curve = beside ? &context_.curve_beside(slot.model, device_class_, sizes[at], neighbours)
                          : &context_.curve(slot.model, device_class_, sizes[at]);
    }
    return slots;
  }

  // ---- sizes

  // The sizes in force, as far as they fit beside what the policy chose for the other gpulets.
  // Empty where none does.
  [[nodiscard]] std::optional<Partition> keep_running_sizes() {
    std::vector<bool> keeps;
    for (const Member& member : members_)
      keeps.push_back(member.running && *member.running >= member.least);
    while (std::find(keeps.begin(), keeps.end(), true) != keeps.end()) {
      Sizes sizes = sizes_of(&Member::chosen);
      std::size_t most = 0;  // the member whose size is farthest above the policy's
      int largest = -kWholeDevice.percent;
      for (std::size_t at = 0; at < members_.size(); ++at) {
        if (!keeps[at]) continue;
        const int above = percents_[*members_[at].running] - percents_[sizes[at]];
        sizes[at] = *members_[at].running;
        if (above > largest) {
          largest = above;
          most = at;
        }
      }
      if (std::optional<Partition> partition = partition_at(std::move(sizes))) return partition;
      keeps[most] = false;
    }
    return std::nullopt;
  }

  // Gives free share to members, one step at a time.
  void grow(Partition& partition) {
    const std::vector<Outcome> start = partition.outcomes;
    while (grow_one(partition, start)) {
    }
  }

  // Gives the least larger size that is worthwhile to the first member, of those nearest to their
  // limits, that has one. Nobody becomes worse than at the start.
  bool grow_one(Partition& partition, const std::vector<Outcome>& start) {
    std::vector<std::size_t> order(members_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      const Outcome& left = partition.outcomes[a];
      const Outcome& right = partition.outcomes[b];
      if (left.round.deviations != right.round.deviations)
        return left.round.deviations < right.round.deviations;
      return left.part_of_slo > right.part_of_slo;
    });
    return std::any_of(order.begin(), order.end(),
                       [&](std::size_t at) { return grow(at, partition, start); });
  }

  bool grow(std::size_t at, Partition& partition, const std::vector<Outcome>& start) {
    const std::uint32_t now = partition.sizes[at];
    const bool runs = members_[at].running == now;
    if (runs && !holds_another(at)) return false;
    const Worthwhile& least = runs ? kForRunning : kForNew;
    const int most = percents_[now] + free_percent(partition.sizes);
    Sizes larger = partition.sizes;
    for (std::uint32_t size = now + 1; size < percents_.size() && percents_[size] <= most; ++size) {
      larger[at] = size;
      // First the member itself, which costs less than all.
      const std::optional<Outcome> outcome = outcome_of(at, larger);
      if (!outcome || !improves(*outcome, partition.outcomes[at], least)) continue;
      std::optional<Partition> grown = partition_at(larger);
      if (!grown || !no_worse(grown->outcomes, start)) continue;
      partition = *std::move(grown);
      return true;
    }
    return false;
  }

  // Whether a new process of the member fits into the device's memory beside the present ones.
  // Otherwise it would serve nothing while it is replaced.
  [[nodiscard]] bool holds_another(std::size_t at) const {
    const double limit_mb = context_.classes()[device_class_].example->memory_mb;
    double sum_mb = memory_mb(members_[at]);
    for (const Member& member : members_) sum_mb += memory_mb(member);
    return limit_mb == 0 || sum_mb <= limit_mb;
  }

  [[nodiscard]] double memory_mb(const Member& member) const {
    double sum_mb = 0;
    for (const std::uint32_t model : member.models)
      sum_mb += context_.on_class(model, device_class_).memory_mb;
    return sum_mb;
  }

  // ---- result

  void write(const Partition& partition) {
    if (partition.sizes == sizes_of(&Member::chosen)) return;
    for (std::size_t at = 0; at < members_.size(); ++at) {
      PlannedGpulet& gpulet = *members_[at].gpulet;
      const Outcome& outcome = partition.outcomes[at];
      PolicyChoice chosen{gpulet.size, gpulet.duty_cycle_ms, gpulet.assignments};
      gpulet.size = Share{percents_[partition.sizes[at]]};
      gpulet.duty_cycle_ms = outcome.round.round.duty_cycle_ms;
      for (std::size_t slot = 0; slot < outcome.slots.size(); ++slot) {
        gpulet.assignments[slot] =
            assignment_of(context_, device_class_, partition.sizes[at], outcome.slots[slot],
                          outcome.round.round.batches[slot]);
      }
      gpulet.policy_choice = std::move(chosen);
    }
  }

  PlanContext& context_;
  const std::uint32_t device_class_;
  const std::vector<int>& percents_;  // of the class's sizes
  std::vector<Member> members_;
};

using ByDevice = std::map<DeviceKey, std::vector<PlannedGpulet*>>;

// The gpulets that may get spare share.
ByDevice divisible(const PlanInput& input, Plan& plan) {
  // Beside GPUs, a CPU costs what its gpulets reserve (cover/gpus_first.cc).
  const bool only_cpus =
      std::all_of(input.cluster.devices.begin(), input.cluster.devices.end(), is_cpu);
  std::set<DeviceKey> by_share;
  for (const Device& device : input.cluster.devices) {
    if (!device.mig && (only_cpus || !is_cpu(device))) by_share.insert(device.key);
  }
  ByDevice by_device;
  for (PlannedGpulet& gpulet : plan.gpulets) {
    if (gpulet.service == Service::rounds && by_share.contains(gpulet.device))
      by_device[gpulet.device].push_back(&gpulet);
  }
  std::erase_if(by_device, [](const auto& entry) {
    return entry.second.size() == 1 && entry.second.front()->size == kWholeDevice;
  });
  return by_device;
}

// The input reduced to these devices and the models on them.
PlanInput input_of(const PlanInput& input, const ByDevice& devices) {
  std::set<std::string_view> models;
  for (const auto& [key, gpulets] : devices) {
    for (const PlannedGpulet* gpulet : gpulets) {
      for (const Assignment& one : gpulet->assignments) models.insert(one.model);
    }
  }
  PlanInput reduced;
  std::copy_if(input.cluster.devices.begin(), input.cluster.devices.end(),
               std::back_inserter(reduced.cluster.devices),
               [&devices](const Device& device) { return devices.contains(device.key); });
  std::copy_if(input.demands.begin(), input.demands.end(), std::back_inserter(reduced.demands),
               [&models](const ModelDemand& demand) { return models.contains(demand.name); });
  reduced.profiles = input.profiles;
  reduced.interference = input.interference;
  reduced.options = input.options;
  return reduced;
}

}  // namespace

Plan use_spare(const PlanInput& input, Plan plan) {
  const ByDevice by_device = divisible(input, plan);
  if (by_device.empty()) return plan;
  const PlanInput reduced = input_of(input, by_device);
  PlanContext context(reduced);
  std::map<DeviceKey, std::vector<const PlannedGpulet*>> running;
  if (input.current != nullptr) {
    for (const PlannedGpulet& gpulet : input.current->gpulets) {
      if (gpulet.service == Service::rounds && !gpulet.instance)
        running[gpulet.device].push_back(&gpulet);
    }
  }
  for (const auto& [key, gpulets] : by_device) {
    DeviceDivision device(context, *context.find_device(key), gpulets);
    if (const auto found = running.find(key); found != running.end()) device.match(found->second);
    device.run();
  }
  keep_unchanged_gpulets(input, plan.gpulets);
  return plan;
}

PlannedGpulet without_spare(PlannedGpulet gpulet) {
  if (!gpulet.policy_choice) return gpulet;
  const PolicyChoice chosen = *std::move(gpulet.policy_choice);
  gpulet.policy_choice.reset();
  gpulet.size = chosen.size;
  gpulet.duty_cycle_ms = chosen.duty_cycle_ms;
  for (Assignment& one : gpulet.assignments) {
    const auto found = std::find_if(chosen.assignments.begin(), chosen.assignments.end(),
                                    [&one](const auto& other) { return other.model == one.model; });
    if (found == chosen.assignments.end()) continue;
    one.batch = found->batch;
    one.latency_ms = found->latency_ms;
    one.slowdown = found->slowdown;
  }
  return gpulet;
}

Plan without_spare(Plan plan) {
  for (PlannedGpulet& gpulet : plan.gpulets) gpulet = without_spare(std::move(gpulet));
  return plan;
}

namespace {

// The gpulets of the plan in force that have more share than the policy chose grow into it where
// the rates of their models have risen.
class GrownNeeds {
 public:
  explicit GrownNeeds(const PlanInput& input)
      : in_force_(*input.current), plan_(without_spare(*input.current)) {
    for (const ModelDemand& demand : input.demands) missing_[demand.name] = demand.rate;
    for (const PlannedGpulet& gpulet : plan_.gpulets) {
      for (const Assignment& one : gpulet.assignments) missing_[one.model] -= one.rate;
    }
    for (const ModelDemand& demand : input.demands) {
      double& rate = missing_[demand.name];
      if (rate <= kRoundingSlack * demand.rate) rate = 0;
    }
  }

  // The gpulets that may grow.
  [[nodiscard]] std::vector<std::size_t> candidates() const {
    std::vector<std::size_t> found;
    for (std::size_t at = 0; at < plan_.gpulets.size(); ++at) {
      const PlannedGpulet& gpulet = plan_.gpulets[at];
      const bool lacks = std::any_of(gpulet.assignments.begin(), gpulet.assignments.end(),
                                     [this](const auto& one) { return missing(one.model) > 0; });
      if (lacks && in_force_.gpulets[at].size > gpulet.size) found.push_back(at);
    }
    return found;
  }

  void grow(const PlanContext& context, std::size_t at) {
    PlannedGpulet& gpulet = plan_.gpulets[at];
    const std::optional<std::uint32_t> device = context.find_device(gpulet.device);
    if (!device) return;
    const std::uint32_t device_class = context.class_of(*device);
    const DeviceClass& known = context.classes()[device_class];
    const auto chosen = known.find_size(gpulet.size);
    const auto most = known.find_size(in_force_.gpulets[at].size);
    if (!chosen || !most) return;
    std::vector<BatchSlot> slots;
    for (std::uint32_t size = *chosen; size <= *most; ++size) {
      gpulet.size = Share{known.sizes[size]};
      slots = slots_at(context, gpulet, device_class, size);
      for (BatchSlot& slot : slots) slot.rate += missing(context.models()[slot.model]->name);
      if (!min_duty_cycle_ms(slots)) continue;
      for (const Assignment& one : gpulet.assignments) missing_[one.model] = 0;
      return;
    }
    take_what_fits(context, slots_at(context, gpulet, device_class, *most));
  }

  [[nodiscard]] Plan take() { return std::move(plan_); }

 private:
  [[nodiscard]] double missing(const std::string& model) const {
    const auto found = missing_.find(model);
    return found == missing_.end() ? 0 : std::max(0.0, found->second);
  }

  // With the rates of the plan in force. The policy considers the neighbours.
  [[nodiscard]] static std::vector<BatchSlot> slots_at(const PlanContext& context,
                                                       const PlannedGpulet& gpulet,
                                                       std::uint32_t device_class,
                                                       std::uint32_t size) {
    std::vector<BatchSlot> slots;
    for (const Assignment& one : gpulet.assignments) {
      const std::optional<std::uint32_t> model = context.find_model(one.model);
      if (!model) continue;
      slots.push_back({&context.curve(*model, device_class, size), one.rate,
                       context.models()[*model]->slo_ms, *model});
    }
    return slots;
  }

  void take_what_fits(const PlanContext& context, const std::vector<BatchSlot>& slots) {
    for (std::size_t at = 0; at < slots.size(); ++at) {
      std::vector<BatchSlot> others = slots;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(at));
      double& rate = missing_[context.models()[slots[at].model]->name];
      const double most = max_rate_beside(others, *slots[at].curve, slots[at].slo_ms);
      rate = std::max(0.0, rate - std::max(0.0, most - slots[at].rate));
    }
  }

  const Plan& in_force_;
  Plan plan_;                              // parallel to it
  std::map<std::string, double> missing_;  // rate that no gpulet in force serves, by model
};

}  // namespace

Plan with_grown_needs(const PlanInput& input) {
  GrownNeeds needs(input);
  const std::vector<std::size_t> candidates = needs.candidates();
  if (!candidates.empty()) {
    const PlanContext context(input);
    for (const std::size_t at : candidates) needs.grow(context, at);
  }
  return needs.take();
}

}  // namespace gpulet::schedule
