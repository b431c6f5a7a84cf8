// One gpulet of a plan, from the turns that its models take: its duty cycle, batches and latencies
// (round.h). Pure.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "gpulet/schedule/plan.h"
#include "schedule/problem.h"
#include "schedule/round.h"

namespace gpulet::schedule {

// What a gpulet of that size (an index in the class's sizes) does for one model in batches up to
// that one, of those processes that are alike.
[[nodiscard]] Assignment assignment_of(const Problem& problem, std::size_t device_class,
                                       std::size_t size, const Turn& turn, std::uint32_t batch);

// `size` is an index in the class's sizes. Of a gpulet of several processes, one of them: all are
// alike. REQUIRES: the turns have a duty cycle.
[[nodiscard]] PlannedGpulet planned_gpulet(const Problem& problem, std::size_t device_class,
                                           std::size_t size, std::span<const Turn> turns,
                                           const Device& device);

// What differs from the plan in force by rounding alone, because it was reached on another way, is
// what runs already: gpulets of that kind become those of `current`.
void repeat_what_runs(const Plan& current, std::vector<PlannedGpulet>& gpulets);

}  // namespace gpulet::schedule
