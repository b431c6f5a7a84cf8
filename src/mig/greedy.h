// The greedy algorithm over devices without places. Pure; any thread.
#pragma once

#include <vector>

#include "mig/problem.h"

namespace gpulet::mig {

[[nodiscard]] std::vector<Mix> greedy_mixes(const Problem& problem);

}  // namespace gpulet::mig
