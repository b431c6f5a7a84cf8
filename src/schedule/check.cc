#include "gpulet/schedule/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "gpulet/schedule/policy.h"
#include "gpulet/schedule/spare.h"
#include "schedule/headroom_table.h"

namespace gpulet::schedule {
namespace {

using partition::MigInstance;
using partition::MigProfile;

std::set<std::string> models_of(const PlannedGpulet& gpulet) {
  std::set<std::string> models;
  for (const Assignment& one : gpulet.assignments) models.insert(one.model);
  return models;
}

double required_mb(const PlannedGpulet& gpulet, const profile::Profile* profile) {
  double sum_mb = 0;
  for (const Assignment& one : gpulet.assignments) {
    const profile::ModelProfile* const measured =
        profile == nullptr ? nullptr : profile->find(one.model);
    if (measured != nullptr) sum_mb += measured->memory_mb.value_or(0);
  }
  return sum_mb;
}

class MigChecker {
 public:
  MigChecker(const Device& device, const profile::Profile* profile)
      : device_(device), profile_(profile) {}

  std::vector<std::string> run(const std::vector<const PlannedGpulet*>& gpulets) {
    std::map<MigInstance, std::vector<const PlannedGpulet*>> in_instance;
    for (const PlannedGpulet* gpulet : gpulets) {
      if (!gpulet->instance) {
        wrong("a gpulet names no instance");
        continue;
      }
      in_instance[*gpulet->instance].push_back(gpulet);
    }
    for (const auto& [instance, processes] : in_instance) check_instance(instance, processes);
    return std::move(violations_);
  }

 private:
  template <typename... Values>
  void wrong(fmt::format_string<const Values&...> format, const Values&... values) {
    violations_.push_back(fmt::format(format, values...));
  }

  void check_instance(const MigInstance& instance,
                      const std::vector<const PlannedGpulet*>& processes) {
    const auto profiles = device_.mig->profiles();
    const auto known = std::find_if(profiles.begin(), profiles.end(), [&](const MigProfile& one) {
      return one.slices == instance.slices &&
             std::count(one.starts().begin(), one.starts().end(), instance.start) > 0;
    });
    const std::string name = to_string(instance);
    if (known == profiles.end()) {
      wrong("{} is not an instance of {}", name, device_.mig->name());
      return;
    }
    reserve_memory(instance, *known);
    check_processes(name, *known, processes);
  }

  // Reserves the instance's memory slices, which no other instance may use.
  void reserve_memory(const MigInstance& instance, const MigProfile& profile) {
    for (std::uint32_t slice = 0; slice < profile.memory_slices; ++slice) {
      const auto [taken, free] = owner_.emplace(instance.start + slice, instance);
      if (free) continue;
      wrong("{} and {} share a memory slice", to_string(instance), to_string(taken->second));
      break;
    }
    if (device_.mig->allows_3g_beside_4g()) return;
    const auto has = [this](std::uint32_t slices) {
      return std::any_of(owner_.begin(), owner_.end(),
                         [slices](const auto& one) { return one.second.slices == slices; });
    };
    const bool is_3g_or_4g = instance.slices == 3 || instance.slices == 4;
    if (is_3g_or_4g && has(3) && has(4)) wrong("a 3g and a 4g cannot exist together");
  }

  void check_processes(const std::string& name, const MigProfile& profile,
                       const std::vector<const PlannedGpulet*>& processes) {
    if (processes.size() > device_.processes_per_instance) {
      wrong("{} holds {} gpulets, at most {} are possible", name, processes.size(),
            device_.processes_per_instance);
    }
    double needed_mb = 0;
    for (const PlannedGpulet* gpulet : processes) {
      needed_mb += required_mb(*gpulet, profile_);
      if (gpulet->size.percent !=
          static_cast<int>(profile.slices * 100 / device_.mig->compute_slices())) {
        wrong("{} is not {} % of the device", name, gpulet->size.percent);
      }
      if (models_of(*gpulet) != models_of(*processes.front()))
        wrong("{} holds gpulets of different models", name);
    }
    if (processes.size() > 1 && profile_ != nullptr && profile_->knows_processes())
      check_several(name, *processes.front(), static_cast<std::uint32_t>(processes.size()));
    if (needed_mb > profile.memory_mb) {
      wrong("the models in {} need {:f} MB, it has {:f} MB", name, needed_mb, profile.memory_mb);
    }
  }

  // What so many processes cost must be measured, which it is only for processes of one model.
  void check_several(const std::string& name, const PlannedGpulet& gpulet,
                     std::uint32_t processes) {
    if (gpulet.assignments.size() > 1) {
      wrong("{} holds {} processes of {} models, which was not measured", name, processes,
            gpulet.assignments.size());
      return;
    }
    for (const std::string& model : models_of(gpulet)) {
      const profile::ModelProfile* const measured = profile_->find(model);
      if (measured != nullptr && !measured->shared_latency.contains(processes))
        wrong("{} holds {} processes of '{}', which was not measured", name, processes, model);
    }
  }

  const Device& device_;
  const profile::Profile* profile_;
  std::map<std::uint32_t, MigInstance> owner_;  // of each memory slice
  std::vector<std::string> violations_;
};

// Violations of MIG's rules by the gpulets of one device, without the device's name.
std::vector<std::string> check_mig(const Device& device,
                                   const std::vector<const PlannedGpulet*>& gpulets,
                                   const profile::Profile* profile) {
  if (device.mig) return MigChecker(device, profile).run(gpulets);
  const bool named = std::any_of(gpulets.begin(), gpulets.end(), [](const PlannedGpulet* gpulet) {
    return gpulet->instance.has_value();
  });
  if (!named) return {};
  return {"a gpulet names a MIG instance, but MIG does not divide the device"};
}

// Violations by one gpulet without rounds (Service), without its name.
std::vector<std::string> check_service(const Device& device, const PlannedGpulet& gpulet,
                                       const profile::Profile* profile,
                                       const std::optional<double>& asked_margin) {
  std::vector<std::string> wrong;
  const bool controlled = gpulet.service == Service::controlled;
  if (controlled != is_cpu(device))
    wrong.emplace_back(controlled ? "only a CPU's cores can be controlled"
                                  : "a CPU requires one controlled instance per model");
  if (controlled && gpulet.assignments.size() != 1)
    wrong.push_back(fmt::format("a controlled instance must have one model, but has {}",
                                gpulet.assignments.size()));
  const Share expected = controlled ? kControlledShare : kWholeDevice;
  if (gpulet.size != expected)
    wrong.push_back(fmt::format("the size of such an instance must be {} %", expected.percent));
  if (gpulet.instance || device.mig)
    wrong.emplace_back("MIG divides the device, which requires rounds");
  if (gpulet.duty_cycle_ms != 0)
    wrong.emplace_back("an instance without rounds must have a duty cycle of 0");
  for (const Assignment& one : gpulet.assignments) {
    const std::string where = "model '" + one.model + "': ";
    if (one.rate != 0) wrong.push_back(where + "an instance without rounds must have a rate of 0");
    if (one.batch != 1)
      wrong.push_back(where + "an instance without rounds must have a batch of 1");
    const profile::ModelProfile* const model =
        profile == nullptr ? nullptr : profile->find(one.model);
    const std::optional<double> alone_ms =
        model == nullptr ? std::nullopt : model->latency.latency_ms(1, kWholeDevice);
    const double margin = model == nullptr ? 1 : margin_of(asked_margin, model->latency);
    // NaN must fail the comparison.
    if (!alone_ms ||
        !(std::abs(one.latency_ms - *alone_ms * margin) <= kCheckTolerance * *alone_ms * margin))
      wrong.push_back(fmt::format(
          "{}its latency is not that of one request on the whole device in the profile of '{}'",
          where, device.type));
  }
  return wrong;
}

// Violations by the gpulets without rounds of one device together, without the device's name.
std::vector<std::string> check_services(const std::vector<const PlannedGpulet*>& gpulets) {
  std::vector<std::string> wrong;
  const auto without_rounds = [](const PlannedGpulet* gpulet) {
    return gpulet->service != Service::rounds;
  };
  const auto count = std::count_if(gpulets.begin(), gpulets.end(), without_rounds);
  if (count == 0) return wrong;
  if (static_cast<std::size_t>(count) != gpulets.size())
    wrong.emplace_back("has gpulets with rounds and instances without");
  std::set<std::string> models;
  for (const PlannedGpulet* gpulet : gpulets) {
    for (const Assignment& one : gpulet->assignments) {
      if (!models.insert(one.model).second)
        wrong.push_back("has two instances of '" + one.model + "'");
    }
  }
  return wrong;
}

// One model of a gpulet with random arrivals, as its profile and the plan describe it. The planner
// computes the same means in another way (duty_cycle.h); both read the table of headroom_table.h,
// which tests hold against simulated queues.
class RandomSlot {
 public:
  RandomSlot(const Assignment& assignment, const profile::LatencyTable& latency, Share size,
             const std::optional<double>& margin, std::uint32_t most)
      : assignment_(assignment), margin_(margin_of(margin, latency)) {
    for (std::uint32_t n = 1; n <= most; ++n) {
      const std::optional<double> alone_ms = latency.latency_ms(n, size);
      if (!alone_ms) break;
      // The plan states the slowdown of its largest batch only; the others are not faster than
      // alone.
      const double run_ms = n == assignment.batch ? *alone_ms * assignment.slowdown : *alone_ms;
      // Times that fall as a batch grows are noise.
      run_ms_.push_back(run_ms_.empty() ? run_ms : std::max(run_ms, run_ms_.back()));
    }
    cv_ = latency.cv(assignment.batch, size).value_or(0);
  }

  [[nodiscard]] double own_ms() const { return assignment_.latency_ms / margin_; }

  // The mean time of a batch of those that arrive in a cycle.
  [[nodiscard]] double busy_ms(double cycle_ms) const {
    const double arrivals = assignment_.rate * cycle_ms / 1000;
    double probability = std::exp(-arrivals);
    double rest = 1 - probability;
    double mean_ms = 0;
    for (std::size_t n = 1; n < run_ms_.size(); ++n) {
      probability *= arrivals / static_cast<double>(n);
      rest -= probability;
      mean_ms += probability * run_ms_[n - 1];
    }
    return mean_ms + std::max(rest, 0.0) * run_ms_.back();
  }

  // The mean number of requests in a cycle that the batch holds if cycles do not vary. The planner
  // estimates how much they do, which only lowers it.
  // `turn_ms`: from one batch of its processes to the next.
  [[nodiscard]] double held(double turn_ms, double cycle_ms, bool alone) const {
    const double own = own_ms();
    const double overhead_ms = alone ? kOverheadAloneMs : kOverheadInTurnMs;
    const double wait_ms = assignment_.slo_ms - assignment_.latency_ms - overhead_ms;
    const double middle = assignment_.batch / 2.0;
    const auto low = static_cast<std::size_t>(std::max(1.0, std::floor(middle)));
    const auto high = static_cast<std::size_t>(std::max(1.0, std::ceil(middle)));
    const double half_ms = (run_ms_[low - 1] + run_ms_[high - 1]) / 2;
    const double held = requests_held({.batch = assignment_.batch,
                                       .wait = wait_ms / turn_ms,
                                       .half = 1 - std::max(0.0, own - half_ms) / cycle_ms,
                                       .deviation = cv_ * own / cycle_ms,
                                       .own_deviation = cv_ * own / cycle_ms});
    if (alone || !(wait_ms > 0)) return held;
    // No cycle is longer than a request may wait.
    const double in_longest = requests_held({.batch = assignment_.batch,
                                             .wait = 1,
                                             .half = 1,
                                             .deviation = cv_,
                                             .own_deviation = cv_ * own / wait_ms});
    return std::max(held, in_longest * cycle_ms / wait_ms);
  }

 private:
  const Assignment& assignment_;
  double margin_;
  std::vector<double> run_ms_;  // [n - 1]: mean time of a batch of n
  double cv_ = 0;
};

// The mean time of the batches of all slots in a cycle: a table where the slots are many.
class AllSlots {
 public:
  explicit AllSlots(const std::vector<RandomSlot>& slots) : slots_(slots) {
    if (slots.size() <= kFew) return;
    double cycle_ms = kShortestMs;
    for (std::size_t at = 0; at < kPoints; ++at, cycle_ms *= kRatio)
      points_.emplace_back(cycle_ms, sum_ms(cycle_ms));
  }

  [[nodiscard]] double busy_ms(double cycle_ms) const {
    if (points_.empty() || cycle_ms <= points_.front().first) return sum_ms(cycle_ms);
    const auto above = std::find_if(points_.begin(), points_.end(), [cycle_ms](const auto& point) {
      return point.first >= cycle_ms;
    });
    if (above == points_.end()) return points_.back().second;
    const auto below = above - 1;
    return std::lerp(below->second, above->second,
                     (cycle_ms - below->first) / (above->first - below->first));
  }

 private:
  static constexpr std::size_t kFew = 16;
  static constexpr std::size_t kPoints = 160;
  static constexpr double kShortestMs = 0.01;
  static constexpr double kRatio = 1.1;  // the longest is 38,000 s

  [[nodiscard]] double sum_ms(double cycle_ms) const {
    double sum_ms = 0;
    for (const RandomSlot& slot : slots_) sum_ms += slot.busy_ms(cycle_ms);
    return sum_ms;
  }

  const std::vector<RandomSlot>& slots_;
  std::vector<std::pair<double, double>> points_;  // cycle and time; empty: few slots
};

// NaN fails every comparison.
bool at_most(double value, double limit) {
  return value <= limit + kCheckTolerance * std::abs(limit);
}
bool equal(double a, double b) {
  return std::abs(a - b) <= kCheckTolerance * std::max(std::abs(a), std::abs(b));
}

std::string name_of(const PlannedGpulet& gpulet) {
  return fmt::format("gpulet {}/{} at {} %", gpulet.device.node, gpulet.device.device,
                     gpulet.size.percent);
}

std::string name_of(const PlannedGpulet& gpulet, const Assignment& assignment) {
  return fmt::format("{}, model '{}'", name_of(gpulet), assignment.model);
}

constexpr int kCycleHalvings = 50;
// The planner estimates the mean times of the other models' batches, and what a batch holds. Near
// saturation a cycle grows much more than the batches in it.
constexpr double kOthersTolerance = 1.02;
constexpr double kArrivalsTolerance = 1.1;

class Checker {
 public:
  Checker(const Plan& plan, const PlanInput& input) : plan_(plan), input_(input) {
    for (const Device& device : input.cluster.devices) devices_[device.key] = &device;
    for (const ModelDemand& demand : input.demands) demands_[demand.name] = &demand;
    for (const PlannedGpulet& gpulet : plan.gpulets) {
      if (gpulet.instance) ++processes_[{gpulet.device, *gpulet.instance}];
    }
  }

  std::vector<std::string> run() {
    if (input_.profiles == nullptr) return {"a plan cannot be checked without profiles"};
    for (const PlannedGpulet& gpulet : plan_.gpulets) check_gpulet(gpulet);
    check_devices();
    check_coverage();
    return std::move(violations_);
  }

 private:
  template <typename... Values>
  void wrong(fmt::format_string<const Values&...> format, const Values&... values) {
    violations_.push_back(fmt::format(format, values...));
  }

  // Null for a device that the cluster does not have.
  const Device* device_of(const PlannedGpulet& gpulet) const {
    const auto found = devices_.find(gpulet.device);
    return found == devices_.end() ? nullptr : found->second;
  }

  const profile::Profile* profile_of(const Device& device) const {
    const auto found = input_.profiles->find(device.type);
    return found == input_.profiles->end() ? nullptr : &found->second;
  }

  const profile::ModelProfile* profile_of(const Device& device, const std::string& model) const {
    const profile::Profile* const profile = profile_of(device);
    return profile == nullptr ? nullptr : profile->find(model);
  }

  // How many processes of the gpulet's instance take batches from one queue in turns.
  std::uint32_t turns_of(const PlannedGpulet& gpulet, const Device& device) const {
    const profile::Profile* const profile = profile_of(device);
    return gpulet.instance && profile != nullptr && profile->knows_processes()
               ? processes_.at({gpulet.device, *gpulet.instance})
               : 1;
  }

  // The latencies of a measured model in one of the gpulet's processes.
  const profile::LatencyTable& table_of(const PlannedGpulet& gpulet,
                                        const profile::ModelProfile& measured) const {
    return measured.latency_of(gpulet.instance ? processes_.at({gpulet.device, *gpulet.instance})
                                               : 1);
  }

  void check_gpulet(const PlannedGpulet& gpulet) {
    const std::string name = name_of(gpulet);
    const Device* device = device_of(gpulet);
    if (device == nullptr) {
      wrong("{}: the cluster has no such device", name);
      return;
    }
    if (gpulet.assignments.empty()) wrong("{}: has no model", name);
    if (gpulet.assignments.size() > kMostModelsOfGpulet) {
      wrong("{}: has {} models, at most {} are possible", name, gpulet.assignments.size(),
            kMostModelsOfGpulet);
    }
    if (gpulet.service == Service::rounds) {
      check_rounds(gpulet, *device);
    } else {
      for (const std::string& fault :
           check_service(*device, gpulet, profile_of(*device), input_.options.margin)) {
        wrong("{}: {}", name, fault);
      }
    }
    std::set<std::string> seen;
    for (const Assignment& assignment : gpulet.assignments) {
      const auto demand = demands_.find(assignment.model);
      if (gpulet.assignments.size() > 1 && demand != demands_.end() && demand->second->alone) {
        wrong("{}: '{}' must not share a gpulet, but shares this one", name, assignment.model);
      }
      if (!seen.insert(assignment.model).second)
        wrong("{}: has '{}' twice", name, assignment.model);
      check_demanded(gpulet, assignment);
    }
  }

  void check_rounds(const PlannedGpulet& gpulet, const Device& device) {
    const std::string name = name_of(gpulet);
    if (std::find(device.sizes.begin(), device.sizes.end(), gpulet.size) == device.sizes.end()) {
      wrong("{}: the device does not list that size", name);
    }
    if (!(gpulet.duty_cycle_ms > 0) || !std::isfinite(gpulet.duty_cycle_ms)) {
      wrong("{}: a duty cycle of {:.9g} ms is not valid", name, gpulet.duty_cycle_ms);
    }
    double busy_ms = 0;
    for (const Assignment& assignment : gpulet.assignments) {
      if (!(assignment.rate > 0 && std::isfinite(assignment.rate))) {
        wrong("{}: a rate of {:.9g} requests/s is not valid", name_of(gpulet, assignment),
              assignment.rate);
      }
      check_latency(gpulet, assignment, device);
      check_round(gpulet, assignment, turns_of(gpulet, device));
      busy_ms += assignment.latency_ms;
    }
    if (input_.options.headroom == Headroom::poisson) check_arrivals(gpulet, device);
    if (!at_most(busy_ms, gpulet.duty_cycle_ms)) {
      wrong("{}: its round takes {:.9g} ms, longer than the duty cycle of {:.9g} ms", name, busy_ms,
            gpulet.duty_cycle_ms);
    }
  }

  void check_demanded(const PlannedGpulet& gpulet, const Assignment& assignment) {
    const std::string name = name_of(gpulet, assignment);
    const auto demand = demands_.find(assignment.model);
    if (demand == demands_.end()) {
      wrong("{}: there is no demand for it", name);
      return;
    }
    if (!equal(assignment.slo_ms, demand->second->slo_ms)) {
      wrong("{}: planned for an SLO of {:.9g} ms, but the demand has {:.9g} ms", name,
            assignment.slo_ms, demand->second->slo_ms);
    }
    if (assignment.batch < 1 || assignment.batch > demand->second->max_batch) {
      wrong("{}: a batch of {} is outside 1..{}, the demand's max_batch", name, assignment.batch,
            demand->second->max_batch);
    }
  }

  void check_latency(const PlannedGpulet& gpulet, const Assignment& assignment,
                     const Device& device) {
    const std::string name = name_of(gpulet, assignment);
    if (!(assignment.slowdown >= 1) || !std::isfinite(assignment.slowdown))
      wrong("{}: a slowdown of {:.9g} is less than 1", name, assignment.slowdown);
    const profile::ModelProfile* measured = profile_of(device, assignment.model);
    if (measured == nullptr) {
      wrong("{}: the profile of '{}' does not have it", name, device.type);
      return;
    }
    const profile::LatencyTable& table = table_of(gpulet, *measured);
    const std::optional<double> alone_ms = table.latency_ms(assignment.batch, gpulet.size);
    if (!alone_ms) {
      wrong("{}: the profile of '{}' has no latency of batch {} at that size", name, device.type,
            assignment.batch);
      return;
    }
    const double expected_ms =
        *alone_ms * assignment.slowdown * margin_of(input_.options.margin, table);
    if (!equal(assignment.latency_ms, expected_ms)) {
      wrong(
          "{}: states a latency of {:.9g} ms for batch {}, the profile with slowdown and margin "
          "says "
          "{:.9g} ms",
          name, assignment.latency_ms, assignment.batch, expected_ms);
    }
  }

  void check_round(const PlannedGpulet& gpulet, const Assignment& assignment, std::uint32_t turns) {
    const std::string name = name_of(gpulet, assignment);
    const double arrivals = assignment.rate * gpulet.duty_cycle_ms / 1000;
    const bool at_intervals = input_.options.headroom == Headroom::none;
    if (at_intervals && !at_most(arrivals, assignment.batch)) {
      wrong("{}: {:.9g} requests arrive in a round, its batch holds {}", name, arrivals,
            assignment.batch);
    }
    const double longest_ms = gpulet.duty_cycle_ms / turns + assignment.latency_ms;
    if (!at_most(longest_ms, assignment.slo_ms)) {
      wrong("{}: a request may take {:.9g} ms, its SLO is {:.9g} ms", name, longest_ms,
            assignment.slo_ms);
    }
  }

  // Whether each batch holds the arrivals of its cycle: its own full batch, and of the other models
  // the mean batches that the cycle brings.
  void check_arrivals(const PlannedGpulet& gpulet, const Device& device) {
    std::vector<RandomSlot> slots;
    for (const Assignment& assignment : gpulet.assignments) {
      if (!is_measured(device, gpulet, assignment)) return;
      const auto demand = demands_.find(assignment.model);
      if (demand == demands_.end()) return;
      slots.emplace_back(assignment, table_of(gpulet, *profile_of(device, assignment.model)),
                         gpulet.size, input_.options.margin, demand->second->max_batch);
    }
    const AllSlots all(slots);
    // Between two batches of a slot, every other slot runs at most one of its planned size.
    double whole_round_ms = 0;
    for (const RandomSlot& slot : slots) whole_round_ms += slot.own_ms();
    for (std::size_t at = 0; at < slots.size(); ++at) {
      const Assignment& assignment = gpulet.assignments[at];
      const auto others_ms = [&](double cycle_ms) {
        return (all.busy_ms(cycle_ms) - slots[at].busy_ms(cycle_ms)) / kOthersTolerance;
      };
      const double own_ms = slots.size() == 1 ? assignment.latency_ms : slots[at].own_ms();
      double low = own_ms;
      double high = std::max(low, whole_round_ms);
      for (int step = 0; step < kCycleHalvings; ++step) {
        const double middle = (low + high) / 2;
        (own_ms + others_ms(middle) > middle ? low : high) = middle;
      }
      const double arrivals = assignment.rate * low / 1000;
      const double held = slots[at].held(low / turns_of(gpulet, device), low, slots.size() == 1);
      if (arrivals <= held * kArrivalsTolerance) continue;
      wrong(
          "{}: {:.9g} requests arrive in a cycle of {:.9g} ms, of which its batch of {} holds "
          "{:.9g}: more than {} % are late by chance",
          name_of(gpulet, assignment), arrivals, low, assignment.batch, held,
          100 * kMostLateByChance);
    }
  }

  void check_devices() {
    std::map<DeviceKey, std::vector<const PlannedGpulet*>> by_device;
    for (const PlannedGpulet& gpulet : plan_.gpulets) {
      if (device_of(gpulet) != nullptr) by_device[gpulet.device].push_back(&gpulet);
    }
    for (const auto& [key, gpulets] : by_device) check_device(*devices_.at(key), gpulets);
    std::map<std::string, std::size_t> by_node;
    for (const PlannedGpulet& gpulet : plan_.gpulets) ++by_node[gpulet.device.node];
    for (const auto& [node, gpulets] : by_node) {
      if (gpulets <= kMostGpuletsOfNode) continue;
      wrong("node {}: holds {} gpulets, at most {} are possible", node, gpulets,
            kMostGpuletsOfNode);
    }
    const std::optional<std::uint32_t> most = input_.options.max_devices;
    if (most && by_device.size() > *most)
      wrong("the plan uses {} devices, at most {} are allowed", by_device.size(), *most);
  }

  void check_device(const Device& device, const std::vector<const PlannedGpulet*>& gpulets) {
    const std::string name = fmt::format("device {}/{}", device.key.node, device.key.device);
    int percent = 0;
    double memory_mb = 0;
    std::set<partition::MigInstance> instances;  // each counts once as a share
    for (const PlannedGpulet* gpulet : gpulets) {
      if (!gpulet->instance || instances.insert(*gpulet->instance).second)
        percent += gpulet->size.percent;
      for (const Assignment& assignment : gpulet->assignments) {
        const profile::ModelProfile* measured = profile_of(device, assignment.model);
        if (measured != nullptr) memory_mb += measured->memory_mb.value_or(0);
      }
    }
    if (percent > kWholeDevice.percent)
      wrong("{}: its gpulets add up to {} %, more than 100", name, percent);
    const bool has_rounds = std::any_of(gpulets.begin(), gpulets.end(), [](const auto* gpulet) {
      return gpulet->service == Service::rounds;
    });
    if (has_rounds && gpulets.size() > device.max_partitions) {
      wrong("{}: holds {} gpulets, at most {} are possible", name, gpulets.size(),
            device.max_partitions);
    }
    for (const std::string& fault : check_services(gpulets)) wrong("{}: {}", name, fault);
    for (const std::string& fault : check_mig(device, gpulets, profile_of(device)))
      wrong("{}: {}", name, fault);
    if (has_rounds) {
      for (const PlannedGpulet* gpulet : gpulets) check_slowdowns(device, gpulets, *gpulet);
    }
    if (device.memory_mb > 0 && !at_most(memory_mb, device.memory_mb))
      wrong("{}: its models need {:.9g} MB, it has {:.9g} MB", name, memory_mb, device.memory_mb);
  }

  void check_slowdowns(const Device& device, const std::vector<const PlannedGpulet*>& gpulets,
                       const PlannedGpulet& gpulet) {
    if (input_.interference == nullptr || device.mig) return;  // MIG isolates instances
    const auto model = input_.interference->find(device.type);
    if (model == input_.interference->end()) return;
    const auto traits = [&](const Assignment& of, const PlannedGpulet& where) {
      return model->second.traits(of.model, of.batch, where.size);
    };
    for (const Assignment& assignment : gpulet.assignments) {
      if (!is_measured(device, gpulet, assignment)) continue;
      double expected = 1;
      for (const PlannedGpulet* other : gpulets) {
        if (other == &gpulet) continue;
        double worst = 1;
        for (const Assignment& beside : other->assignments) {
          if (!is_measured(device, *other, beside)) continue;
          worst = std::max(
              worst, model->second.slowdown(traits(assignment, gpulet), traits(beside, *other)));
        }
        expected = profile::add_neighbour(expected, worst);
      }
      if (at_most(expected, assignment.slowdown)) continue;
      wrong("{}: assumes a slowdown of {:.9g}, but its neighbours cause {:.9g}",
            name_of(gpulet, assignment), assignment.slowdown, expected);
    }
  }

  // Whether the profile has the latency of the assignment. If not, check_latency reports it.
  [[nodiscard]] bool is_measured(const Device& device, const PlannedGpulet& gpulet,
                                 const Assignment& assignment) const {
    const profile::ModelProfile* measured = profile_of(device, assignment.model);
    return measured != nullptr && assignment.batch > 0 &&
           table_of(gpulet, *measured).latency_ms(assignment.batch, gpulet.size).has_value();
  }

  void check_coverage() {
    std::map<std::string, double> accounted;
    std::set<std::string> without_rounds;
    for (const PlannedGpulet& gpulet : plan_.gpulets) {
      for (const Assignment& assignment : gpulet.assignments) {
        accounted[assignment.model] += assignment.rate;
        if (gpulet.service != Service::rounds) without_rounds.insert(assignment.model);
      }
    }
    std::set<std::string> seen;
    for (const Unserved& unserved : plan_.unserved) {
      if (!seen.insert(unserved.model).second)
        wrong("'{}' is reported as unserved twice", unserved.model);
      if (demands_.find(unserved.model) == demands_.end())
        wrong("'{}' is reported as unserved, but there is no demand for it", unserved.model);
      if (!(unserved.rate > 0)) {
        wrong("'{}' is reported as unserved with a rate of {:.9g} requests/s", unserved.model,
              unserved.rate);
      }
      accounted[unserved.model] += unserved.rate;
    }
    for (const ModelDemand& demand : input_.demands) {
      const double rate = accounted[demand.name];
      if (rate == 0 && without_rounds.contains(demand.name)) continue;
      if (!equal(rate, demand.rate)) {
        wrong("'{}': {:.9g} requests/s are demanded, the plan assigns or reports {:.9g}",
              demand.name, demand.rate, rate);
      }
    }
  }

  const Plan& plan_;
  const PlanInput& input_;
  std::map<DeviceKey, const Device*> devices_;
  std::map<std::string, const ModelDemand*> demands_;
  std::map<std::pair<DeviceKey, MigInstance>, std::uint32_t> processes_;  // of each instance
  std::vector<std::string> violations_;
};

// Whether the policy chose a batch of every model of the gpulet.
bool has_choice_of_all(const PlannedGpulet& gpulet) {
  const std::vector<Assignment>& chosen = gpulet.policy_choice->assignments;
  return std::all_of(
      gpulet.assignments.begin(), gpulet.assignments.end(), [&chosen](const Assignment& one) {
        return std::any_of(chosen.begin(), chosen.end(),
                           [&one](const Assignment& other) { return other.model == one.model; });
      });
}

}  // namespace

std::vector<std::string> check(const Plan& plan, const PlanInput& input) {
  std::vector<std::string> violations = Checker(plan, input).run();
  bool uses_spare = false;
  for (const PlannedGpulet& gpulet : plan.gpulets) {
    if (!gpulet.policy_choice) continue;
    uses_spare = true;
    if (!has_choice_of_all(gpulet))
      violations.push_back(name_of(gpulet) + ": has a model that its policy_choice lacks");
  }
  if (!uses_spare) return violations;
  for (const std::string& fault : Checker(without_spare(plan), input).run())
    violations.push_back("without spare share: " + fault);
  return violations;
}

}  // namespace gpulet::schedule
