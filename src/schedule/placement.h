// Which real device each device of a draft becomes. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/draft.h"

namespace gpulet::schedule {

// Beside draft.devices(): indices into Problem::devices, each at most once, of the same class;
// meaningless for draft devices without partitions.
//
// Devices of one class are alike, so a plan may swap them. With a plan in force a draft device goes
// to the real one that has the same gpulets already (size and models), else to one that has its
// largest such gpulet; what is left goes to free devices by key. Near linear in the number of
// gpulets: no pairwise comparison.
[[nodiscard]] std::vector<std::uint32_t> place(const Draft& draft);

}  // namespace gpulet::schedule
