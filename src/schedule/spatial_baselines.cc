// The policies that give every model gpulets of its own: greedy-best-fit, guided-self-tuning and
// igniter. Pure.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "schedule/candidates.h"
#include "schedule/plan_output.h"
#include "schedule/policies.h"

namespace gpulet::schedule {

// ---- greedy-best-fit: gpulet (ATC 2022), section 2.3
//
// Every model gets the smallest size that handles its rate within its SLO, and the sizes are placed
// on the devices by best fit.
//
// Choices where the paper leaves one:
//  - A rate beyond every size takes gpulets of the size with the highest rate until the rest fits
//    into one.
//  - The batch is the one with the highest rate within the SLO at that size: as long as latency
//    grows less than the batch, the largest that meets the SLO (section 5.2: "the maximal batch
//    size which satisfies SLOs").
//  - Models come in descending order of the share that they need, ties by name: best fit
//    decreasing, the usual form of the heuristic.
//  - Best fit: the open device with the least share left that holds the size. Another device is
//    opened only where none does; among types, the one with the highest rate per percent.
//  - With interference, the smallest size is the one that handles the rate next to its neighbours,
//    which may be larger than alone.
//  - A rate that fits nowhere is served once, by the remaining share that can take most of it.

namespace {

class GreedyFitting {
 public:
  explicit GreedyFitting(PlanContext& context)
      : context_(context), builder_(context), wanted_(context.classes().size()) {}

  PlanBuilder run() {
    for (const std::size_t model : models_by_share(context_)) {
      while (builder_.unplaced(model) > 0 && place(model)) {
      }
      if (builder_.unplaced(model) <= 0) continue;
      if (const auto candidate = largest_share(builder_, model))
        occupy(builder_, model, *candidate);
    }
    return std::move(builder_);
  }

 private:
  bool place(std::size_t model) {
    least_sizes(context_, model, builder_.unplaced(model), &wanted_);
    std::optional<Candidate> candidate =
        first_remaining(builder_, wanted_, [&](std::uint32_t device, std::uint32_t wanted) {
          return candidate_on(device, wanted, model);
        });
    if (!candidate) candidate = best_unopened(builder_, model, wanted_);
    if (!candidate) return false;
    occupy(builder_, model, *candidate);
    return true;
  }

  [[nodiscard]] std::optional<Candidate> candidate_on(std::uint32_t device, std::uint32_t wanted,
                                                      std::size_t model) {
    const BuilderDevice& host = builder_.devices()[device];
    const std::vector<int>& sizes = builder_.class_of(device).sizes;
    const double enough = std::min(builder_.unplaced(model),
                                   context_.curve(model, host.device_class, wanted).max_rate);
    for (std::uint32_t size = wanted; size < sizes.size(); ++size) {
      if (sizes[size] > host.free_percent) break;
      if (builder_.max_rate_of_new(device, size, model) < enough) continue;
      return Candidate{host.device_class, device, size, enough};
    }
    return std::nullopt;
  }

  PlanContext& context_;
  PlanBuilder builder_;
  WantedSizes wanted_;  // of the current model
};

}  // namespace

Plan plan_greedy_best_fit(const PlanInput& input) {
  PlanContext context(input);
  return finish_enlarged(GreedyFitting(context).run());
}

// ---- guided-self-tuning: the baseline of the gpu-let preprint, section 6.1
//
// GSLICE tunes the share of every model on one GPU by feedback, and then the batch by the SLO. The
// baseline gets the profile's latencies and "the optimal partition computed for models" instead of
// searching at run time.
//
// Choices where the papers leave one:
//  - The optimal partition of a model is the knee of its rate over the size (GSLICE sizes at the
//    knee, and so does the preprint's own p_eff). It depends on the profile and the SLO, not on the
//    rate: a model with a low rate gets as large a gpulet as one with a high rate. This is the
//    difference to greedy-best-fit.
//  - The batch is the one with the highest rate within the SLO at that size.
//  - GSLICE has one GPU. Here a model takes gpulets of its size until its rate is placed, on the
//    open device with the least share left that holds one, else on another device. Models come in
//    descending order of rate, as in the preprint.
//  - Once every device is open, the remaining share that serves most of the rest is taken, until
//    none is left.

namespace {

class KneePlacement {
 public:
  explicit KneePlacement(PlanContext& context)
      : context_(context), builder_(context), optimal_(context.classes().size()) {}

  PlanBuilder run() {
    for (const std::size_t model : models_by(context_, Order::heaviest_first, rate_of)) {
      for (std::size_t index = 0; index < optimal_.size(); ++index) {
        optimal_[index] = knee_size(context_, model, index);
      }
      while (builder_.unplaced(model) > 0 && place(model)) {
      }
    }
    return std::move(builder_);
  }

 private:
  bool place(std::size_t model) {
    std::optional<Candidate> candidate =
        first_remaining(builder_, optimal_, [&](std::uint32_t device, std::uint32_t size) {
          return candidate_on(device, size, model);
        });
    if (!candidate) candidate = best_unopened(builder_, model, optimal_);
    if (!candidate) candidate = largest_share(builder_, model);
    if (!candidate) return false;
    occupy(builder_, model, *candidate);
    return true;
  }

  [[nodiscard]] std::optional<Candidate> candidate_on(std::uint32_t device, std::uint32_t size,
                                                      std::size_t model) {
    const double rate = builder_.max_rate_of_new(device, size, model);
    if (rate <= 0) return std::nullopt;
    return Candidate{builder_.devices()[device].device_class, device, size,
                     std::min(rate, builder_.unplaced(model))};
  }

  PlanContext& context_;
  PlanBuilder builder_;
  WantedSizes optimal_;  // of the current model
};

}  // namespace

Plan plan_guided_self_tuning(const PlanInput& input) {
  PlanContext context(input);
  return finish_enlarged(KneePlacement(context).run());
}

// ---- igniter: iGniter (IEEE TPDS 2022), algorithms 1 and 2
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

Plan plan_igniter(const PlanInput& input) {
  PlanContext context(input);
  return finish_enlarged(Provisioning(context).run());
}

}  // namespace gpulet::schedule
