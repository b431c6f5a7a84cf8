// InSS's batch decision for a whole placement, which gives a plan: every model gets its largest
// batch (schedule/batch_planner.h). Where the placement in force still serves every rate with other
// batches, nothing else has to change (section 5.5, case 1: keep_placement). Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gpulet/schedule/policy.h"

namespace gpulet::schedule {
class PlanContext;
}

namespace gpulet::research {

// A model in a gpulet of its own.
struct ModelPlacement {
  std::uint32_t model = 0;   // index into PlanInput::demands
  std::uint32_t device = 0;  // index into PlanInput::cluster.devices
  Share size;

  friend bool operator==(const ModelPlacement&, const ModelPlacement&) = default;
};

// The batch decision for any number of placements of one input. Caches intermediate results between
// calls. One thread at a time.
class BatchSearch {
 public:
  // REQUIRES: validate(input) is ok; `input` outlives the object.
  explicit BatchSearch(const schedule::PlanInput& input);
  ~BatchSearch();
  BatchSearch(const BatchSearch&) = delete;
  BatchSearch& operator=(const BatchSearch&) = delete;

  // Returns a plan that passes check() for any placement, with an empty `policy`. A model without a
  // placement is unserved, and so is the part of its rate that its gpulet cannot serve. Ignores a
  // placement that breaks a rule: on a device outside the cluster, under MIG or beyond max_devices,
  // of an unlisted size, beyond the device's share, partitions or memory, or the second one of a
  // model. Where placements exclude each other, the first by device, descending size and model name
  // wins, whatever the order of `placements`.
  [[nodiscard]] schedule::Plan decide(std::span<const ModelPlacement> placements);

 private:
  std::unique_ptr<schedule::PlanContext> context_;
  // Indices into the context by index into the input; empty without a rate, or outside the cluster.
  std::vector<std::optional<std::uint32_t>> model_of_demand_;
  std::vector<std::optional<std::uint32_t>> device_of_input_;
};

// Section 5.5, case 1: serves the demand with the gpulets of input.current, each on its device,
// with its size and its models, but with other batches. Divides rates as they are divided now;
// where a gpulet is too small for its part, the other gpulets of the model serve more, as far as
// they can. Drops gpulets whose models have no demand. Returns a plan that serves everything and
// passes check(), with an empty `policy`; nothing where there is none (case 2) or no plan in force.
// REQUIRES: validate(input) is ok.
[[nodiscard]] std::optional<schedule::Plan> keep_placement(const schedule::PlanInput& input);

}  // namespace gpulet::research
