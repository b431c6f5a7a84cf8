// What a simulation and a load run both say of a model: the same columns in the table, the same
// fields in the JSON document. Pure; any thread.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/table.h"

namespace gpulet::tools {

struct ModelFigures {
  std::string name;
  std::uint64_t offered = 0;
  std::uint64_t served = 0;
  std::uint64_t dropped = 0;
  std::uint64_t late = 0;
  std::uint64_t errors = 0;
  std::optional<double> p50_ms;
  std::optional<double> p99_ms;
  double slo_ms = 0;
  double violation = 0;
};

template <typename Row>
[[nodiscard]] ModelFigures figures_of(const Row& row) {
  return {row.name,   row.offered, row.served, row.dropped, row.late,
          row.errors, row.p50_ms,  row.p99_ms, row.slo_ms,  row.violation};
}

[[nodiscard]] nlohmann::ordered_json or_null(const std::optional<double>& value);

// What became of the requests, and how fast they were answered.
void add_counts(const ModelFigures& figures, nlohmann::ordered_json* row);
void add_latencies(const ModelFigures& figures, nlohmann::ordered_json* row);

[[nodiscard]] std::vector<Table::Column> figures_columns();
[[nodiscard]] std::vector<std::string> figures_cells(const ModelFigures& figures);

}  // namespace gpulet::tools
