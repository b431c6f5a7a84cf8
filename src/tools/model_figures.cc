#include "tools/model_figures.h"

#include <limits>
#include <nlohmann/json.hpp>

namespace gpulet::tools {
namespace {

double or_nan(const std::optional<double>& value) {
  return value.value_or(std::numeric_limits<double>::quiet_NaN());
}

}  // namespace

nlohmann::ordered_json or_null(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

void add_counts(const ModelFigures& figures, nlohmann::ordered_json* row) {
  (*row)["name"] = figures.name;
  (*row)["offered"] = figures.offered;
  (*row)["served"] = figures.served;
  (*row)["dropped"] = figures.dropped;
  (*row)["late"] = figures.late;
  (*row)["errors"] = figures.errors;
}

void add_latencies(const ModelFigures& figures, nlohmann::ordered_json* row) {
  (*row)["p50_ms"] = or_null(figures.p50_ms);
  (*row)["p99_ms"] = or_null(figures.p99_ms);
  (*row)["slo_ms"] = figures.slo_ms;
  (*row)["violation"] = figures.violation;
}

std::vector<Table::Column> figures_columns() {
  return {{"model", Table::Align::left},
          {"offered"},
          {"served"},
          {"dropped"},
          {"late"},
          {"errors"},
          {"p50 ms"},
          {"p99 ms"},
          {"SLO ms"},
          {"violation %"}};
}

std::vector<std::string> figures_cells(const ModelFigures& figures) {
  return {figures.name,
          std::to_string(figures.offered),
          std::to_string(figures.served),
          std::to_string(figures.dropped),
          std::to_string(figures.late),
          std::to_string(figures.errors),
          fixed(or_nan(figures.p50_ms), 1),
          fixed(or_nan(figures.p99_ms), 1),
          shortest(figures.slo_ms, 1),
          fixed(100 * figures.violation, 2)};
}

}  // namespace gpulet::tools
