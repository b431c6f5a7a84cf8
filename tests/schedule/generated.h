// Inputs at random for property tests: profiles with holes and noise, clusters of several device
// types, any demand.
#pragma once

#include <cstdint>

#include "tests/schedule/worked.h"

namespace gpulet::schedule::testing {

// The same input for the same seed, always valid. `size` bounds how many models and devices there
// are.
[[nodiscard]] Worked generated(std::uint64_t seed, std::uint32_t size);

// Such an input of a rapidcheck property, with its seed in the property's log.
[[nodiscard]] Worked any_input();

}  // namespace gpulet::schedule::testing
