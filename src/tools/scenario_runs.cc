#include "tools/scenario_runs.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "gpulet/core/random.h"
#include "tools/on_threads.h"
#include "tools/table.h"

namespace gpulet::tools {
namespace {

using nlohmann::ordered_json;

constexpr double kTolerated = 0.01;  // violations; the objective is 99 % within the SLO

ScenarioRow row_of(const simulate::Outcome& outcome) {
  ScenarioRow row;
  row.schedulable = outcome.schedulable;
  row.violation = outcome.violation;
  row.devices = outcome.devices_used;
  row.requests = outcome.requests;
  for (const simulate::ModelOutcome& model : outcome.models) {
    if (model.violation <= row.worst) continue;
    row.worst = model.violation;
    row.worst_model = model.name;
  }
  return row;
}

struct Summary {
  std::size_t schedulable = 0;
  std::size_t over = 0;             // rows with more violations than tolerated, of all together
  std::size_t with_model_over = 0;  // rows with such a model
};

Summary summarise(const std::vector<ScenarioRow>& rows) {
  Summary summary;
  for (const ScenarioRow& row : rows) {
    summary.schedulable += row.schedulable ? 1 : 0;
    summary.over += row.violation > kTolerated ? 1 : 0;
    summary.with_model_over += row.worst > kTolerated ? 1 : 0;
  }
  return summary;
}

}  // namespace

std::uint64_t scenario_seed(std::uint64_t run_seed, std::size_t row) {
  return stream_seed(run_seed, "row " + std::to_string(row));
}

Result<std::vector<ScenarioRow>> run_scenarios(
    const simulate::Knowledge& knowledge, const simulate::Scene& scene,
    const std::vector<std::vector<schedule::ModelDemand>>& rows,
    const simulate::SimulationOptions& options, unsigned jobs) {
  std::vector<std::optional<Result<simulate::Outcome>>> outcomes(rows.size());
  on_threads(jobs, rows.size(), [&](std::size_t i) {
    simulate::Scene of_row = scene;
    of_row.demands = rows[i];
    simulate::SimulationOptions of_run = options;
    of_run.seed = scenario_seed(options.seed, i + 1);
    of_run.keep_plan = true;
    of_run.only_schedulable = true;
    outcomes[i] = simulate::simulate(knowledge, of_row, of_run);
  });
  std::vector<ScenarioRow> done;
  for (const auto& outcome : outcomes) {
    if (!outcome->ok()) {
      return outcome->status().within("row " + std::to_string(done.size() + 1));
    }
    done.push_back(row_of(outcome->value()));
  }
  return done;
}

std::string scenarios_json(const std::vector<ScenarioRow>& rows, const std::string& policy) {
  const Summary summary = summarise(rows);
  ordered_json list = ordered_json::array();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const ScenarioRow& row = rows[i];
    ordered_json one = {{"row", i + 1}, {"schedulable", row.schedulable}};
    if (row.schedulable) {
      one["violation"] = row.violation;
      one["worst"] = row.worst;
      one["worst_model"] = row.worst_model;
      one["devices"] = row.devices;
      one["requests"] = row.requests;
    }
    list.push_back(std::move(one));
  }
  const ordered_json document = {{"policy", policy},
                                 {"scenarios", rows.size()},
                                 {"schedulable", summary.schedulable},
                                 {"over_1_percent", summary.over},
                                 {"model_over_1_percent", summary.with_model_over},
                                 {"rows", std::move(list)}};
  return document.dump(2) + '\n';
}

std::string scenarios_text(const std::vector<ScenarioRow>& rows, const std::string& policy) {
  const Summary summary = summarise(rows);
  std::string text = policy + ": " + std::to_string(summary.schedulable) + " of " +
                     std::to_string(rows.size()) + " scenarios are schedulable; of these, " +
                     std::to_string(summary.over) + " exceed 1 % violations, and " +
                     std::to_string(summary.with_model_over) + " do for some model\n";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].worst <= kTolerated) continue;
    text += "row " + std::to_string(i + 1) + ": " + fixed(100 * rows[i].violation, 2) +
            " %, worst " + rows[i].worst_model + " " + fixed(100 * rows[i].worst, 2) + " %\n";
  }
  return text;
}

}  // namespace gpulet::tools
