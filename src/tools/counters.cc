#include "tools/counters.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <vector>

namespace gpulet::tools {
namespace {

// ncu quotes every field, and doubles quotes within one.
std::vector<std::string> fields_of(std::string_view line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char letter = line[i];
    if (letter == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
      fields.back() += line[++i];
    } else if (letter == '"') {
      quoted = !quoted;
    } else if (letter == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += letter;
    }
  }
  return fields;
}

// "1,234.5" is a number, too; "n/a" is none.
std::optional<double> number_in(std::string text) {
  text.erase(std::remove(text.begin(), text.end(), ','), text.end());
  double value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = read.ec == std::errc() && read.ptr == text.data() + text.size();
  if (!whole || !std::isfinite(value) || value < 0) return std::nullopt;
  return value;
}

struct Columns {
  std::size_t l2 = 0;
  std::size_t dram = 0;
  std::size_t duration = 0;
};

std::optional<Columns> columns_of(const std::vector<std::string>& header) {
  const auto find = [&header](std::string_view name) {
    return static_cast<std::size_t>(std::find(header.begin(), header.end(), name) - header.begin());
  };
  const Columns columns{find(kL2Metric), find(kDramMetric), find(kDurationMetric)};
  const std::size_t last = std::max({columns.l2, columns.dram, columns.duration});
  return last < header.size() ? std::optional(columns) : std::nullopt;
}

struct Sums {
  double l2 = 0;  // percent times duration
  double dram = 0;
  double duration = 0;

  void add(const std::vector<std::string>& row, const Columns& columns) {
    if (row.size() <= std::max({columns.l2, columns.dram, columns.duration})) return;
    const auto l2_percent = number_in(row[columns.l2]);
    const auto dram_percent = number_in(row[columns.dram]);
    const auto took = number_in(row[columns.duration]);
    if (!l2_percent || !dram_percent || !took) return;  // the row of units is one such
    l2 += *l2_percent * *took;
    dram += *dram_percent * *took;
    duration += *took;
  }
};

Status no_kernel(std::string_view text, std::string_view last) {
  if (text.find("ERR_NVGPUCTRPERM") != std::string_view::npos) {
    return {StatusCode::unavailable,
            "ncu may not read this GPU's counters (ERR_NVGPUCTRPERM): run as root, or have the "
            "administrator load the driver with NVreg_RestrictProfilingToAdminUsers=0"};
  }
  return {StatusCode::malformed,
          "ncu measured no kernel; it said: " + std::string(last.empty() ? "nothing" : last)};
}

}  // namespace

Result<Counters> parse_counters(std::string_view text) {
  std::optional<Columns> columns;
  Sums sums;
  std::string_view last;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) last = line;
    if (!line.starts_with('"')) continue;
    const std::vector<std::string> fields = fields_of(line);
    if (columns) {
      sums.add(fields, *columns);
    } else {
      columns = columns_of(fields);
    }
  }
  if (sums.duration <= 0) return no_kernel(text, last);
  const auto fraction = [&sums](double sum) { return std::min(1.0, sum / sums.duration / 100); };
  return Counters{fraction(sums.l2), fraction(sums.dram)};
}

}  // namespace gpulet::tools
