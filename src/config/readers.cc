// The ranges of numbers and the names that JSON documents (json.cc) and tables (csv.cc) share.
#include "gpulet/config/readers.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "gpulet/base/text.h"
#include "gpulet/core/bucket.h"

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
  std::array<char, 32> buffer{};  // the shortest form of a double has at most 24 characters
  const auto written = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number);
  return {buffer.data(), written.ptr};
}

bool is_name(std::string_view text) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !text.empty() && text != "." && text != ".." &&
         std::all_of(text.begin(), text.end(), allowed);
}

bool is_planned_name(std::string_view text) {
  const std::size_t at = text.find('@');
  if (at == std::string_view::npos) return is_name(text);
  const auto length = parse_number<std::int64_t>(text.substr(at + 1));
  return is_name(text.substr(0, at)) && length && *length >= 1 &&
         text == bucket_name(text.substr(0, at), *length);
}

}  // namespace gpulet::config
