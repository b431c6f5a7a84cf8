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
  Duration p50{};  // from handing a request to the kernel's queue to the end of its reply's head
  Duration p99{};
};

// One line.
[[nodiscard]] std::string to_json(const DriveResult& result);

class Record {
 public:
  using Clock = std::chrono::steady_clock;

  // Replies before that time are not measured.
  explicit Record(Clock::time_point measured_from);

  void add(Clock::time_point asked, std::size_t request_bytes, bool ok);
  [[nodiscard]] DriveResult summary(Duration measured);

 private:
  const Clock::time_point measured_from_;
  std::vector<Duration> latencies_;
  std::uint64_t failures_ = 0;
  std::uint64_t request_bytes_ = 0;
};

}  // namespace gpulet::bench
