#include "tools/report/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <utility>

#include "gpulet/base/text.h"
#include "tools/report/format.h"

namespace gpulet::tools {
namespace {

using nlohmann::ordered_json;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

ordered_json or_null(const std::optional<double>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

// The functions below report what load::ModelRow and simulate::ModelOutcome have in common.

template <typename Model>
ordered_json counts_json(const Model& model) {
  return {{"name", model.name},       {"offered", model.offered}, {"served", model.served},
          {"dropped", model.dropped}, {"late", model.late},       {"errors", model.errors}};
}

template <typename Model>
void add_latencies(const Model& model, ordered_json& json) {
  json["p50_ms"] = or_null(model.p50_ms);
  json["p99_ms"] = or_null(model.p99_ms);
  json["slo_ms"] = model.slo_ms;
  json["violation"] = model.violation;
}

Table result_table(bool labelled) {
  std::vector<std::string> figures{"offered", "served", "dropped", "late",       "errors",
                                   "p50 ms",  "p99 ms", "SLO ms",  "violation %"};
  if (labelled) figures.emplace_back("accuracy");
  return Table::of({"model"}, figures);
}

template <typename Model>
std::vector<std::string> result_cells(const Model& model) {
  return {model.name,
          std::to_string(model.offered),
          std::to_string(model.served),
          std::to_string(model.dropped),
          std::to_string(model.late),
          std::to_string(model.errors),
          fixed(model.p50_ms.value_or(kNone), 1),
          fixed(model.p99_ms.value_or(kNone), 1),
          shortest(model.slo_ms, 1),
          fixed(100 * model.violation, 2)};
}

// ---- load runs

// A generator that is late by more than this part of the tightest SLO distorts the results.
constexpr double kTolerableLag = 0.1;

double violation(const load::LoadReport& report) {
  load::ModelRow sum;
  for (const load::ModelRow& row : report.models) {
    sum.offered += row.offered;
    sum.dropped += row.dropped;
    sum.late += row.late;
    sum.errors += row.errors;
  }
  return load::violation_of(sum.late, sum.dropped, sum.errors, sum.offered);
}

ordered_json row_json(const load::ModelRow& row) {
  ordered_json json = counts_json(row);
  json["unsent"] = row.unsent;
  add_latencies(row, json);
  if (row.accuracy) json["accuracy"] = *row.accuracy;
  json["reasons"] = ordered_json::array();
  for (const auto& [code, reason] : row.reasons) {
    json["reasons"].push_back({{"code", to_string(code)},
                               {"count", reason.count},
                               {"first_message", reason.first_message}});
  }
  return json;
}

std::string models_table(const std::vector<load::ModelRow>& rows) {
  const bool labelled = std::any_of(rows.begin(), rows.end(),
                                    [](const auto& row) { return row.accuracy.has_value(); });
  Table table = result_table(labelled);
  for (const load::ModelRow& row : rows) {
    std::vector<std::string> cells = result_cells(row);
    if (labelled) cells.push_back(fixed(row.accuracy.value_or(kNone), 4));
    table.add_row(std::move(cells));
  }
  return table.to_string();
}

std::string sender_text(const load::LoadReport& report) {
  if (!report.sender_lag.p99_ms) return {};
  std::string text = fmt::format("sent behind schedule: p99 {} ms, at most {} ms\n",
                                 fixed(*report.sender_lag.p99_ms, 2),
                                 fixed(report.sender_lag.max_ms.value_or(kNone), 2));
  double tightest_ms = std::numeric_limits<double>::infinity();
  for (const load::ModelRow& row : report.models) tightest_ms = std::min(tightest_ms, row.slo_ms);
  if (*report.sender_lag.p99_ms > kTolerableLag * tightest_ms) {
    text +=
        "the generator was too slow, so the latencies are not reliable: lower the rates or run it "
        "on another machine\n";
  }
  return text;
}

std::string milliseconds(Duration duration) { return fixed(to_ms(duration), 3); }
std::string seconds(Time time) { return fixed(to_seconds(time.time_since_epoch()), 6); }

// ---- simulations

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

ordered_json outcomes_json(const std::vector<simulate::ModelOutcome>& outcomes) {
  ordered_json rows = ordered_json::array();
  for (const simulate::ModelOutcome& one : outcomes) {
    ordered_json row = counts_json(one);
    add_latencies(one, row);
    row["mean_ms"] = one.mean_ms;
    row["most_ms"] = one.most_ms;
    row["deviation_ms"] = one.deviation_ms;
    if (one.control) row["control"] = control_json(*one.control);
    rows.push_back(std::move(row));
  }
  return rows;
}

// The table of the models with controlled instances; empty if there are none.
std::string control_text(const simulate::Outcome& outcome) {
  Table table =
      Table::of({"model"}, {"mean ms", "most ms", "on GPU", "core seconds", "seconds above SLO"});
  bool any = false;
  for (const simulate::ModelOutcome& model : outcome.models) {
    if (!model.control) continue;
    any = true;
    const auto answered = static_cast<double>(model.control->on_gpu + model.control->on_cpu);
    const double on_gpu =
        answered > 0 ? 100 * static_cast<double>(model.control->on_gpu) / answered : 0;
    table.add_row(
        {model.name, fixed(model.mean_ms, 1), fixed(model.most_ms, 1), fixed(on_gpu, 1) + " %",
         fixed(model.control->core_seconds, 0),
         fmt::format("{} of {}", model.control->violated_periods, model.control->periods)});
  }
  return any ? table.to_string() + '\n' : std::string();
}

// ---- scenarios

constexpr double kTolerated = 0.01;  // the objective is 99 % of requests within the SLO

struct Summary {
  std::size_t schedulable = 0;
  std::size_t over = 0;             // rows with more violations than tolerated in total
  std::size_t with_model_over = 0;  // rows in which some model has more
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

std::string load_json(const load::LoadReport& report, const LoadSeries* series) {
  ordered_json models = ordered_json::array();
  for (const load::ModelRow& row : report.models) models.push_back(row_json(row));
  ordered_json document = {
      {"models", models},
      {"violation", violation(report)},
      {"elapsed_s", to_seconds(report.elapsed)},
      {"threads", report.threads},
      {"sender_lag_ms",
       {{"p99", or_null(report.sender_lag.p99_ms)}, {"max", or_null(report.sender_lag.max_ms)}}},
      {"outstanding_limit_hit", report.outstanding_limit_hit},
      {"connections_lost", report.connections_lost},
      {"unexpected_replies", report.unexpected_replies}};
  if (series != nullptr) {
    document["period_s"] = series->period_s();
    document["series"] = series->json();
  }
  return json_page(document);
}

std::string load_text(const load::LoadReport& report, const LoadSeries* series) {
  std::string text =
      fmt::format("{}\nviolation of all together: {} %\n{}", models_table(report.models),
                  fixed(100 * violation(report), 2), sender_text(report));
  for (const load::ModelRow& row : report.models) {
    for (const auto& [code, reason] : row.reasons) {
      text += fmt::format("{}: {} times {}, first: {}\n", row.name, reason.count, to_string(code),
                          reason.first_message);
    }
  }
  if (report.connections_lost > 0)
    text += fmt::format("connections lost: {}\n", report.connections_lost);
  if (report.unexpected_replies > 0)
    text += fmt::format("responses without a request: {}\n", report.unexpected_replies);
  if (series != nullptr) text += series->text();
  return text;
}

std::string request_csv_header() {
  return "model,intended_s,sent_s,latency_ms,status,batch_size,queued_ms,executed_ms\n";
}

std::string request_csv_line(const std::string& model, const load::RequestRecord& record) {
  return fmt::format("{},{},{},{},{},{},{},{}\n", model, seconds(record.intended),
                     record.sent ? seconds(*record.sent) : "", milliseconds(record.latency()),
                     to_string(record.status.code()), record.batch_size,
                     milliseconds(record.queued), milliseconds(record.executed));
}

std::string simulation_json(const simulate::Outcome& outcome, std::string_view policy) {
  ordered_json unserved = ordered_json::array();
  for (const schedule::Unserved& one : outcome.first_plan.unserved)
    unserved.push_back({{"model", one.model}, {"rate", one.rate}});
  ordered_json moves = ordered_json::array();
  for (const simulate::Reorganisation& move : outcome.reorganisations) {
    moves.push_back({{"time_s", move.time_s},
                     {"devices", move.devices},
                     {"gpulets", move.gpulets},
                     {"share_percent", move.share_percent}});
  }
  const ordered_json document = {{"policy", policy},
                                 {"models", outcomes_json(outcome.models)},
                                 {"applications", outcomes_json(outcome.applications)},
                                 {"devices_used", outcome.devices_used},
                                 {"devices_mean", outcome.devices_mean},
                                 {"core_seconds", outcome.core_seconds},
                                 {"core_seconds_busy", outcome.core_seconds_busy},
                                 {"violation", outcome.violation},
                                 {"schedulable", outcome.first_plan.schedulable()},
                                 {"unserved", unserved},
                                 {"mean_batch", outcome.mean_batch},
                                 {"requests", outcome.requests},
                                 {"events", outcome.events},
                                 {"plans", outcome.plans},
                                 {"reorganisations", moves}};
  return json_page(document);
}

std::string simulation_text(const simulate::Outcome& outcome, std::string_view policy) {
  Table table = result_table(false);
  for (const simulate::ModelOutcome& model : outcome.models) table.add_row(result_cells(model));
  for (const simulate::ModelOutcome& one : outcome.applications) table.add_row(result_cells(one));
  std::string text = fmt::format(
      "{}\n{}violation of all together: {} %\n"
      "{}: at most {} devices at a time, {} on average; {} plans made\n",
      table.to_string(), control_text(outcome), fixed(100 * outcome.violation, 3), policy,
      outcome.devices_used, fixed(outcome.devices_mean, 2), outcome.plans);
  for (const schedule::Unserved& one : outcome.first_plan.unserved) {
    text += fmt::format("not in the first plan: {}, {} requests/s: {}\n", one.model,
                        shortest(one.rate, 2), one.reason);
  }
  std::size_t shown = 0;
  for (const simulate::Reorganisation& move : outcome.reorganisations) {
    if (++shown > kMovesShown) {
      text += fmt::format("and {} more (--json, --series)\n",
                          outcome.reorganisations.size() - kMovesShown);
      break;
    }
    text += fmt::format("from {} s: {} gpulets on {} devices, {} % in all\n", fixed(move.time_s, 1),
                        move.gpulets, move.devices, move.share_percent);
  }
  return text;
}

std::string series_csv(const simulate::Outcome& outcome) {
  std::string text = "time_s,devices,share_percent,offered,violations";
  for (const simulate::ModelOutcome& model : outcome.models)
    text += fmt::format(",{0} offered,{0} violations", model.name);
  for (const simulate::ModelOutcome& one : outcome.applications)
    text += fmt::format(",{0} offered,{0} violations", one.name);
  for (const simulate::ModelOutcome& model : outcome.models)
    text += fmt::format(",{0} batch planned,{0} batch run,{0} batch rate", model.name);
  for (const simulate::ModelOutcome& model : outcome.models) {
    text += ',' + model.name + " response_ms";
    if (model.control) text += ',' + model.name + " cores";
  }
  for (const simulate::ModelOutcome& one : outcome.applications)
    text += ',' + one.name + " response_ms";
  text += '\n';
  for (const simulate::SeriesRow& row : outcome.series) {
    text += fmt::format("{},{},{},{},{}", shortest(row.start_s, 3), shortest(row.devices, 4),
                        shortest(row.share_percent, 3), sum(row.offered), sum(row.violations));
    for (std::size_t target = 0; target < row.offered.size(); ++target)
      text += fmt::format(",{},{}", row.offered[target], row.violations[target]);
    for (std::size_t model = 0; model < row.batch_planned.size(); ++model)
      text += fmt::format(",{},{},{}", shortest(row.batch_planned[model], 3),
                          shortest(row.batch_run[model], 3), shortest(row.batch_rate[model], 3));
    for (std::size_t model = 0; model < row.response_ms.size(); ++model) {
      text += ',' + shortest(row.response_ms[model], 3);
      if (model < outcome.models.size() && outcome.models[model].control)
        text += ',' + shortest(row.cores[model], 3);
    }
    text += '\n';
  }
  return text;
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
  return json_page(document);
}

std::string scenarios_text(const std::vector<ScenarioRow>& rows, const std::string& policy) {
  const Summary summary = summarise(rows);
  std::string text = fmt::format(
      "{}: {} of {} scenarios are schedulable; of these, {} exceed 1 % violations, and {} do for "
      "some model\n",
      policy, summary.schedulable, rows.size(), summary.over, summary.with_model_over);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].worst <= kTolerated) continue;
    text += fmt::format("row {}: {} %, worst {} {} %\n", i + 1, fixed(100 * rows[i].violation, 2),
                        rows[i].worst_model, fixed(100 * rows[i].worst, 2));
  }
  return text;
}

}  // namespace gpulet::tools
