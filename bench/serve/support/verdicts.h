// Compares a bench's figures with its aims: one line each on standard output, and the exit code.
#pragma once

#include <cstdarg>
#include <string>

#include "bench/serve/support/traffic.h"

namespace gpulet::bench {

class Verdicts {
 public:
  // `figure`: text with the measured value and the aim.
  void hold(bool met, const std::string& figure);
  [[nodiscard]] int exit_code() const { return missed_ == 0 ? 0 : 1; }

 private:
  int missed_ = 0;
};

// As printf, into a string.
[[nodiscard]] std::string text(const char* format, ...) __attribute__((format(printf, 1, 2)));

// The fates of the requests that were due from `from` until `until`.
struct Outcome {
  std::uint64_t offered = 0;
  std::uint64_t served = 0;
  std::uint64_t late = 0;  // of the served
  std::uint64_t dropped = 0;
  std::uint64_t errors = 0;  // all other fates
  double p50_ms = 0;         // of the served
  double p99_ms = 0;
  double seconds = 0;

  [[nodiscard]] std::uint64_t good() const { return served - late; }
  [[nodiscard]] double goodput() const { return static_cast<double>(good()) / seconds; }
  [[nodiscard]] std::uint64_t violations() const { return late + dropped + errors; }
  [[nodiscard]] double violation() const {
    return offered == 0 ? 0 : static_cast<double>(violations()) / static_cast<double>(offered);
  }
};

inline constexpr std::uint32_t kAllStreams = 0xffffffffU;

[[nodiscard]] Outcome outcome_of(const std::vector<Stream>& streams, const TrafficResult& result,
                                 Duration from, Duration until, std::uint32_t stream = kAllStreams);

}  // namespace gpulet::bench
