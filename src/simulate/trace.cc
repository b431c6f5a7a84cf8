#include <optional>
#include <utility>

#include "gpulet/config/readers.h"
#include "gpulet/simulate/simulation.h"

namespace gpulet::simulate {
namespace {

using config::CsvReader;

constexpr double kLongest_s = 1e7;    // four months, far from an overflow of nanoseconds
constexpr double kHighestRate = 1e9;  // per second: one per nanosecond
constexpr std::uint32_t kMaxCount = 1U << 20U;

template <typename Entry>
void append(CsvReader& reader, std::vector<Entry>& entries, const Entry& entry) {
  if (!entries.empty() && entry.at_s < entries.back().at_s) {
    reader.fail("time_s goes back from " + config::to_text(entries.back().at_s) + " to " +
                    config::to_text(entry.at_s),
                "sort each model's rows by time_s");
  }
  entries.push_back(entry);
}

Result<Trace> read(CsvReader reader) {
  const std::vector<std::size_t> columns = reader.require_columns({"time_s", "model"});
  const std::optional<std::size_t> rate = reader.find_column("rate");
  const std::optional<std::size_t> count = reader.find_column("count");
  if (rate && count) {
    reader.fail("the columns 'rate' and 'count' exclude each other",
                "keep 'count' for requests that arrive at given times, 'rate' for random ones");
  }
  Trace trace;
  while (reader.status().ok() && reader.next()) {
    const double at_s = reader.number(columns[0], config::between(0, kLongest_s));
    const std::string model = reader.name(columns[1]);
    if (rate) {
      const double per_second = reader.number(*rate, config::between(0, kHighestRate));
      append(reader, trace.rates[model], RateStep{at_s, per_second});
    } else {
      const std::uint32_t requests = count ? reader.count(*count, 0, kMaxCount) : 1;
      append(reader, trace.arrivals[model], Arrival{at_s, requests});
    }
  }
  if (reader.status().ok() && trace.rates.empty() && trace.arrivals.empty()) {
    reader.fail("the trace has no rows", "add a row for each request or rate change");
  }
  if (!reader.status().ok()) return reader.status();
  return trace;
}

}  // namespace

Result<Trace> read_trace(const std::filesystem::path& file) {
  Result<CsvReader> reader = CsvReader::read_file(file);
  if (!reader.ok()) return reader.status();
  return read(std::move(reader).value());
}

Result<Trace> parse_trace(std::string text, std::string file_name) {
  Result<CsvReader> reader = CsvReader::parse(std::move(text), std::move(file_name));
  if (!reader.ok()) return reader.status();
  return read(std::move(reader).value());
}

}  // namespace gpulet::simulate
