// Which numbers a field accepts, and how to say so in an error. Values; any thread.
#pragma once

#include <limits>
#include <string>

namespace gpulet::config {

struct NumberRange {
  double least = std::numeric_limits<double>::lowest();
  double most = std::numeric_limits<double>::max();
  bool above_least = false;  // `least` itself is outside

  // False for NaN and the infinities, whatever the bounds.
  [[nodiscard]] bool holds(double number) const;
  // "a number above 0", "a number of at least 0", "a number from 0 to 1"
  [[nodiscard]] std::string describe() const;
};

[[nodiscard]] constexpr NumberRange above(double bound) {
  return {.least = bound, .above_least = true};
}
[[nodiscard]] constexpr NumberRange at_least(double bound) { return {.least = bound}; }
[[nodiscard]] constexpr NumberRange between(double least, double most) {
  return {.least = least, .most = most};
}

// The shortest text that reads back as the same number: "0.1", "400".
[[nodiscard]] std::string to_text(double number);

}  // namespace gpulet::config
