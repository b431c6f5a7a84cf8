// Many short simulations, one for each rate vector, on several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gpulet/core/status.h"
#include "gpulet/simulate/simulation.h"

namespace gpulet::tools {

struct ScenarioRow {
  bool schedulable = false;
  double violation = 0;  // of all models together; 0 where not schedulable
  double worst = 0;      // of the worst model
  std::string worst_model;
  std::uint32_t devices = 0;
  std::uint64_t requests = 0;
};

// A row's seed follows from the run's and the row's number, so the result depends on neither the
// threads nor the other rows.
[[nodiscard]] std::uint64_t scenario_seed(std::uint64_t run_seed, std::size_t row);

// Simulates each row of demands in `scene`, its plan kept, where the plan covers it whole. Fails as
// the first row (by number) that fails, naming it, counted from 1. Blocking.
[[nodiscard]] Result<std::vector<ScenarioRow>> run_scenarios(
    const simulate::Knowledge& knowledge, const simulate::Scene& scene,
    const std::vector<std::vector<schedule::ModelDemand>>& rows,
    const simulate::SimulationOptions& options, unsigned jobs);

// {"scenarios":N,"schedulable":M,"over_1_percent":K,"rows":[{"row":1,"schedulable":true,...}]}
[[nodiscard]] std::string scenarios_json(const std::vector<ScenarioRow>& rows,
                                         const std::string& policy);
[[nodiscard]] std::string scenarios_text(const std::vector<ScenarioRow>& rows,
                                         const std::string& policy);

}  // namespace gpulet::tools
