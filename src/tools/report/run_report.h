// The results of load runs and simulations as tables, JSON documents and CSV. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/load/client.h"
#include "gpulet/simulate/simulation.h"
#include "tools/report/load_series.h"

namespace gpulet::tools {

// The JSON document of a load run: {"models":[{"name","offered","served","dropped","late","errors",
// "p50_ms","p99_ms","slo_ms","violation","accuracy"}],"violation",...}. Percentiles are null if no
// request was served; "accuracy" is present if the inputs have labels. With a series (may be null)
// also {"period_s","series":[...]}.
[[nodiscard]] std::string load_json(const load::LoadReport& report,
                                    const LoadSeries* series = nullptr);

// A table of the models, the reasons of failures, whether the generator kept up, and the periods of
// the series with violations.
[[nodiscard]] std::string load_text(const load::LoadReport& report,
                                    const LoadSeries* series = nullptr);

// The CSV of all requests of a load run: the header, and the line of one request.
[[nodiscard]] std::string request_csv_header();
[[nodiscard]] std::string request_csv_line(const std::string& model,
                                           const load::RequestRecord& record);

// The JSON document of a simulation (docs/simulator.md). The same input gives the same document.
[[nodiscard]] std::string simulation_json(const simulate::Outcome& outcome,
                                          std::string_view policy);

// A table of the models and applications, then the plans and reorganisations.
[[nodiscard]] std::string simulation_text(const simulate::Outcome& outcome,
                                          std::string_view policy);

// The series as CSV: time_s,devices,share_percent,offered,violations, then columns per model
// and application.
[[nodiscard]] std::string series_csv(const simulate::Outcome& outcome);

// The result of simulating one row of demands.
struct ScenarioRow {
  bool schedulable = false;
  double violation = 0;  // over all requests; 0 if not schedulable
  double worst = 0;      // of the model or application with the most violations
  std::string worst_model;
  std::uint32_t devices = 0;
  std::uint64_t requests = 0;
};

// {"scenarios":N,"schedulable":M,"over_1_percent":K,"rows":[{"row":1,"schedulable":true,...}]}
[[nodiscard]] std::string scenarios_json(const std::vector<ScenarioRow>& rows,
                                         const std::string& policy);
[[nodiscard]] std::string scenarios_text(const std::vector<ScenarioRow>& rows,
                                         const std::string& policy);

}  // namespace gpulet::tools
