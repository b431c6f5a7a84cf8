// Traces: their files, and the arrivals that they describe.
#include <cstddef>
#include <limits>
#include <utility>

#include "gpulet/config/cluster_config.h"
#include "gpulet/config/readers.h"

namespace gpulet::config {
namespace {

constexpr double kLatestRowSeconds = 1e7;  // four months, far from an overflow of nanoseconds
constexpr double kHighestTraceRate = 1e9;  // per second: one per nanosecond
constexpr std::uint32_t kMostArrivals = 1U << 20U;
constexpr double kNeverSeconds = std::numeric_limits<double>::infinity();

template <typename Entry>
void append_in_order(CsvReader& reader, std::vector<Entry>& entries, const Entry& entry) {
  if (!entries.empty() && entry.at_s < entries.back().at_s) {
    reader.fail(
        "time_s goes back from " + to_text(entries.back().at_s) + " to " + to_text(entry.at_s),
        "sort each model's rows by time_s");
  }
  entries.push_back(entry);
}

Result<Trace> read_rows(CsvReader reader) {
  const std::vector<std::size_t> columns = reader.require_columns({"time_s", "model"});
  const std::optional<std::size_t> rate = reader.find_column("rate");
  const std::optional<std::size_t> count = reader.find_column("count");
  if (rate && count) {
    reader.fail("the columns 'rate' and 'count' exclude each other",
                "keep 'count' for requests that arrive at given times, 'rate' for random ones");
  }
  Trace trace;
  while (reader.status().ok() && reader.next()) {
    const double at_s = reader.number(columns[0], between(0, kLatestRowSeconds));
    const std::string model = reader.name(columns[1]);
    if (rate) {
      const double per_second = reader.number(*rate, between(0, kHighestTraceRate));
      append_in_order(reader, trace.rates[model], RateStep{at_s, per_second});
    } else {
      const std::uint32_t requests = count ? reader.count(*count, 0, kMostArrivals) : 1;
      append_in_order(reader, trace.arrivals[model], Arrival{at_s, requests});
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
  GPULET_TRY(CsvReader reader, CsvReader::read_file(file));
  return read_rows(std::move(reader));
}

Result<Trace> parse_trace(std::string text, std::string file_name) {
  GPULET_TRY(CsvReader reader, CsvReader::parse(std::move(text), std::move(file_name)));
  return read_rows(std::move(reader));
}

Trace scaled_trace(Trace trace, double speed, double rate) {
  for (auto& [name, arrivals] : trace.arrivals) {
    for (Arrival& arrival : arrivals) arrival.at_s /= speed;
  }
  for (auto& [name, steps] : trace.rates) {
    for (RateStep& step : steps) step = {step.at_s / speed, step.rate * rate};
  }
  return trace;
}

TraceArrivals::TraceArrivals(const Trace& trace, const std::string& target, double rate,
                             std::uint64_t seed, double share)
    : random_(seed), steps_{{0, rate}}, given_(!trace.arrivals.empty()) {
  if (const auto found = trace.rates.find(target); found != trace.rates.end())
    steps_.insert(steps_.end(), found->second.begin(), found->second.end());
  for (RateStep& step : steps_) step.rate *= share;
  if (const auto found = trace.arrivals.find(target); found != trace.arrivals.end())
    arrivals_ = &found->second;
}

double TraceArrivals::next_s() {
  at_s_ = given_ ? next_given_s() : next_random_s();
  return at_s_;
}

double TraceArrivals::next_random_s() {
  while (true) {
    const double rate = steps_[step_].rate;
    const bool last = step_ + 1 == steps_.size();
    double changes_s = kNeverSeconds;
    if (!last) changes_s = steps_[step_ + 1].at_s;
    double next_s = kNeverSeconds;
    if (rate > 0) next_s = at_s_ + random_.exponential(1 / rate);
    // Exponential gaps are memoryless, so they may restart when the rate changes.
    if (next_s < changes_s || last) return next_s;
    at_s_ = changes_s;
    ++step_;
  }
}

double TraceArrivals::next_given_s() {
  if (arrivals_ == nullptr) return kNeverSeconds;
  while (position_ < arrivals_->size() && taken_ >= (*arrivals_)[position_].count) {
    ++position_;
    taken_ = 0;
  }
  if (position_ == arrivals_->size()) return kNeverSeconds;
  ++taken_;
  return (*arrivals_)[position_].at_s;
}

}  // namespace gpulet::config
