// Latency histograms as values: logarithmic buckets of 1/16 of a power of two (a percentile is
// right to 6 %), and a window that forgets. Pure: time comes in as an argument. One thread at a
// time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "gpulet/core/time.h"

namespace gpulet::observe {

class Histogram {
 public:
  void record(Duration value);
  void clear();
  void add(const Histogram& other);

  [[nodiscard]] std::uint64_t count() const { return count_; }
  // The value that a fraction of the samples does not exceed; zero without samples. REQUIRES: 0 <=
  // fraction <= 1.
  [[nodiscard]] Duration percentile(double fraction) const;

 private:
  // Microseconds below 16 have a bucket each; above, 16 buckets to each power of two, up to 2^40
  // us.
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

}  // namespace gpulet::observe
