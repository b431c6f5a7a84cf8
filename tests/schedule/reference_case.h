// The reference case: measured latencies of five models, four devices, 1023 rate vectors. The
// measurements are not part of this repository.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>
#include <vector>

#include "gpulet/profile/interference.h"
#include "tests/schedule/worked.h"

namespace gpulet::schedule::testing {

// Rates are {0, 200, 400, 600}^5 times a scale; the first, all zeros, is left out.
inline constexpr int kScenarios = 1024;

// The folder where the measurements are expected.
[[nodiscard]] std::filesystem::path reference_measurements();

// Margin 1, no headroom; every SLO twice the latency of 32 on a whole device. Rates are 0. A model
// of interference is fitted first. Throws where the measurements are not there.
[[nodiscard]] Worked reference_case(
    profile::InterferenceKind interference = profile::InterferenceKind::none);

// The rates of a scenario, 1 up to kScenarios - 1.
void set_scenario(Worked& worked, int scenario, double scale);

// Pairs of scenarios of which the heavier one (no rate lower, one higher) is schedulable and the
// lighter one is not. `schedulable` starts with scenario 1.
[[nodiscard]] std::size_t count_non_monotonic(const std::vector<bool>& schedulable);

}  // namespace gpulet::schedule::testing
