#include "tools/load_report.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "tools/model_figures.h"
#include "tools/table.h"

namespace gpulet::tools {
namespace {

using nlohmann::ordered_json;

// A sender that is late by more than this part of the tightest SLO blurs what it measures.
constexpr double kTolerableLag = 0.1;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

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
  const ModelFigures figures = figures_of(row);
  ordered_json json;
  add_counts(figures, &json);
  json["unsent"] = row.unsent;
  add_latencies(figures, &json);
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
  std::vector<Table::Column> columns = figures_columns();
  if (labelled) columns.push_back({"accuracy"});
  Table table(columns);
  for (const load::ModelRow& row : rows) {
    std::vector<std::string> cells = figures_cells(figures_of(row));
    if (labelled) cells.push_back(fixed(row.accuracy.value_or(kNone), 4));
    table.add_row(std::move(cells));
  }
  return table.to_string();
}

std::string sender_text(const load::LoadReport& report) {
  if (!report.sender_lag.p99_ms) return {};
  std::string text = "sent behind schedule: p99 " + fixed(*report.sender_lag.p99_ms, 2) +
                     " ms, at most " + fixed(report.sender_lag.max_ms.value_or(kNone), 2) + " ms\n";
  double tightest_ms = std::numeric_limits<double>::infinity();
  for (const load::ModelRow& row : report.models) tightest_ms = std::min(tightest_ms, row.slo_ms);
  if (*report.sender_lag.p99_ms > kTolerableLag * tightest_ms) {
    text +=
        "the generator itself was too slow to be believed: lower the rates or run it on a machine "
        "of its own\n";
  }
  return text;
}

std::string milliseconds(Duration duration) { return fixed(to_ms(duration), 3); }
std::string seconds(Time time) { return fixed(to_seconds(time.time_since_epoch()), 6); }

}  // namespace

std::string load_json(const load::LoadReport& report) {
  ordered_json models = ordered_json::array();
  for (const load::ModelRow& row : report.models) models.push_back(row_json(row));
  const ordered_json document = {
      {"models", models},
      {"violation", violation(report)},
      {"elapsed_s", to_seconds(report.elapsed)},
      {"sender_lag_ms",
       {{"p99", or_null(report.sender_lag.p99_ms)}, {"max", or_null(report.sender_lag.max_ms)}}},
      {"outstanding_limit_hit", report.outstanding_limit_hit},
      {"connections_lost", report.connections_lost},
      {"unexpected_replies", report.unexpected_replies}};
  return document.dump(2) + '\n';
}

std::string load_text(const load::LoadReport& report) {
  std::string text = models_table(report.models) + '\n';
  text += "violation of all together: " + fixed(100 * violation(report), 2) + " %\n";
  text += sender_text(report);
  for (const load::ModelRow& row : report.models) {
    for (const auto& [code, reason] : row.reasons) {
      text += row.name + ": " + std::to_string(reason.count) + " times " +
              std::string(to_string(code)) + ", first: " + reason.first_message + '\n';
    }
  }
  if (report.connections_lost > 0)
    text += "connections lost: " + std::to_string(report.connections_lost) + '\n';
  if (report.unexpected_replies > 0) {
    text +=
        "answers to nothing that was asked: " + std::to_string(report.unexpected_replies) + '\n';
  }
  return text;
}

std::string request_csv_header() {
  return "model,intended_s,sent_s,latency_ms,status,batch_size,queued_ms,executed_ms\n";
}

std::string request_csv_line(const std::string& model, const load::RequestRecord& record) {
  return model + ',' + seconds(record.intended) + ',' + (record.sent ? seconds(*record.sent) : "") +
         ',' + milliseconds(record.latency()) + ',' + std::string(to_string(record.status.code())) +
         ',' + std::to_string(record.batch_size) + ',' + milliseconds(record.queued) + ',' +
         milliseconds(record.executed) + '\n';
}

}  // namespace gpulet::tools
