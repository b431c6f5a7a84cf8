// The bound of lower_bound_of_whole_instances() for prices that are known. Pure; any thread.
#pragma once

#include "mig/prices.h"
#include "mig/problem.h"

namespace gpulet::mig {

// In devices; never below the prices' own bound.
[[nodiscard]] double bound_of_whole_instances(const Problem& problem, const Prices& prices);

}  // namespace gpulet::mig
