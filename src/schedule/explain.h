// Why a rate has no place, in words and numbers, with the mend. Pure.
#pragma once

#include <cstddef>
#include <string>

#include "schedule/problem.h"

namespace gpulet::schedule {

// `unserved` of the model's rate has no place in a plan that uses `devices_used` devices.
[[nodiscard]] std::string explain_unserved(const Problem& problem, std::size_t model,
                                           double unserved, std::size_t devices_used);

}  // namespace gpulet::schedule
