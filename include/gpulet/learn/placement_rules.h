// What a learned placement sees of a PlanInput, and which of its choices the rules of a plan leave
// open (InSS, section 5.2). One head for each model of the task, in its order; choice 0 leaves the
// model out, the others are the sizes of the devices, device by device. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "gpulet/learn/choices.h"
#include "gpulet/learn/placement_task.h"
#include "gpulet/schedule/batch_search.h"

namespace gpulet::learn {

// Used memory of each device by the plan in force, as a part of the device's (of what all models
// need, where the device does not tell its own); then each model's rate, as a part of its highest;
// then its requests that wait, as a part of what arrives at the highest rate within the SLO.
// REQUIRES: fits(task, input).
[[nodiscard]] std::vector<float> observe(const PlacementTask& task,
                                         const schedule::PlanInput& input);

// Closed: a model that nobody asks for may only be left out, and one that has a place left must
// take it; sizes at which not even one request meets the objective; devices that are absent, full,
// in as many partitions as they take, out of memory, or beyond options.max_devices. Where some of
// what is open leaves room for the models of the heads that follow, be it their least, so is only
// that; and where some of it holds the observed rate without neighbours, only that, else what holds
// most.
class PlacementRules final : public ChoiceRules {
 public:
  // REQUIRES: fits(task, input). Both outlive it.
  PlacementRules(const PlacementTask& task, const schedule::PlanInput& input);

  [[nodiscard]] std::span<const std::uint32_t> head_sizes() const override { return head_sizes_; }
  void allow(std::span<const float> observation, std::size_t head,
             std::span<const std::uint32_t> chosen_before,
             std::span<std::uint8_t> allowed) const override;

  // The choices as places of the input's models on the input's devices.
  [[nodiscard]] std::vector<schedule::ModelPlace> places_of(
      std::span<const std::uint32_t> choices) const;

 private:
  struct Place {
    std::size_t device = 0;  // of the task
    Share size;
  };
  struct Room;
  [[nodiscard]] Room room_after(std::span<const std::uint32_t> chosen) const;
  [[nodiscard]] bool has_room(const Room& room, std::size_t model, std::size_t place) const;
  void take(Room& room, std::size_t model, std::size_t place) const;
  // Whether the models of the heads after `head` that are asked for still fit with their least.
  [[nodiscard]] bool leaves_room(Room room, std::span<const float> observation,
                                 std::size_t head) const;
  void measure_capacities();
  [[nodiscard]] double capacity(std::size_t model, std::size_t place) const {
    return capacities_[model * places_.size() + place];
  }

  const PlacementTask& task_;
  const schedule::PlanInput& input_;
  std::vector<Place> places_;                            // of choice 1, 2, ...
  std::vector<std::optional<std::uint32_t>> device_of_;  // the task's devices, in the input
  std::vector<std::optional<std::uint32_t>> demand_of_;  // the task's models that are wanted
  std::vector<std::vector<double>> memory_mb_;           // [device of the task][model]
  std::vector<double> capacities_;  // [model * places + place]: requests per second alone there
  std::vector<std::uint32_t> head_sizes_;
};

}  // namespace gpulet::learn
