// RecentSums: sums of a few figures over the last minute, for figures that are added to one by one.
// Time is divided into slices of ten seconds, so a sum reaches back between one slice less than
// asked for and all of them. Pure: time comes in as an argument. One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "gpulet/core/time.h"

namespace gpulet::observe {

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

  // Of the slice that `now` is in and of those before it, `slices` in all.
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
    std::int64_t number = -1;  // of its time; -1: nothing was added yet
    Sums sums{};
  };
  [[nodiscard]] static std::int64_t number_of(Time time) {
    return time.time_since_epoch() / kSlice;
  }

  std::array<Slice, kSlices> slices_{};
};

}  // namespace gpulet::observe
