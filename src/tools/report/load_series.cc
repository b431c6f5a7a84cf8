#include "tools/report/load_series.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "tools/report/format.h"

namespace gpulet::tools {
namespace {

using nlohmann::ordered_json;

constexpr double kToleratedInPeriod = 0.01;  // the objective is 99 % of requests within the SLO
constexpr std::size_t kPeriodsShown = 20;

std::string cell(const std::optional<double>& value, int decimals) {
  return value ? shortest(*value, decimals) : std::string();
}

ordered_json known(const std::optional<double>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

}  // namespace

Result<Deployment> deployment_of(std::string_view document) {
  const auto parsed = ordered_json::parse(document, nullptr, /*allow_exceptions=*/false);
  try {
    Deployment found;
    for (const ordered_json& node : parsed.at("nodes")) {
      for (const ordered_json& device : node.at("devices")) {
        bool used = false;
        for (const ordered_json& gpulet : device.at("gpulets")) {
          if (gpulet.at("state") != "ready") continue;
          used = true;
          found.share_percent += gpulet.at("size").get<double>();
        }
        found.devices += used ? 1 : 0;
      }
    }
    return found;
  } catch (const ordered_json::exception& error) {
    return Status(StatusCode::malformed, std::string("the status document: ") + error.what());
  }
}

std::optional<double> LoadSeries::Counts::mean_ms() const {
  if (responses == 0) return std::nullopt;
  return response_ms / static_cast<double>(responses);
}

std::optional<double> LoadSeries::Counts::mean_batch() const {
  if (batches <= 0) return std::nullopt;
  return static_cast<double>(responses) / batches;
}

double LoadSeries::Row::violation() const {
  return offered == 0 ? 0 : static_cast<double>(violations) / static_cast<double>(offered);
}

LoadSeries::LoadSeries(std::vector<Model> models, Duration period, Duration length)
    : models_(std::move(models)), period_(period) {
  const auto rows = static_cast<std::size_t>((length + period - Duration(1)) / period);
  counts_.assign(std::max<std::size_t>(rows, 1), std::vector<Counts>(models_.size()));
  deployed_.resize(counts_.size());
}

std::size_t LoadSeries::row_at(Duration elapsed) const {
  const auto row = static_cast<std::size_t>(std::max(elapsed, Duration{}) / period_);
  return std::min(row, counts_.size() - 1);
}

void LoadSeries::add(const load::RequestRecord& record) {
  Counts& due = counts_[row_at(record.intended.time_since_epoch())][record.model];
  ++due.offered;
  const bool served = record.status.ok();
  if (!served || record.latency() > models_[record.model].slo) ++due.violations;
  if (!served) return;
  Counts& responded = counts_[row_at(record.settled.time_since_epoch())][record.model];
  ++responded.responses;
  responded.response_ms += to_ms(record.latency());
  responded.batches += 1.0 / std::max(record.batch_size, 1U);
}

void LoadSeries::deployed(const Deployment& deployment, Duration elapsed) {
  Deployed& row = deployed_[row_at(elapsed)];
  ++row.samples;
  row.devices += static_cast<double>(deployment.devices);
  row.share_percent += deployment.share_percent;
}

LoadSeries::Row LoadSeries::row(std::size_t index) const {
  Row row;
  row.start_s = static_cast<double>(index) * period_s();
  if (const Deployed& deployed = deployed_[index]; deployed.samples > 0) {
    row.devices = deployed.devices / static_cast<double>(deployed.samples);
    row.share_percent = deployed.share_percent / static_cast<double>(deployed.samples);
  }
  for (const Counts& counts : counts_[index]) {
    row.offered += counts.offered;
    row.violations += counts.violations;
  }
  return row;
}

std::string LoadSeries::csv() const {
  std::string text = "time_s,devices,share_percent,offered,violations";
  for (const Model& model : models_) text += fmt::format(",{0} offered,{0} violations", model.name);
  for (const Model& model : models_) text += fmt::format(",{} batch run", model.name);
  for (const Model& model : models_) text += fmt::format(",{} response_ms", model.name);
  text += '\n';
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    const Row one = row(i);
    text += fmt::format("{},{},{},{},{}", shortest(one.start_s, 3), cell(one.devices, 4),
                        cell(one.share_percent, 3), one.offered, one.violations);
    for (const Counts& model : counts_[i])
      text += fmt::format(",{},{}", model.offered, model.violations);
    for (const Counts& model : counts_[i])
      text += ',' + shortest(model.mean_batch().value_or(0), 3);
    for (const Counts& model : counts_[i]) text += ',' + shortest(model.mean_ms().value_or(0), 3);
    text += '\n';
  }
  return text;
}

ordered_json LoadSeries::json() const {
  ordered_json rows = ordered_json::array();
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    const Row one = row(i);
    ordered_json models = ordered_json::array();
    for (std::size_t model = 0; model < models_.size(); ++model) {
      const Counts& counts = counts_[i][model];
      models.push_back({{"name", models_[model].name},
                        {"offered", counts.offered},
                        {"violations", counts.violations},
                        {"batch_run", known(counts.mean_batch())},
                        {"response_ms", known(counts.mean_ms())}});
    }
    rows.push_back({{"time_s", one.start_s},
                    {"devices", known(one.devices)},
                    {"share_percent", known(one.share_percent)},
                    {"offered", one.offered},
                    {"violations", one.violations},
                    {"models", std::move(models)}});
  }
  return rows;
}

std::string LoadSeries::text() const {
  Table table = Table::of({}, {"from s", "devices", "shares %", "offered", "violations", "%"});
  std::size_t over = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    const Row one = row(i);
    if (one.violation() <= kToleratedInPeriod || ++over > kPeriodsShown) continue;
    const double none = std::numeric_limits<double>::quiet_NaN();
    table.add_row({shortest(one.start_s, 1), fixed(one.devices.value_or(none), 2),
                   fixed(one.share_percent.value_or(none), 0), std::to_string(one.offered),
                   std::to_string(one.violations), fixed(100 * one.violation(), 2)});
  }
  std::string text = fmt::format("periods of {} s with more than {} % violations: {} of {}\n",
                                 shortest(period_s(), 3), shortest(100 * kToleratedInPeriod, 1),
                                 over, counts_.size());
  if (over > 0) text += '\n' + table.to_string();
  if (over > kPeriodsShown)
    text += fmt::format("and {} more (--json, --series)\n", over - kPeriodsShown);
  return text;
}

}  // namespace gpulet::tools
