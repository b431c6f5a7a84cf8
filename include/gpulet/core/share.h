// A share of one device's compute, in whole percent. Values; any thread.
#pragma once

#include <compare>

namespace gpulet {

struct Share {
  int percent = 0;  // 1..100 where it sizes a gpulet; 0 is "nothing"

  [[nodiscard]] constexpr double fraction() const { return percent / 100.0; }
  [[nodiscard]] constexpr bool valid() const { return percent >= 1 && percent <= 100; }

  friend constexpr auto operator<=>(const Share&, const Share&) = default;
};

inline constexpr Share kWholeDevice{100};

}  // namespace gpulet
