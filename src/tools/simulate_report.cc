#include "tools/simulate_report.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "tools/table.h"

namespace gpulet::tools {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kMovesShown = 10;

ordered_json or_null(const std::optional<double>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

double or_nan(const std::optional<double>& value) {
  return value.value_or(std::numeric_limits<double>::quiet_NaN());
}

std::uint64_t sum(const std::vector<std::uint64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

}  // namespace

std::string simulation_json(const simulate::Outcome& outcome, std::string_view policy) {
  ordered_json models = ordered_json::array();
  for (const simulate::ModelOutcome& model : outcome.models) {
    models.push_back({{"name", model.name},
                      {"offered", model.offered},
                      {"served", model.served},
                      {"dropped", model.dropped},
                      {"late", model.late},
                      {"errors", model.errors},
                      {"p50_ms", or_null(model.p50_ms)},
                      {"p99_ms", or_null(model.p99_ms)},
                      {"slo_ms", model.slo_ms},
                      {"violation", model.violation}});
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
  Table table({{"model", Table::Align::left},
               {"offered"},
               {"served"},
               {"dropped"},
               {"late"},
               {"errors"},
               {"p50 ms"},
               {"p99 ms"},
               {"SLO ms"},
               {"violation %"}});
  for (const simulate::ModelOutcome& model : outcome.models) {
    table.add_row({model.name, std::to_string(model.offered), std::to_string(model.served),
                   std::to_string(model.dropped), std::to_string(model.late),
                   std::to_string(model.errors), fixed(or_nan(model.p50_ms), 1),
                   fixed(or_nan(model.p99_ms), 1), shortest(model.slo_ms, 1),
                   fixed(100 * model.violation, 2)});
  }
  std::string text = table.to_string() + '\n';
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
  text += '\n';
  for (const simulate::SeriesRow& row : outcome.series) {
    text += shortest(row.start_s, 3) + ',' + shortest(row.devices, 4) + ',' +
            shortest(row.share_percent, 3) + ',' + std::to_string(sum(row.offered)) + ',' +
            std::to_string(sum(row.violations));
    for (std::size_t model = 0; model < row.offered.size(); ++model) {
      text +=
          ',' + std::to_string(row.offered[model]) + ',' + std::to_string(row.violations[model]);
    }
    text += '\n';
  }
  return text;
}

}  // namespace gpulet::tools
