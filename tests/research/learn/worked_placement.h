// A task of two device types and three models, and a policy for it with random weights.
#pragma once

#include <cstdint>

#include "research/learn/learned_policy.h"
#include "tests/schedule/worked.h"

namespace gpulet::learn::testing {

// n0 has two fast devices, n1 a slow one without a profile of `large`. Rates 400, 100 and 20.
[[nodiscard]] schedule::testing::Worked worked_placement();

// REQUIRES: task_of(input) is ok.
[[nodiscard]] LearnedPolicy drawn_policy(const schedule::PlanInput& input, std::uint64_t seed);

}  // namespace gpulet::learn::testing
