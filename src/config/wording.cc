#include "config/wording.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

namespace gpulet::config {
namespace {

constexpr std::size_t kLongestQuote = 60;
// Keys of this project are short: a longer word is not a slip of the pen, and distance costs its
// square.
constexpr std::size_t kLongestCompared = 64;

std::size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= from.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= to.size(); ++j) {
      const std::size_t replaced = diagonal + (from[i - 1] == to[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

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
  const std::string_view compared = word.substr(0, kLongestCompared);
  // Among equally distant ones the longest common beginning wins: "slo" means "slo_ms" rather than
  // "file".
  const auto rank = [compared](std::string_view candidate) {
    const auto shared =
        std::mismatch(compared.begin(), compared.end(), candidate.begin(), candidate.end());
    return std::pair(edit_distance(compared, candidate), compared.begin() - shared.first);
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
