// Text of others, made fit for one line of a log or a terminal. Pure; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gpulet {

inline constexpr std::size_t kLongestLogText = 4096;

// The text with everything that could act on what shows it replaced: control characters (as \n, \t,
// \x1b), bytes that are not UTF-8, and characters without a look of their own, such as those that
// change the direction of writing (byte by byte, as \xe2\x80\xae). A backslash becomes two, so that
// the text can be told from its escapes. What is left is one line of printable UTF-8. Beyond
// `most_bytes` of the text the rest is left out, and its length told: "(+17 bytes)".
[[nodiscard]] std::string escaped(std::string_view text, std::size_t most_bytes = kLongestLogText);

}  // namespace gpulet
