// The least slowdown that any neighbour can cause: what the relaxation knows of interference.
// Refers to the PlanContext. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "schedule/plan_context.h"

namespace gpulet::schedule {

class LeastSlowdowns {
 public:
  // The time that all calls of by_batch take, in units of some four seconds: up to 1; 0 where there
  // is no interference, or would be more to look at.
  [[nodiscard]] static double effort(const PlanContext& context, std::uint32_t device_class);

  // Collects the batches of all models on the class. `context` outlives the object.
  LeastSlowdowns(const PlanContext& context, std::uint32_t device_class);

  // [batch - 1], for every batch of the model's curve alone: at most the slowdown by any batch of
  // any demanded model in any size that fits beside that one. 1 where the class does not interfere,
  // and where there are too many batches to look at.
  [[nodiscard]] std::vector<double> by_batch(std::uint32_t model, std::uint32_t size) const;

 private:
  // The batches in the sizes that fit beside that one, which are the smallest.
  [[nodiscard]] std::span<const profile::BatchTraits> beside(std::uint32_t size) const;

  const PlanContext* context_;
  std::uint32_t device_class_;
  std::vector<profile::BatchTraits> batches_;  // of all models, by size; empty: 1
  std::vector<std::size_t> ends_;              // of each size in batches_
};

}  // namespace gpulet::schedule
