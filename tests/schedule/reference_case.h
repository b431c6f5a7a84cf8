// The reference case: measured latencies of five models (profiles/reference-gpu), four devices,
// 1023 rate vectors.
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

// The folder of the measurements.
[[nodiscard]] std::filesystem::path reference_measurements();

// Margin 1, no headroom; every SLO is twice the latency of 32 on a whole device. Rates are 0. Fits
// the interference model first.
[[nodiscard]] Worked reference_case(
    profile::InterferenceKind interference = profile::InterferenceKind::none);

// Sets the coefficient of variation of every cell of the profiles.
void set_spread(Worked& worked, double cv);

// Sets the rates of a scenario in 1..kScenarios - 1.
void set_scenario(Worked& worked, int scenario, double scale);

// Vectors of {0, 100, 200}^9 times a scale; the first is all zeros.
inline constexpr int kScenariosOfNine = 19683;

// Demands nine models of the measurements in place of the five, at no rate.
void demand_nine_models(Worked& worked);

// Sets their rates to those of a scenario in 1..kScenariosOfNine - 1.
void set_scenario_of_nine(Worked& worked, int scenario, double scale);

// Counts pairs of scenarios where the heavier one (no rate lower, one higher) is schedulable and
// the lighter one is not. `schedulable` starts with scenario 1.
[[nodiscard]] std::size_t count_non_monotonic(const std::vector<bool>& schedulable);

}  // namespace gpulet::schedule::testing
