// Random inputs for property tests: profiles with gaps and noise, clusters of several device types,
// any demand.
#pragma once

#include <cstdint>

#include "tests/schedule/worked.h"

namespace gpulet::schedule::testing {

// A valid input that depends on the arguments only. `size` limits the number of models and devices.
[[nodiscard]] Worked generated(std::uint64_t seed, std::uint32_t size);

// A random input inside a rapidcheck property; logs its seed.
[[nodiscard]] Worked any_input();

// The same with devices of all kinds in one cluster: some that MIG divides, and some CPUs.
[[nodiscard]] Worked any_mixed_input();

}  // namespace gpulet::schedule::testing
