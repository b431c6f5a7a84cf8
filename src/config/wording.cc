#include "config/wording.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "gpulet/core/similar.h"

namespace gpulet::config {
namespace {

constexpr std::size_t kLongestQuote = 60;

}  // namespace

std::string in_quotes(std::string_view text) {
  constexpr std::string_view kHexDigits = "0123456789abcdef";
  std::string result = "\"";
  for (const char character : text.substr(0, kLongestQuote)) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte < 0x20 || byte == 0x7f) {
      result += "\\x";
      result += kHexDigits[byte >> 4U];
      result += kHexDigits[byte & 0xfU];
    } else {
      result += character;
    }
  }
  if (text.size() > kLongestQuote) result += "...";
  return result + '"';
}

std::string_view nearest(std::string_view word, const std::vector<std::string_view>& candidates) {
  // Among equally distant ones the longest common beginning wins: "slo" means "slo_ms" rather than
  // "file".
  const auto rank = [word](std::string_view candidate) {
    const auto shared = std::mismatch(word.begin(), word.end(), candidate.begin(), candidate.end());
    return std::pair(edit_distance(word, candidate), word.begin() - shared.first);
  };
  const auto best = std::min_element(candidates.begin(), candidates.end(),
                                     [&](auto a, auto b) { return rank(a) < rank(b); });
  return best == candidates.end() ? std::string_view() : *best;
}

std::string joined(const std::vector<std::string_view>& words) {
  std::string result;
  for (const std::string_view word : words) {
    if (!result.empty()) result += ", ";
    result += word;
  }
  return result;
}

}  // namespace gpulet::config
