// Latency histograms and sums: Histogram and RecentHistogram for percentiles, RecentSums for
// figures of the last minute, DurationSum and BucketHistogram for monitoring systems that compare
// two readings. Pure: callers pass the time. Values; one thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "gpulet/base/time.h"

namespace gpulet::observe {

// Logarithmic buckets with a width of 1/16 of a power of two: percentiles are exact to 6 %.
class Histogram {
 public:
  void record(Duration value);
  void add(const Histogram& other);

  [[nodiscard]] std::uint64_t count() const { return count_; }
  // The upper bound of the bucket that holds the value which `fraction` of the samples do not
  // exceed; zero without samples. REQUIRES: 0 <= fraction <= 1.
  [[nodiscard]] Duration percentile(double fraction) const;

 private:
  // One bucket per microsecond below 16 us; above, 16 buckets per power of two up to 2^40 us.
  static constexpr std::size_t kBuckets = 16 + 16 * 37;
  [[nodiscard]] static std::size_t bucket_of(std::uint64_t microseconds);
  [[nodiscard]] static std::uint64_t upper_bound_us(std::size_t bucket);

  std::array<std::uint32_t, kBuckets> buckets_{};
  std::uint64_t count_ = 0;
};

// The samples of the last one to two windows.
class RecentHistogram {
 public:
  explicit RecentHistogram(Duration window) : window_(window) {}

  void record(Duration value, Time now);
  [[nodiscard]] Histogram recent(Time now) const;

 private:
  void rotate(Time now);

  Duration window_;
  Time started_{};
  Histogram current_;
  Histogram previous_;
};

// Sums of several figures over the last minute, in slices of ten seconds. The current slice counts
// in full, so a sum over n slices covers between n-1 and n of them.
template <std::size_t kFigures>
class RecentSums {
 public:
  using Sums = std::array<std::uint64_t, kFigures>;

  static constexpr Duration kSlice = std::chrono::seconds(10);
  static constexpr std::size_t kSlices = 6;

  void add(std::size_t figure, std::uint64_t amount, Time now) {
    const std::int64_t number = number_of(now);
    Slice& slice = slices_[static_cast<std::size_t>(number) % kSlices];
    if (slice.number != number) slice = {number, {}};
    slice.sums[figure] += amount;
  }

  // The sums over the current slice and the `slices` - 1 before it. REQUIRES: 1 <= slices <=
  // kSlices.
  [[nodiscard]] Sums last(Time now, std::size_t slices = kSlices) const {
    const std::int64_t newest = number_of(now);
    const std::int64_t oldest = newest - static_cast<std::int64_t>(slices) + 1;
    Sums sums{};
    for (const Slice& slice : slices_) {
      if (slice.number < oldest || slice.number > newest) continue;
      for (std::size_t figure = 0; figure < kFigures; ++figure) sums[figure] += slice.sums[figure];
    }
    return sums;
  }

 private:
  struct Slice {
    std::int64_t number = -1;  // time since the epoch in slices; -1: empty
    Sums sums{};
  };
  [[nodiscard]] static std::int64_t number_of(Time time) {
    return time.time_since_epoch() / kSlice;
  }

  std::array<Slice, kSlices> slices_{};
};

// Number and sum of durations; negative ones count as zero. The sum is a double: exact for the
// first hundred days of durations, and it cannot overflow.
class DurationSum {
 public:
  void add(Duration value) {
    nanoseconds_ += static_cast<double>(std::max(Duration::zero(), value).count());
    ++count_;
  }

  [[nodiscard]] std::uint64_t count() const { return count_; }
  [[nodiscard]] std::uint64_t nanoseconds() const {
    return static_cast<std::uint64_t>(nanoseconds_);
  }
  [[nodiscard]] double microseconds() const { return nanoseconds_ / 1e3; }
  [[nodiscard]] double seconds() const { return nanoseconds_ / 1e9; }

  friend bool operator==(const DurationSum&, const DurationSum&) = default;

 private:
  double nanoseconds_ = 0;
  std::uint64_t count_ = 0;
};

// A histogram that only grows, with fixed buckets from 0.5 ms to 33 s, each twice as wide as the
// one before. Recording costs a few nanoseconds.
class BucketHistogram {
 public:
  static constexpr std::size_t kBounds = 17;
  // The inclusive upper bound of a bucket. REQUIRES: bucket < kBounds.
  [[nodiscard]] static constexpr Duration bound(std::size_t bucket) {
    return Duration(kFirst << bucket);
  }

  void record(Duration value) {
    ++counts_[bucket_of(value)];
    sum_.add(value);
  }

  [[nodiscard]] std::uint64_t count() const { return sum_.count(); }
  [[nodiscard]] const DurationSum& sum() const { return sum_; }
  // For each bound, the number of values that do not exceed it.
  [[nodiscard]] std::array<std::uint64_t, kBounds> cumulative() const {
    std::array<std::uint64_t, kBounds> cumulated{};
    std::uint64_t below = 0;
    for (std::size_t i = 0; i < kBounds; ++i) cumulated[i] = below += counts_[i];
    return cumulated;
  }

  friend bool operator==(const BucketHistogram&, const BucketHistogram&) = default;

 private:
  static constexpr std::int64_t kFirst = 500'000;  // nanoseconds

  [[nodiscard]] static std::size_t bucket_of(Duration value) {
    const std::int64_t steps = (std::max<std::int64_t>(1, value.count()) - 1) / kFirst;
    return std::min<std::size_t>(
        kBounds, static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(steps))));
  }

  std::array<std::uint64_t, kBounds + 1> counts_{};  // the last: values above all bounds
  DurationSum sum_;
};

}  // namespace gpulet::observe
