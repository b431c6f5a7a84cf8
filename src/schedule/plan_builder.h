// A plan under construction: which devices are in use, how each is divided, and which models share
// each gpulet. Policies that place models build their plans here, one gpulet at a time, and
// finish() (plan_output.h) turns the result into a Plan. Policies that only choose batches for
// gpulets that are already placed use BatchPlanner (batch_planner.h).
//
// Devices are numbered in the order in which they were opened; finish() decides which real device
// each becomes. The builder does not know which sizes MIG allows next to each other: its caller
// must.
//
// Where gpulets of a device slow each other down, every query considers the newcomer and all its
// neighbours: a change that breaks a neighbour's rules does not fit. Every change REQUIRES that the
// corresponding query allowed it. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "schedule/duty_cycle.h"
#include "schedule/plan_context.h"
#include "schedule/round_probe.h"

namespace gpulet::schedule {

struct BuilderGpulet {
  std::uint32_t device = 0;  // index into PlanBuilder::devices
  std::uint32_t size = 0;    // index into the class's sizes
  // Sum of rate * min_request_ms: no round fits above 1; below 1 one may or may not.
  double load = 0;
  // By model, with curves next to the present neighbours. Empty: the gpulet was absorbed.
  std::vector<BatchSlot> slots;
  std::optional<std::uint32_t> next;  // gpulet on the same device
  std::optional<KnownRound> known;    // made where it pays
  std::uint32_t tests = 0;            // before that
};

struct BuilderDevice {
  std::uint32_t device_class = 0;
  std::uint32_t partitions = 0;  // 0: not in use
  int free_percent = 100;
  double memory_mb = 0;                        // of the loaded models
  std::optional<std::size_t> divisible_index;  // position in PlanBuilder::divisible_devices()
  std::optional<std::uint32_t> first;          // gpulet
};

// A gpulet that could be created, on an open device or on one to be opened, and the rate of the
// current model that it would serve.
struct Candidate {
  std::size_t device_class = 0;
  std::optional<std::uint32_t> device;  // empty: a device to be opened
  std::uint32_t size = 0;               // index into the class's sizes
  double rate = 0;                      // requests per second
};

class PlanBuilder {
 public:
  // `context` outlives the builder.
  explicit PlanBuilder(PlanContext& context);

  [[nodiscard]] const PlanContext& context() const { return *context_; }
  [[nodiscard]] const std::vector<BuilderGpulet>& gpulets() const { return gpulets_; }
  [[nodiscard]] const std::vector<BuilderDevice>& devices() const { return devices_; }
  [[nodiscard]] std::size_t devices_used() const { return used_; }
  // Open devices that can take another gpulet of some size, in no particular order.
  [[nodiscard]] const std::vector<std::uint32_t>& divisible_devices() const { return divisible_; }

  [[nodiscard]] const DeviceClass& class_of(std::uint32_t device) const {
    return context_->classes()[devices_[device].device_class];
  }
  [[nodiscard]] int percent(const BuilderGpulet& gpulet) const {
    return class_of(gpulet.device).sizes[gpulet.size];
  }
  // The model in the gpulet, next to its present neighbours.
  [[nodiscard]] const LatencyCurve& curve(std::size_t model, const BuilderGpulet& gpulet) const {
    if (!gpulet.slots.empty() && gpulet.slots.front().curve->exclusive)
      return *gpulet.slots.front().curve;
    const std::uint32_t device_class = devices_[gpulet.device].device_class;
    return context_->interferes(device_class) ? curve_beside(model, gpulet)
                                              : context_->curve(model, device_class, gpulet.size);
  }
  [[nodiscard]] BatchSlot slot(std::size_t model, const LatencyCurve& curve, double rate) const;

  // Requests per second of a model that have no gpulet yet; exactly 0 once all have one.
  [[nodiscard]] double unplaced(std::size_t model) const { return unplaced_[model]; }
  // The same for all models, parallel to PlanContext::models.
  [[nodiscard]] const std::vector<double>& unplaced() const { return unplaced_; }
  // The sum over models of the unplaced fraction of each demand: 0 once everything is placed.
  [[nodiscard]] double unplaced_fraction() const;

  // Whether another device of the class may be opened.
  [[nodiscard]] bool can_open(std::size_t device_class) const {
    return used_ < context_->device_budget() && unopened_[device_class] > 0;
  }
  std::uint32_t open(std::size_t device_class);

  // Whether there is enough memory for the model: on an open device, or on an empty one of a class.
  [[nodiscard]] bool memory_fits(std::size_t model, std::uint32_t device) const;
  [[nodiscard]] bool memory_fits_empty(std::size_t model, std::size_t device_class) const;

  // Whether the gpulet has enough memory for one more model.
  [[nodiscard]] bool memory_fits(std::size_t model, const BuilderGpulet& gpulet) const;

  // The highest rate of the model in a new gpulet of that size on an open device; 0 where share,
  // partitions or memory are missing, or where the gpulet would break a neighbour's rules. On a
  // device to be opened it is context().curve(..).max_rate.
  [[nodiscard]] double max_rate_of_new(std::uint32_t device, std::uint32_t size, std::size_t model);
  // Creates a gpulet with one model. REQUIRES: rate <= max_rate_of_new.
  std::size_t add_gpulet(std::uint32_t device, std::uint32_t size, std::size_t model, double rate);

  // fits(): whether the gpulet can take `rate` more of the model. max_rate(): the highest rate up
  // to `limit` that it can take. A rate below the highest may not fit all the same, where it is
  // close. max_rate() may return 0 instead of a rate below `least`, which saves time. Both try the
  // change and undo it, so they are not const.
  [[nodiscard]] bool fits(std::size_t gpulet, std::size_t model, double rate);
  [[nodiscard]] double max_rate(std::size_t gpulet, std::size_t model, double least = 0,
                                double limit = std::numeric_limits<double>::infinity());
  void add(std::size_t gpulet, std::size_t model, double rate);

  // Whether the candidate's gpulet, which fits by its share, could serve candidate.rate of the
  // model together with all models of `gpulet`, which moves into it and gives up its own share.
  [[nodiscard]] bool absorbs(const Candidate& candidate, std::size_t model, std::size_t gpulet);
  // Moves all models of `from` into `into`. Releases the share of `from`, and its device with the
  // last share.
  void absorb(std::size_t into, std::size_t from);

  // Enlarges gpulets that cannot hold full bursts (burst_tolerant_round) into unused share of their
  // devices, the least tolerant first, each only as far as it helps. MIG instances keep their size.
  void use_spare_share();

 private:
  [[nodiscard]] double memory_of(std::size_t model, std::uint32_t device) const {
    return context_->on_class(model, devices_[device].device_class).memory_mb;
  }
  [[nodiscard]] const LatencyCurve& curve_beside(std::size_t model,
                                                 const BuilderGpulet& gpulet) const;
  // The model with that rate in a gpulet of its own, with as many processes as the memory holds
  // that the device has beside `loaded_mb` of the gpulet.
  [[nodiscard]] const LatencyCurve& own_curve(std::size_t model, std::uint32_t device,
                                              std::uint32_t size, double rate,
                                              double loaded_mb = 0) const;
  // Whether the number of processes follows the model's rate: it has the gpulet to itself.
  [[nodiscard]] bool chooses_processes(const BuilderGpulet& gpulet, std::size_t model) const {
    return class_of(gpulet.device).chooses_processes && gpulet.slots.size() == 1 &&
           gpulet.slots.front().model == model;
  }
  // Such a gpulet with another rate.
  [[nodiscard]] const LatencyCurve& own_curve(const BuilderGpulet& gpulet, double rate) const;
  // Memory of the model's processes in a gpulet with that curve.
  [[nodiscard]] double memory_of(std::size_t model, std::uint32_t device,
                                 const LatencyCurve& curve) const {
    return memory_of(model, device) * (curve.exclusive ? curve.processes : 1);
  }

  [[nodiscard]] std::vector<Neighbour> neighbours_of(const BuilderGpulet& gpulet) const;

  // A gpulet of a device, and how its neighbours see it.
  struct Occupant {
    std::optional<std::size_t> gpulet;  // empty: the newcomer
    Neighbour neighbour;
  };
  [[nodiscard]] std::vector<Occupant> occupants(std::uint32_t device) const;
  [[nodiscard]] static std::vector<Neighbour> others_of(const std::vector<Occupant>& occupants,
                                                        std::size_t at);
  // Whether all occupants but the one at `changed` keep their rules.
  [[nodiscard]] bool neighbours_hold(std::uint32_t device_class,
                                     const std::vector<Occupant>& occupants, std::size_t changed);
  // Whether the neighbours keep their rules if the gpulet gets another model, or another size.
  [[nodiscard]] bool neighbours_tolerate(std::size_t gpulet, std::optional<std::size_t> model,
                                         std::uint32_t size);
  [[nodiscard]] bool memory_absorbs(const Candidate& candidate, std::size_t gpulet) const;
  // Updates the curves of all gpulets of a device for their present neighbours.
  void refresh(std::uint32_t device);

  void update_divisible(std::uint32_t device);
  void join(BuilderGpulet& gpulet, const BatchSlot& newcomer);
  // Null where the slots are few.
  [[nodiscard]] static KnownRound* known_of(BuilderGpulet& gpulet);
  void mark_placed(std::size_t model, double rate);
  void grow(std::size_t gpulet);

  // Whether the model may share a gpulet with these (ModelDemand::alone, LatencyCurve::exclusive).
  [[nodiscard]] bool may_join(const std::vector<BatchSlot>& slots, std::size_t model) const;

  PlanContext* context_;
  std::vector<BuilderGpulet> gpulets_;
  std::vector<BuilderDevice> devices_;
  std::vector<std::uint32_t> divisible_;
  std::vector<std::size_t> unopened_;  // parallel to the context's classes
  std::vector<double> unplaced_;       // parallel to the context's models
  std::size_t used_ = 0;
  std::vector<BatchSlot> scratch_;
};

// The most of `rate` that the gpulet can take. `least` is that of PlanBuilder::max_rate().
[[nodiscard]] double most_of(PlanBuilder& builder, std::size_t gpulet, std::size_t model,
                             double rate, double least = 0);

// The gpulet that can take the most of a model, and how much. Empty where none can take any.
struct SpareCapacity {
  std::size_t gpulet = 0;
  double rate = 0;
};
[[nodiscard]] std::optional<SpareCapacity> largest_spare_capacity(PlanBuilder& builder,
                                                                  std::size_t model);
// Gives it as much of the model as it can take. Returns whether there is any.
bool add_spare(PlanBuilder& builder, std::size_t model, const std::optional<SpareCapacity>& spare);

// The sum of BuilderGpulet::load.
[[nodiscard]] double load_of(const std::vector<BatchSlot>& slots);

// The size (an index) of a new gpulet that needs `wanted` of a device with `free_percent` left in
// `partitions`: `wanted` itself, or the largest that fits where no gpulet could use the rest. Empty
// where the device has no partition or too little share left.
[[nodiscard]] std::optional<std::uint32_t> size_taken(const DeviceClass& device_class,
                                                      int free_percent, std::uint32_t partitions,
                                                      std::uint32_t wanted);

// A builder that starts with the plan in force: its gpulets, each with the rate that is still
// demanded of it. A policy that continues from there makes only the necessary changes, and a gpulet
// that stays costs no new process.
//
// Keeps the current plan's devices, the busiest first, up to the device limit. Leaves out the
// gpulets of `cleared`, those without demand, those that serve nothing under the present rules, and
// those whose device is gone; the others serve what their models demand, as far as they can.
// REQUIRES: context.input().current is not null.
[[nodiscard]] PlanBuilder resume_current_plan(
    PlanContext& context, const std::optional<DeviceKey>& cleared = std::nullopt);

// A device and its gpulets, as values that a search can copy.
struct Portion {
  std::uint32_t model = 0;  // index into PlanContext::models
  double rate = 0;          // requests per second

  friend bool operator==(const Portion&, const Portion&) = default;
};

struct FilledGpulet {
  std::uint32_t size = 0;  // index into the class's sizes
  std::vector<Portion> portions;

  friend bool operator==(const FilledGpulet&, const FilledGpulet&) = default;
};

struct FilledDevice {
  std::uint32_t device_class = 0;
  std::vector<FilledGpulet> gpulets;

  friend bool operator==(const FilledDevice&, const FilledDevice&) = default;
};

// Builds these devices as far as the rules allow. Rates that do not fit where they are described go
// to the gpulets with the largest spare capacity.
[[nodiscard]] PlanBuilder build_from(PlanContext& context,
                                     const std::vector<FilledDevice>& devices);

}  // namespace gpulet::schedule
