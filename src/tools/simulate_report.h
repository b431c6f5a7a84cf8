// A simulation's outcome for the terminal, for programs and for plots. Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gpulet/simulate/simulation.h"

namespace gpulet::tools {

// The contract's JSON document (docs/simulator.md). It holds nothing that differs from run to run.
[[nodiscard]] std::string simulation_json(const simulate::Outcome& outcome,
                                          std::string_view policy);

// A table of the models, then what the plans did.
[[nodiscard]] std::string simulation_text(const simulate::Outcome& outcome,
                                          std::string_view policy);

// A CSV of the series: time_s,devices,share_percent,offered,violations, then for every model
// "NAME offered" and "NAME violations".
[[nodiscard]] std::string series_csv(const simulate::Outcome& outcome);

}  // namespace gpulet::tools
