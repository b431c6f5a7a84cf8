// What the algorithms of gpulet's authors share, as printed (elastic_published.cc) and as shipped
// (elastic_shipped.cc): the arithmetic of section 2.2 of the paper (ATC 2022), and devices of at
// most two gpulets, each with a duty cycle and a batch of every model.
//
// A gpulet is slowed down by the batches that its neighbour has at that moment. So a plan made of
// these devices may break rules of schedule/check.h that this project's own policies keep
// (Policy::has_own_timing). Pure; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "gpulet/profile/interference.h"
#include "gpulet/schedule/plan.h"
#include "schedule/plan_context.h"

namespace gpulet::research {

struct RoundSlot {
  std::uint32_t model = 0;  // index into PlanContext::models
  std::uint32_t batch = 0;
  double rate = 0;      // requests per second that the gpulet takes
  double slowdown = 1;  // by the neighbour, when the batch was chosen
};

struct RoundGpulet {
  std::uint32_t size = 0;  // index into the class's sizes
  double duty_cycle_ms = 0;
  bool saturated = false;          // by its only model: its batches run back to back
  std::vector<RoundSlot> slots{};  // empty: the gpulet is free

  [[nodiscard]] bool is_free() const { return slots.empty(); }
};

// A gpulet as a model sees it that runs there.
struct RoundPlace {
  std::uint32_t device_class = 0;  // index into PlanContext::classes
  std::uint32_t size = 0;          // index into the class's sizes
  const RoundGpulet* beside = nullptr;
};

// The rounds of a model that has a gpulet to itself.
struct OwnRounds {
  std::uint32_t batch = 0;
  double duty_cycle_ms = 0;
  double rate = 0;  // requests per second, at most as many as asked for
  bool saturated = false;
};

class RoundTimes {
 public:
  // `context` outlives the object.
  explicit RoundTimes(const schedule::PlanContext& context);

  [[nodiscard]] const schedule::PlanContext& context() const { return *context_; }
  // The largest batch that the SLO allows alone on the device; 0: none.
  [[nodiscard]] std::uint32_t max_batch(std::size_t model, const RoundPlace& place) const;
  // REQUIRES for all: batch <= max_batch().
  [[nodiscard]] double alone_ms(std::size_t model, std::uint32_t batch,
                                const RoundPlace& place) const;
  // How many times longer the batch takes beside the neighbour's present batches: the worst of
  // them.
  [[nodiscard]] double slowdown(std::size_t model, std::uint32_t batch, const RoundPlace& place);
  [[nodiscard]] double latency_ms(std::size_t model, std::uint32_t batch, const RoundPlace& place) {
    return alone_ms(model, batch, place) * slowdown(model, batch, place);
  }

  // The largest batch of which two take at most the SLO (line 20 of algorithm 1; the duty cycle of
  // a saturated gpulet is its batch's latency); 0: none.
  [[nodiscard]] std::uint32_t saturating_batch(std::size_t model, const RoundPlace& place);
  // The rounds that serve up to `rate`: saturated, or with the largest batch that fills and runs
  // within the SLO. Empty where no batch meets the SLO.
  [[nodiscard]] std::optional<OwnRounds> own_rounds(std::size_t model, double rate,
                                                    const RoundPlace& place);

 private:
  [[nodiscard]] const profile::BatchTraits& traits(std::size_t model, std::uint32_t batch,
                                                   std::uint32_t device_class, std::uint32_t size);

  const schedule::PlanContext* context_;
  std::uint32_t most_batch_ = 0;  // of all models
  std::size_t most_sizes_ = 0;    // of all classes
  // On first use, by class, size, model and batch.
  std::vector<std::optional<profile::BatchTraits>> traits_;
};

// One gpulet of the largest size, or two.
struct RoundDevice {
  std::uint32_t device_class = 0;  // index into PlanContext::classes
  std::vector<RoundGpulet> gpulets;
};

struct GpuletIndex {
  std::size_t device = 0;
  std::size_t gpulet = 0;

  friend bool operator==(const GpuletIndex&, const GpuletIndex&) = default;
};

// A value that a search can copy.
class RoundDevices {
 public:
  // Whole devices, as many as the plan may use, in the order of PlanContext::devices. `context`
  // outlives the object.
  explicit RoundDevices(const schedule::PlanContext& context);
  // These devices, in that order.
  RoundDevices(const schedule::PlanContext& context, std::vector<RoundDevice> devices);

  [[nodiscard]] std::vector<GpuletIndex> all() const;
  [[nodiscard]] std::vector<GpuletIndex> free_gpulets() const;
  [[nodiscard]] const RoundGpulet& at(const GpuletIndex& index) const {
    return devices_[index.device].gpulets[index.gpulet];
  }
  [[nodiscard]] RoundGpulet& at(const GpuletIndex& index) {
    return devices_[index.device].gpulets[index.gpulet];
  }
  [[nodiscard]] std::uint32_t class_of(const GpuletIndex& index) const {
    return devices_[index.device].device_class;
  }
  [[nodiscard]] int percent(const GpuletIndex& index) const {
    return context_->classes()[class_of(index)].sizes[at(index).size];
  }
  // The other gpulet of the device. Null where there is none.
  [[nodiscard]] const RoundGpulet* neighbour(const GpuletIndex& index) const;
  [[nodiscard]] RoundPlace place(const GpuletIndex& index) const {
    return {class_of(index), at(index).size, neighbour(index)};
  }

  // Gives a free gpulet to the model.
  void occupy(const GpuletIndex& index, std::size_t model, const OwnRounds& rounds,
              RoundTimes& times);
  // The gpulet is free afterwards.
  void release(const GpuletIndex& index);

  // Whether the device is one gpulet that can be divided into one of that size and the rest.
  [[nodiscard]] bool can_split(const GpuletIndex& index, std::uint32_t size) const;
  // The gpulet keeps its index and gets that size; the rest is the other one.
  void split(const GpuletIndex& index, std::uint32_t size);
  // Makes devices whole whose gpulets are all free.
  void join_free_devices();

  // Whether the device has memory for one more copy of the model.
  [[nodiscard]] bool memory_fits(std::size_t model, std::size_t device) const;

  // The plan. `unplaced` is parallel to PlanContext::models.
  [[nodiscard]] schedule::Plan plan(const std::vector<double>& unplaced) const;

 private:
  [[nodiscard]] schedule::PlannedGpulet planned(std::size_t device,
                                                const RoundGpulet& gpulet) const;

  const schedule::PlanContext* context_;
  std::vector<RoundDevice> devices_;
};

}  // namespace gpulet::research
