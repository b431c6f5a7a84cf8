// What a text names: assertions on values, never on wording.
//
// A message must repeat what its reader has to find: the file, key, model, number or option that is
// wrong. The sentence around it is free. Tests only; any thread.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "gpulet/base/status.h"

namespace gpulet::support {

// Whether `text` has `value` in it and not only as a part of a longer word or number: "4" is in
// "of 4 bytes" and not in "of 47 bytes".
[[nodiscard]] inline bool has_whole(std::string_view text, std::string_view value) {
  const auto is_word = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  if (value.empty()) return true;
  for (std::size_t at = text.find(value); at != std::string_view::npos;
       at = text.find(value, at + 1)) {
    const std::size_t end = at + value.size();
    const bool begins_within = at > 0 && is_word(value.front()) && is_word(text[at - 1]);
    const bool ends_within = end < text.size() && is_word(value.back()) && is_word(text[end]);
    if (!begins_within && !ends_within) return true;
  }
  return false;
}

// The message or other text `text` names all of `values`.
template <typename... Values>
[[nodiscard]] ::testing::AssertionResult names(std::string_view text, const Values&... values) {
  for (const std::string_view value : {std::string_view(values)...}) {
    if (!has_whole(text, value))
      return ::testing::AssertionFailure() << "\"" << text << "\" does not name " << value;
  }
  return ::testing::AssertionSuccess() << "\"" << text << "\"";
}
template <typename... Values>
[[nodiscard]] ::testing::AssertionResult names(const Status& status, const Values&... values) {
  return names(std::string_view(status.message()), values...);
}

// The same as a matcher of an element.
MATCHER_P(Names, value, "names " + ::testing::PrintToString(value)) {
  return has_whole(arg, value);
}

// `text` has `part` in it, byte for byte: a piece of a format (JSON, SVG, shell), or a secret that
// must not show.
[[nodiscard]] inline ::testing::AssertionResult holds(std::string_view text,
                                                      std::string_view part) {
  const bool has_it = text.find(part) != std::string_view::npos;
  return (has_it ? ::testing::AssertionSuccess() : ::testing::AssertionFailure())
         << "\"" << text << "\" " << (has_it ? "holds " : "does not hold ") << part;
}
[[nodiscard]] inline ::testing::AssertionResult holds(const Status& status, std::string_view part) {
  return holds(std::string_view(status.message()), part);
}

// `line`, without its end, is one of the lines of `text`.
[[nodiscard]] inline ::testing::AssertionResult has_line(std::string_view text,
                                                         std::string_view line) {
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    if (text.substr(at, end - at) == line)
      return ::testing::AssertionSuccess() << "has the line " << line;
    at = end + 1;
  }
  return ::testing::AssertionFailure() << "\"" << text << "\" has no line " << line;
}

}  // namespace gpulet::support
