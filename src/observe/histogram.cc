#include "gpulet/observe/histogram.h"

#include <cmath>

namespace gpulet::observe {

std::size_t Histogram::bucket_of(std::uint64_t microseconds) {
  if (microseconds < 16) return static_cast<std::size_t>(microseconds);
  const auto exponent = static_cast<std::size_t>(std::bit_width(microseconds) - 5);  // 16..31 -> 0
  const auto mantissa = static_cast<std::size_t>(microseconds >> exponent) - 16;
  return std::min(kBuckets - 1, 16 + 16 * exponent + mantissa);
}

std::uint64_t Histogram::upper_bound_us(std::size_t bucket) {
  if (bucket < 16) return bucket;
  const std::size_t exponent = (bucket - 16) / 16;
  const std::size_t mantissa = (bucket - 16) % 16;
  return ((static_cast<std::uint64_t>(mantissa) + 17) << exponent) - 1;
}

void Histogram::record(Duration value) {
  const auto microseconds = std::chrono::duration_cast<std::chrono::microseconds>(value).count();
  ++buckets_[bucket_of(static_cast<std::uint64_t>(std::max<std::int64_t>(0, microseconds)))];
  ++count_;
}

void Histogram::add(const Histogram& other) {
  for (std::size_t i = 0; i < kBuckets; ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
}

Duration Histogram::percentile(double fraction) const {
  if (count_ == 0) return Duration::zero();
  const auto rank = std::max<std::uint64_t>(
      1, static_cast<std::uint64_t>(std::ceil(fraction * static_cast<double>(count_))));
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < kBuckets; ++i) {
    seen += buckets_[i];
    if (seen >= rank) return std::chrono::microseconds(upper_bound_us(i));
  }
  return std::chrono::microseconds(upper_bound_us(kBuckets - 1));
}

void RecentHistogram::rotate(Time now) {
  if (now - started_ < window_) return;
  // After two windows without samples both are stale.
  previous_ = now - started_ < 2 * window_ ? current_ : Histogram();
  current_ = {};
  started_ = now;
}

void RecentHistogram::record(Duration value, Time now) {
  rotate(now);
  current_.record(value);
}

Histogram RecentHistogram::recent(Time now) const {
  Histogram merged;
  if (now - started_ < 2 * window_) merged.add(current_);
  if (now - started_ < window_) merged.add(previous_);
  return merged;
}

}  // namespace gpulet::observe
