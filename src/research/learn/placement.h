// The task of a learned placement, its observations, and the rules for its choices.
//
// A task holds the devices with their sizes and the models with their objectives. A policy is
// trained for one task and fits no other (InSS, section 5.2). Plain values; pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/schedule/policy.h"
#include "research/batch_search.h"
#include "research/learn/network.h"

namespace gpulet::learn {

struct TaskModel {
  std::string name;
  double slo_ms = 0;
  std::uint32_t max_batch = 0;
  double highest_rate = 0;  // requests per second; observed as 1

  friend bool operator==(const TaskModel&, const TaskModel&) = default;
};

struct PlacementTask {
  std::vector<schedule::Device> devices;  // by key
  // In order of placement: models with the most work first.
  std::vector<TaskModel> models;

  // The used memory of each device, the rate and the queue of each model.
  [[nodiscard]] std::size_t observation_size() const { return devices.size() + 2 * models.size(); }
  // Possibilities of one model: no placement, or one of the sizes of one device.
  [[nodiscard]] std::uint32_t places() const;

  friend bool operator==(const PlacementTask&, const PlacementTask&) = default;
};

// Milliseconds that one request of the model takes on a whole device of the fastest type; 0 if no
// device has a profile of the model.
[[nodiscard]] double least_work_ms(const schedule::PlanInput& input, const std::string& model);

// The task of the input's cluster and demands. The demands' rates are the highest rates. Fails
// (invalid) without devices, on a device divided by MIG, and on a model without a profile or with
// rate 0.
[[nodiscard]] Result<PlacementTask> task_of(const schedule::PlanInput& input);

// Ok if the task covers every device and model of the input. Devices and models of the task may be
// absent from the input. Fails (invalid) with the device or model that is unknown or differs.
[[nodiscard]] Status fits(const PlacementTask& task, const schedule::PlanInput& input);

// The observation of a PlanInput: for each device the memory that the current plan uses, as a
// fraction of the device's memory (of the memory of all models if the device's is unknown); for
// each model its rate as a fraction of its highest rate, and its queued requests as a fraction of
// the arrivals within the SLO at the highest rate. REQUIRES: fits(task, input).
[[nodiscard]] std::vector<float> observe(const PlacementTask& task,
                                         const schedule::PlanInput& input);

// The possibilities that the rules of a plan leave open (InSS, section 5.2). One head for each
// model of the task, in its order; choice 0 leaves the model out, the others are the sizes of the
// devices, device by device.
//
// A model without demand is left out; a model with an open candidate must take one. A candidate is
// ruled out if
//   - one request alone misses the objective at its size;
//   - its device is absent, full, out of partitions or memory, or beyond options.max_devices;
//   - its device is empty, and so is an earlier device that differs in its name alone. Plans that
//     differ in such names are equivalent, and a head, which does not observe the choices of the
//     others, would learn the mean over them;
//   - it leaves no capacity for the smallest candidates of the models that follow, and another
//     candidate does;
//   - it cannot hold the observed rate without neighbours, and another candidate can; if none can,
//     only the candidates with the highest rate remain.
class PlacementRules final : public ChoiceRules {
 public:
  // REQUIRES: fits(task, input). Both outlive it.
  PlacementRules(const PlacementTask& task, const schedule::PlanInput& input);

  [[nodiscard]] std::span<const std::uint32_t> head_sizes() const override { return head_sizes_; }
  void allow(std::span<const float> observation, std::size_t head,
             std::span<const std::uint32_t> chosen_before,
             std::span<std::uint8_t> allowed) const override;

  // The choices as placements of the input's models on the input's devices.
  [[nodiscard]] std::vector<research::ModelPlacement> placements_of(
      std::span<const std::uint32_t> choices) const;

 private:
  struct Candidate {
    std::size_t device = 0;  // index into the task's devices
    Share size;
  };
  // What a model takes of a device; percent 0: it cannot be there.
  struct Need {
    int percent = 0;
    double memory_mb = 0;
  };
  struct Remaining;
  [[nodiscard]] Need need(std::size_t model, std::size_t candidate) const {
    const auto& [device, size] = candidates_[candidate];
    return {size.percent, memory_mb_[device][model]};
  }
  [[nodiscard]] Remaining remaining_after(std::span<const std::uint32_t> chosen) const;
  [[nodiscard]] bool has_room(const Remaining& remaining, std::size_t device,
                              const Need& need) const;
  static void take(Remaining& remaining, std::size_t device, const Need& need);
  // Whether the later models with demand still fit at their smallest candidates. They are taken
  // from `remaining`.
  [[nodiscard]] bool fits_later_models(Remaining& remaining, std::span<const float> observation,
                                       std::size_t head) const;
  void find_equals();
  void measure_capacities();
  void find_smallest();
  [[nodiscard]] double capacity(std::size_t model, std::size_t candidate) const {
    return capacities_[model * candidates_.size() + candidate];
  }

  const PlacementTask& task_;
  const schedule::PlanInput& input_;
  std::vector<Candidate> candidates_;  // of choices 1, 2, ...
  // Indices into the input, by the task's device or model; empty if absent or without demand.
  std::vector<std::optional<std::uint32_t>> device_of_, demand_of_;
  // By the task's device: the last device before it that is equal but for its name.
  std::vector<std::optional<std::size_t>> equal_before_;
  std::vector<std::vector<double>> memory_mb_;  // [device of the task][model]
  std::uint32_t most_devices_;
  // [model * candidates + candidate]: requests per second of the model alone there
  std::vector<double> capacities_;
  // [model * devices + device]: the need of the smallest candidate there with a capacity
  std::vector<Need> smallest_;
  std::vector<std::uint32_t> head_sizes_;
};

}  // namespace gpulet::learn
