// A PlanInput prepared for planning: models, device classes and sizes as indices, and the latency
// curve of every model at every size of every class, in one flat array. Built once per plan() call,
// so that no inner loop looks up a string or searches a table. Where gpulets slow each other down,
// further curves are computed on first use, one for each set of neighbours. Refers to the PlanInput
// it came from. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gpulet/profile/interference.h"
#include "gpulet/profile/profile.h"
#include "gpulet/schedule/policy.h"
#include "schedule/duty_cycle.h"

namespace gpulet::schedule {

class PlanContext;

// Which devices of the cluster to plan for: those without MIG, those that MIG divides, or both.
enum class Division : std::uint8_t { by_share, by_mig, either };

// Devices that are interchangeable for planning.
struct DeviceClass {
  const Device* example = nullptr;
  const profile::Profile* profile = nullptr;
  const profile::InterferenceModel* interference = nullptr;  // null: every slowdown is 1
  std::vector<int> sizes;                                    // percent, ascending
  std::vector<std::uint32_t> devices;  // indices into PlanContext::devices, ascending
  // Under MIG: for every kind of maximal layout, the number of instances of each size. Any subset
  // of one of them is legal. Empty without MIG: any sizes that add up are legal.
  std::vector<std::vector<std::uint32_t>> divisions;
  // Memory of a gpulet, parallel to `sizes`; infinite where only the device has a limit.
  std::vector<double> gpulet_mb;
  // Under MIG: a plan chooses the number of processes in an instance, up to
  // Device::processes_per_instance. Otherwise an instance has all of them.
  bool chooses_processes = false;

  // The index of that size in `sizes`.
  [[nodiscard]] std::optional<std::uint32_t> find_size(Share size) const;
};

// A model on a device class, apart from its curves.
struct ModelOnClass {
  const profile::ModelProfile* profile = nullptr;  // null: not measured
  // In a gpulet, of all its processes or, where a plan chooses their number, of one; 0: unknown.
  double memory_mb = 0;
  std::uint32_t best_size = 0;  // index of the size with the highest max_rate
  // The measured batches. Latency and slowdown are linear between two of them.
  std::vector<std::uint32_t> measured;
};

// Another gpulet on the same device.
struct Neighbour {
  std::uint32_t size = 0;             // index into the class's sizes
  std::vector<std::uint32_t> models;  // indices into PlanContext::models, ascending

  friend auto operator<=>(const Neighbour&, const Neighbour&) = default;
};

// A model at a size of a class, by index.
struct ModelAtSize {
  std::uint32_t device_class = 0;
  std::uint32_t model = 0;
  std::uint32_t size = 0;
};

// The slowdown of one ModelAtSize by another, at the breakpoints of both.
struct SlowdownTable {
  std::size_t other_breakpoints = 0;
  std::vector<double> worst;  // [own * other_breakpoints + other]: worst up to that other batch

  [[nodiscard]] double at(std::size_t own, std::size_t other) const {
    return worst[own * other_breakpoints + other];
  }
};

// The pairwise slowdowns behind all planning with interference, computed on first use. References
// stay valid as long as the object. REQUIRES for all calls: the class interferes, and both places
// are of the same class.
class SlowdownTables {
 public:
  // `context` outlives the object.
  explicit SlowdownTables(const PlanContext& context) : context_(&context) {}

  // The batches between which a slowdown is linear: the measured ones up to the first that is not
  // below the curve's max_batch. Ascending, and not empty where the curve has a batch.
  [[nodiscard]] std::span<const std::uint32_t> breakpoints(const ModelAtSize& place) {
    return breakpoints_of(place).batches;
  }
  [[nodiscard]] const SlowdownTable& between(const ModelAtSize& self, const ModelAtSize& other);
  // [batch - 1]: the worst slowdown by any batch of `other` that its SLO allows, up to the
  // max_batch of `self` alone.
  [[nodiscard]] const std::vector<double>& worst_by_batch(const ModelAtSize& self,
                                                          const ModelAtSize& other);

 private:
  struct Breakpoints {
    std::vector<std::uint32_t> batches;
    std::vector<profile::BatchTraits> traits;  // parallel to `batches`
  };
  const Breakpoints& breakpoints_of(const ModelAtSize& place);
  [[nodiscard]] std::uint64_t key_of(const ModelAtSize& place) const;

  const PlanContext* context_;
  std::unordered_map<std::uint64_t, Breakpoints> breakpoints_;
  std::unordered_map<std::uint64_t, SlowdownTable> tables_;
  std::unordered_map<std::uint64_t, std::vector<double>> worst_by_batch_;
};

class PlanContext {
 public:
  // REQUIRES: validate(input) is ok; `input` outlives the object.
  explicit PlanContext(const PlanInput& input, Division division = Division::by_share);

  // The curves point into the object.
  PlanContext(const PlanContext&) = delete;
  PlanContext& operator=(const PlanContext&) = delete;

  [[nodiscard]] const PlanInput& input() const { return *input_; }
  // Demands with a rate, by name.
  [[nodiscard]] const std::vector<const ModelDemand*>& models() const { return models_; }
  [[nodiscard]] const std::vector<DeviceClass>& classes() const { return classes_; }
  // Devices of the requested division, by key.
  [[nodiscard]] const std::vector<const Device*>& devices() const { return devices_; }
  // Indices into models() and devices(); empty for a model without a rate, and for another device.
  [[nodiscard]] std::optional<std::uint32_t> find_model(std::string_view name) const;
  [[nodiscard]] std::optional<std::uint32_t> find_device(const DeviceKey& key) const;
  // The index of the device's class.
  [[nodiscard]] std::uint32_t class_of(std::uint32_t device) const { return class_of_[device]; }
  // How many devices a plan may use.
  [[nodiscard]] std::size_t device_budget() const { return device_budget_; }

  // The model alone on the device.
  [[nodiscard]] const LatencyCurve& curve(std::size_t model, std::size_t device_class,
                                          std::size_t size) const {
    return curves_[first_curve_[device_class] + model * classes_[device_class].sizes.size() + size];
  }
  // The model in a gpulet of its own: with the fewest processes that serve the rate, or else those
  // that serve most, within that memory. curve() unless the class chooses_processes.
  [[nodiscard]] const LatencyCurve& own_curve(
      std::size_t model, std::size_t device_class, std::size_t size,
      double rate = std::numeric_limits<double>::infinity(),
      double free_mb = std::numeric_limits<double>::infinity()) const;
  // The same curves with more than one process, by ascending number.
  [[nodiscard]] std::span<const LatencyCurve> shared_curves(std::size_t model,
                                                            std::size_t device_class,
                                                            std::size_t size) const;
  // Whether an empty device of some class can serve the model.
  [[nodiscard]] bool servable(std::size_t model) const;
  // Whether gpulets of such a device slow each other down.
  [[nodiscard]] bool interferes(std::size_t device_class) const {
    return classes_[device_class].interference != nullptr;
  }
  // The model next to the other gpulets of its device. The reference stays valid as long as the
  // context.
  //
  // The slowdown at a batch is the worst that any batch of any model of a neighbour can cause, up
  // to the largest that the neighbour's SLO allows; over several neighbours the excesses over 1 add
  // up (profile::add_neighbour). So it does not depend on the batches that the neighbours end up
  // with, and a plan stays valid when they run partial ones.
  [[nodiscard]] const LatencyCurve& curve_beside(std::size_t model, std::size_t device_class,
                                                 std::size_t size,
                                                 std::span<const Neighbour> neighbours);
  // The number of curve_beside() calls: the measure of work where gpulets slow each other down.
  [[nodiscard]] std::uint64_t curve_lookups() const { return curve_lookups_; }
  [[nodiscard]] SlowdownTables& slowdowns() { return slowdowns_; }
  [[nodiscard]] const ModelOnClass& on_class(std::size_t model, std::size_t device_class) const {
    return on_class_[device_class * models_.size() + model];
  }

 private:
  void sort_devices_into_classes(Division division);
  void add_curves(std::size_t device_class);
  // Appends the latencies to `latencies_ms`.
  [[nodiscard]] LatencyCurve curve_of(const ModelDemand& demand, const profile::LatencyTable& table,
                                      const std::vector<std::uint32_t>& breakpoints, Share size,
                                      std::uint32_t turns, std::vector<double>* latencies_ms) const;
  void add_shared_curves(std::size_t device_class);
  void finish_curves();
  [[nodiscard]] std::vector<double> slowdowns_beside(const ModelAtSize& self,
                                                     std::span<const Neighbour> neighbours);

  const PlanInput* input_;
  std::vector<const ModelDemand*> models_;
  std::vector<const Device*> devices_;
  std::vector<std::uint32_t> class_of_;  // parallel to devices_
  std::vector<DeviceClass> classes_;
  std::size_t device_budget_ = 0;
  std::vector<std::size_t> first_curve_;  // parallel to classes_
  std::vector<LatencyCurve> curves_;
  std::vector<ModelOnClass> on_class_;
  std::vector<double> latencies_ms_;  // the data of the curves
  // Of several processes. Where a class chooses them, those of a model at a size start at
  // first_shared_[class][model * sizes + size]; the last entry is the end.
  std::vector<LatencyCurve> shared_curves_;
  std::vector<std::vector<std::size_t>> first_shared_;
  std::vector<double> shared_latencies_ms_;

  // By class, model, size and neighbours, as numbers.
  struct Hash {
    std::size_t operator()(const std::vector<std::uint32_t>& key) const;
  };
  std::unordered_map<std::vector<std::uint32_t>, SlowedCurve, Hash> curves_beside_;
  std::vector<std::uint32_t> key_;  // of the current lookup
  SlowdownTables slowdowns_;
  std::uint64_t curve_lookups_ = 0;
};

}  // namespace gpulet::schedule
