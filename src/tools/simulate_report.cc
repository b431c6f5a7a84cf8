#include "tools/simulate_report.h"

#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "tools/model_figures.h"
#include "tools/table.h"

namespace gpulet::tools {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kMovesShown = 10;

std::uint64_t sum(const std::vector<std::uint64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

ordered_json control_json(const simulate::ControlOutcome& control) {
  return {{"periods", control.periods},
          {"violated_periods", control.violated_periods},
          {"on_gpu", control.on_gpu},
          {"on_cpu", control.on_cpu},
          {"core_seconds", control.core_seconds}};
}

// Of models whose executables are controlled; empty without any.
std::string control_text(const simulate::Outcome& outcome) {
  Table table({{"model", Table::Align::left},
               {"mean ms"},
               {"most ms"},
               {"on GPU"},
               {"core seconds"},
               {"seconds above SLO"}});
  bool any = false;
  for (const simulate::ModelOutcome& model : outcome.models) {
    if (!model.control) continue;
    any = true;
    const auto answered = static_cast<double>(model.control->on_gpu + model.control->on_cpu);
    const double on_gpu =
        answered > 0 ? 100 * static_cast<double>(model.control->on_gpu) / answered : 0;
    table.add_row({model.name, fixed(model.mean_ms, 1), fixed(model.most_ms, 1),
                   fixed(on_gpu, 1) + " %", fixed(model.control->core_seconds, 0),
                   std::to_string(model.control->violated_periods) + " of " +
                       std::to_string(model.control->periods)});
  }
  return any ? table.to_string() + '\n' : std::string();
}

}  // namespace

std::string simulation_json(const simulate::Outcome& outcome, std::string_view policy) {
  ordered_json models = ordered_json::array();
  for (const simulate::ModelOutcome& model : outcome.models) {
    ordered_json row;
    add_counts(figures_of(model), &row);
    add_latencies(figures_of(model), &row);
    row["mean_ms"] = model.mean_ms;
    row["most_ms"] = model.most_ms;
    row["deviation_ms"] = model.deviation_ms;
    if (model.control) row["control"] = control_json(*model.control);
    models.push_back(std::move(row));
  }
  ordered_json unserved = ordered_json::array();
  for (const schedule::Unserved& one : outcome.unserved) {
    unserved.push_back({{"model", one.model}, {"rate", one.rate}});
  }
  ordered_json moves = ordered_json::array();
  for (const simulate::Reorganisation& move : outcome.reorganisations) {
    moves.push_back({{"time_s", move.time_s},
                     {"devices", move.devices},
                     {"gpulets", move.gpulets},
                     {"share_percent", move.share_percent}});
  }
  const ordered_json document = {{"policy", policy},
                                 {"models", models},
                                 {"devices_used", outcome.devices_used},
                                 {"devices_mean", outcome.devices_mean},
                                 {"violation", outcome.violation},
                                 {"schedulable", outcome.schedulable},
                                 {"unserved", unserved},
                                 {"requests", outcome.requests},
                                 {"events", outcome.events},
                                 {"plans", outcome.plans},
                                 {"reorganisations", moves}};
  return document.dump(2) + '\n';
}

std::string simulation_text(const simulate::Outcome& outcome, std::string_view policy) {
  Table table(figures_columns());
  for (const simulate::ModelOutcome& model : outcome.models) {
    table.add_row(figures_cells(figures_of(model)));
  }
  std::string text = table.to_string() + '\n' + control_text(outcome);
  text += "violation of all together: " + fixed(100 * outcome.violation, 3) + " %\n";
  text += std::string(policy) + ": at most " + std::to_string(outcome.devices_used) +
          " devices at a time, " + fixed(outcome.devices_mean, 2) + " in the mean; " +
          std::to_string(outcome.plans) + " plans made\n";
  for (const schedule::Unserved& one : outcome.unserved) {
    text += "no place in the first plan: " + one.model + ", " + shortest(one.rate, 2) +
            " requests/s: " + one.reason + '\n';
  }
  std::size_t shown = 0;
  for (const simulate::Reorganisation& move : outcome.reorganisations) {
    if (++shown > kMovesShown) {
      text += "and " + std::to_string(outcome.reorganisations.size() - kMovesShown) +
              " more (--json, --series)\n";
      break;
    }
    text += "from " + fixed(move.time_s, 1) + " s: " + std::to_string(move.gpulets) +
            " gpulets on " + std::to_string(move.devices) + " devices, " +
            std::to_string(move.share_percent) + " % in all\n";
  }
  return text;
}

std::string series_csv(const simulate::Outcome& outcome) {
  std::string text = "time_s,devices,share_percent,offered,violations";
  for (const simulate::ModelOutcome& model : outcome.models) {
    text += ',' + model.name + " offered," + model.name + " violations";
  }
  for (const simulate::ModelOutcome& model : outcome.models) {
    text += ',' + model.name + " batch planned," + model.name + " batch run";
  }
  for (const simulate::ModelOutcome& model : outcome.models) {
    text += ',' + model.name + " response_ms";
    if (model.control) text += ',' + model.name + " cores";
  }
  text += '\n';
  for (const simulate::SeriesRow& row : outcome.series) {
    text += shortest(row.start_s, 3) + ',' + shortest(row.devices, 4) + ',' +
            shortest(row.share_percent, 3) + ',' + std::to_string(sum(row.offered)) + ',' +
            std::to_string(sum(row.violations));
    for (std::size_t model = 0; model < row.offered.size(); ++model) {
      text +=
          ',' + std::to_string(row.offered[model]) + ',' + std::to_string(row.violations[model]);
    }
    for (std::size_t model = 0; model < row.batch_planned.size(); ++model) {
      text += ',' + shortest(row.batch_planned[model], 3) + ',' + shortest(row.batch_run[model], 3);
    }
    for (std::size_t model = 0; model < row.response_ms.size(); ++model) {
      text += ',' + shortest(row.response_ms[model], 3);
      if (outcome.models[model].control) text += ',' + shortest(row.cores[model], 3);
    }
    text += '\n';
  }
  return text;
}

}  // namespace gpulet::tools
