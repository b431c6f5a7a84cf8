// The measurements of a load driver and their summary.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "gpulet/base/time.h"

namespace gpulet::bench {

struct DriveResult {
  std::uint64_t replies = 0;
  std::uint64_t failures = 0;  // replies that are errors; among `replies`
  double replies_per_second = 0;
  double bytes_per_second = 0;  // of requests that were answered
  Duration p50{};               // from the write of a request to the end of its reply's header
  Duration p99{};
};

// One line.
[[nodiscard]] std::string to_json(const DriveResult& result);
// On standard output. With `hold` it returns once standard input has ended: until then the caller's
// connections are open, and their counters can be read.
void print(const DriveResult& result, bool hold);
inline constexpr const char* kHoldHelp =
    "after the result, keep the connections open until standard input ends";

class Record {
 public:
  using Clock = std::chrono::steady_clock;

  // Ignores replies before that time.
  explicit Record(Clock::time_point measured_from);

  void add(Clock::time_point asked, std::size_t request_bytes, bool ok);
  // Adds what another thread measured.
  void merge(const Record& other);
  [[nodiscard]] DriveResult summary(Duration measured);

 private:
  const Clock::time_point measured_from_;
  std::vector<Duration> latencies_;
  std::uint64_t failures_ = 0;
  std::uint64_t request_bytes_ = 0;
};

}  // namespace gpulet::bench
