#include "bench/net/record.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace gpulet::bench {
namespace {

constexpr double kMicrosecondsPerMillisecond = 1000;

Duration percentile(std::vector<Duration>& values, double fraction) {
  if (values.empty()) return {};
  const auto at = values.begin() +
                  static_cast<std::ptrdiff_t>(fraction * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

}  // namespace

std::string to_json(const DriveResult& result) {
  std::array<char, 256> line{};
  std::snprintf(line.data(), line.size(),
                "{\"replies\":%llu,\"failures\":%llu,\"requests_per_s\":%.0f,"
                "\"megabytes_per_s\":%.1f,\"p50_us\":%.1f,\"p99_us\":%.1f}",
                static_cast<unsigned long long>(result.replies),
                static_cast<unsigned long long>(result.failures), result.replies_per_second,
                result.bytes_per_second / 1e6, to_ms(result.p50) * kMicrosecondsPerMillisecond,
                to_ms(result.p99) * kMicrosecondsPerMillisecond);
  return line.data();
}

void print(const DriveResult& result, bool hold) {
  std::printf("%s\n", to_json(result).c_str());
  std::fflush(stdout);
  while (hold && std::getchar() != EOF) {
  }
}

Record::Record(Clock::time_point measured_from) : measured_from_(measured_from) {
  latencies_.reserve(1U << 22U);
}

void Record::add(Clock::time_point asked, std::size_t request_bytes, bool ok) {
  const Clock::time_point now = Clock::now();
  if (now < measured_from_) return;
  latencies_.push_back(now - asked);
  request_bytes_ += request_bytes;
  if (!ok) ++failures_;
}

void Record::merge(const Record& other) {
  latencies_.insert(latencies_.end(), other.latencies_.begin(), other.latencies_.end());
  request_bytes_ += other.request_bytes_;
  failures_ += other.failures_;
}

DriveResult Record::summary(Duration measured) {
  DriveResult result;
  result.replies = latencies_.size();
  result.failures = failures_;
  result.replies_per_second = static_cast<double>(result.replies) / to_seconds(measured);
  result.bytes_per_second = static_cast<double>(request_bytes_) / to_seconds(measured);
  result.p50 = percentile(latencies_, 0.50);
  result.p99 = percentile(latencies_, 0.99);
  return result;
}

}  // namespace gpulet::bench
