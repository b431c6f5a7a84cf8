#include "gpulet/config/number_range.h"

#include <array>
#include <charconv>
#include <cmath>

namespace gpulet::config {

bool NumberRange::holds(double number) const {
  if (!std::isfinite(number) || number > most) return false;
  return above_least ? number > least : number >= least;
}

std::string NumberRange::describe() const {
  const bool bounded_below = least != std::numeric_limits<double>::lowest();
  const bool bounded_above = most != std::numeric_limits<double>::max();
  std::string text = "a number";
  if (above_least) {
    text += " above " + to_text(least);
    if (bounded_above) text += " and up to " + to_text(most);
  } else if (bounded_below && bounded_above) {
    text += " from " + to_text(least) + " to " + to_text(most);
  } else if (bounded_below) {
    text += " of at least " + to_text(least);
  } else if (bounded_above) {
    text += " up to " + to_text(most);
  }
  return text;
}

std::string to_text(double number) {
  std::array<char, 32> buffer{};  // the longest shortest form of a double has 24 characters
  const auto written = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number);
  return {buffer.data(), written.ptr};
}

}  // namespace gpulet::config
