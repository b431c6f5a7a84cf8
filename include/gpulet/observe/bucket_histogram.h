// Sums and histograms that only grow, for readers outside who look from time to time: two readings
// differ by what came between. The buckets are fixed, each twice as wide as the one before, from
// 0.5 ms to 33 s. To record costs a few nanoseconds. Pure values; one thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "gpulet/core/time.h"

namespace gpulet::observe {

// How often and how long altogether. Held as a floating number: exact for the first hundred days of
// durations, and never over the edge.
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

class BucketHistogram {
 public:
  static constexpr std::size_t kBounds = 17;
  // A value is of the first bucket whose bound it does not exceed; of none where it exceeds all.
  // REQUIRES: bucket < kBounds.
  [[nodiscard]] static constexpr Duration bound(std::size_t bucket) {
    return Duration(kFirst << bucket);
  }

  void record(Duration value) {
    ++counts_[bucket_of(value)];
    sum_.add(value);
  }

  [[nodiscard]] std::uint64_t count() const { return sum_.count(); }
  [[nodiscard]] const DurationSum& sum() const { return sum_; }
  // How many values do not exceed each bound.
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

  std::array<std::uint64_t, kBounds + 1> counts_{};  // the last: beyond all bounds
  DurationSum sum_;
};

}  // namespace gpulet::observe
