// igniter: iGniter (IEEE TPDS 2022), algorithms 1 and 2.
//
// Every model gets the batch that its rate fills and the least share that meets the SLO with it,
// alone on a device. Then, the largest share first, it goes to the device where all gpulets
// together have to grow least because they slow each other down, and to another device only where
// no open one has enough share.
//
// Choices where the papers leave one:
//  - iGniter computes batch and share from a closed-form latency model, with half of the SLO for
//    the batch to fill. Here the latencies are the profile's, and the least share is the smallest
//    listed size at which a batch serves the rate within the SLO; the batch is then that of the
//    duty cycle, as for every policy (plan_output.h).
//  - Shares grow by listed sizes, where iGniter's grow by a unit: a gpulet that does not hold its
//    rate next to the others takes its next size, until all hold or the device is full.
//  - Among devices of equal cost the one opened first wins, as in iGniter; without interference
//    this is first fit. Among types, the one with the highest rate per percent is opened.
//  - iGniter rents as many GPUs as it needs. Here a rate beyond every size takes gpulets of the
//    size that serves most until the rest fits into one. Rates that fit on no device are served by
//    the remaining shares that can take most of them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "research/policies.h"
#include "schedule/candidates.h"
#include "schedule/plan_builder.h"
#include "schedule/plan_output.h"

namespace gpulet::research {

using namespace schedule;  // NOLINT(google-build-using-namespace)

namespace {

struct ProvisionedGpulet {
  std::uint32_t model = 0;
  std::uint32_t size = 0;  // index into the class's sizes
  double rate = 0;
};

struct ProvisionedDevice {
  std::uint32_t device_class = 0;
  int percent = 0;  // sum over its gpulets
  double memory_mb = 0;
  std::vector<ProvisionedGpulet> gpulets;
};

class Provisioning {
 public:
  explicit Provisioning(PlanContext& context)
      : context_(context), wanted_(context.classes().size()) {
    for (const DeviceClass& known : context.classes()) unopened_.push_back(known.devices.size());
    for (const ModelDemand* demand : context.models()) unplaced_.push_back(demand->rate);
  }

  PlanBuilder run() {
    const std::vector<std::size_t> order = models_by_share(context_);
    for (const std::size_t model : order) {
      while (unplaced_[model] > kRoundingSlack * context_.models()[model]->rate && place(model)) {
      }
    }
    PlanBuilder builder = built();
    for (const std::size_t model : order) {
      while (builder.unplaced(model) > 0) {
        const std::optional<Candidate> candidate = largest_share(builder, model);
        if (!candidate || candidate->rate <= kRoundingSlack * context_.models()[model]->rate) break;
        occupy(builder, model, *candidate);
      }
    }
    return builder;
  }

 private:
  bool place(std::size_t model) {
    least_sizes(context_, model, unplaced_[model], &wanted_);
    ProvisionedDevice* best = nullptr;
    ProvisionedDevice best_after;
    int least_growth = 0;
    for (ProvisionedDevice& device : devices_) {
      if (!has_capacity(device, model)) continue;
      ProvisionedDevice after = with_model(device, model);
      const int before_percent = after.percent;
      if (!grow(&after)) continue;
      const int growth = after.percent - before_percent;
      if (best != nullptr && growth >= least_growth) continue;
      best = &device;
      best_after = std::move(after);
      least_growth = growth;
      if (growth == 0) break;
    }
    if (best == nullptr) {
      const std::optional<std::uint32_t> opened = class_to_open(model);
      if (!opened) return false;
      --unopened_[*opened];
      best = &devices_.emplace_back();
      best->device_class = *opened;
      best_after = with_model(*best, model);
    }
    unplaced_[model] -= best_after.gpulets.back().rate;
    *best = std::move(best_after);
    return true;
  }

  [[nodiscard]] bool has_capacity(const ProvisionedDevice& device, std::size_t model) const {
    const DeviceClass& known = context_.classes()[device.device_class];
    const std::optional<std::uint32_t>& size = wanted_[device.device_class];
    const double memory_mb =
        device.memory_mb + context_.on_class(model, device.device_class).memory_mb;
    return size && device.gpulets.size() < known.example->max_partitions &&
           device.percent + known.sizes[*size] <= kWholeDevice.percent &&
           (known.example->memory_mb == 0 || memory_mb <= known.example->memory_mb);
  }

  // The device with the model in its least share.
  [[nodiscard]] ProvisionedDevice with_model(ProvisionedDevice device, std::size_t model) const {
    const std::uint32_t size = *wanted_[device.device_class];
    const double most = context_.curve(model, device.device_class, size).max_rate;
    device.percent += context_.classes()[device.device_class].sizes[size];
    device.memory_mb += context_.on_class(model, device.device_class).memory_mb;
    device.gpulets.push_back(
        {static_cast<std::uint32_t>(model), size, std::min(unplaced_[model], most)});
    return device;
  }

  // Algorithm 2. Returns false where the device is too small.
  [[nodiscard]] bool grow(ProvisionedDevice* device) {
    if (!context_.interferes(device->device_class)) return true;
    const std::vector<int>& sizes = context_.classes()[device->device_class].sizes;
    bool all_hold = false;
    while (!all_hold) {
      all_hold = true;
      for (std::size_t index = 0; index < device->gpulets.size(); ++index) {
        if (holds(*device, index)) continue;
        ProvisionedGpulet& small = device->gpulets[index];
        if (small.size + 1 == sizes.size()) return false;
        device->percent += sizes[small.size + 1] - sizes[small.size];
        if (device->percent > kWholeDevice.percent) return false;
        ++small.size;
        all_hold = false;
      }
    }
    return true;
  }

  [[nodiscard]] bool holds(const ProvisionedDevice& device, std::size_t index) {
    const ProvisionedGpulet& own = device.gpulets[index];
    std::vector<Neighbour> neighbours;
    for (std::size_t other = 0; other < device.gpulets.size(); ++other) {
      if (other == index) continue;
      neighbours.push_back({device.gpulets[other].size, {device.gpulets[other].model}});
    }
    return context_.curve_beside(own.model, device.device_class, own.size, neighbours).max_rate >=
           own.rate;
  }

  [[nodiscard]] std::optional<std::uint32_t> class_to_open(std::size_t model) const {
    if (devices_.size() >= context_.device_budget()) return std::nullopt;
    std::optional<std::uint32_t> best;
    double most = 0;
    for (std::uint32_t index = 0; index < unopened_.size(); ++index) {
      if (unopened_[index] == 0 || !has_capacity(ProvisionedDevice{index, 0, 0, {}}, model))
        continue;
      const double rate = context_.curve(model, index, *wanted_[index]).max_rate;
      const double per_percent =
          std::min(unplaced_[model], rate) / context_.classes()[index].sizes[*wanted_[index]];
      if (per_percent <= most) continue;
      most = per_percent;
      best = index;
    }
    return best;
  }

  [[nodiscard]] PlanBuilder built() {
    PlanBuilder builder(context_);
    for (const ProvisionedDevice& device : devices_) {
      const std::uint32_t index = builder.open(device.device_class);
      for (const ProvisionedGpulet& gpulet : device.gpulets)
        builder.add_gpulet(index, gpulet.size, gpulet.model, gpulet.rate);
    }
    return builder;
  }

  PlanContext& context_;
  std::vector<ProvisionedDevice> devices_;
  std::vector<std::size_t> unopened_;  // parallel to the context's classes
  std::vector<double> unplaced_;       // parallel to the context's models
  WantedSizes wanted_;                 // of the current model
};

}  // namespace

Plan Igniter::plan(const PlanInput& input) {
  PlanContext context(input);
  return finish_enlarged(Provisioning(context).run());
}

}  // namespace gpulet::research
