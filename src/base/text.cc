#include "gpulet/base/text.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <utility>

namespace gpulet {
namespace {

struct CodePoints {
  std::uint32_t first;
  std::uint32_t last;
};

// Invisible: controls, direction marks, joiners, tags, private use, noncharacters.
constexpr std::array kInvisible{
    CodePoints{0x00, 0x1F},       CodePoints{0x7F, 0x9F},        CodePoints{0xAD, 0xAD},
    CodePoints{0x61C, 0x61C},     CodePoints{0x180E, 0x180E},    CodePoints{0x200B, 0x200F},
    CodePoints{0x2028, 0x202E},   CodePoints{0x2060, 0x206F},    CodePoints{0xD800, 0xF8FF},
    CodePoints{0xFE00, 0xFE0F},   CodePoints{0xFEFF, 0xFEFF},    CodePoints{0xFFF0, 0xFFFF},
    CodePoints{0x1FFFE, 0x1FFFF}, CodePoints{0xE0000, 0x10FFFF},
};

bool is_visible(std::uint32_t code_point) {
  return std::none_of(kInvisible.begin(), kInvisible.end(), [code_point](const CodePoints& range) {
    return code_point >= range.first && code_point <= range.last;
  });
}

struct Character {
  std::size_t bytes = 0;  // 0: not UTF-8
  std::uint32_t code_point = 0;
};

// At the start of `text`, which is not empty.
Character first_character(std::string_view text) {
  const auto byte = [text](std::size_t at) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(text[at]));
  };
  const std::uint32_t lead = byte(0);
  if (lead < 0x80) return {1, lead};
  const std::size_t bytes = lead >= 0xF0 && lead < 0xF8   ? 4
                            : lead >= 0xE0 && lead < 0xF0 ? 3
                            : lead >= 0xC2 && lead < 0xE0 ? 2
                                                          : 0;
  if (bytes == 0 || text.size() < bytes) return {};
  std::uint32_t code_point = lead & (0xFFU >> (bytes + 1));
  for (std::size_t at = 1; at < bytes; ++at) {
    if ((byte(at) & 0xC0U) != 0x80U) return {};
    code_point = code_point << 6U | (byte(at) & 0x3FU);
  }
  constexpr std::array<std::uint32_t, 5> kLeast{0, 0, 0x80, 0x800, 0x10000};  // below: overlong
  const bool surrogate = code_point >= 0xD800 && code_point <= 0xDFFF;
  if (code_point < kLeast[bytes] || code_point > 0x10FFFF || surrogate) return {};
  return {bytes, code_point};
}

// Bytes of the printable character at the start of `text`; 0 where there is none.
std::size_t printable_bytes(std::string_view text) {
  const Character first = first_character(text);
  return first.bytes > 0 && is_visible(first.code_point) ? first.bytes : 0;
}

void append_escape(std::string& to, char letter) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  to += '\\';
  if (const std::size_t named = std::string_view("\n\r\t").find(letter);
      named != std::string_view::npos) {
    to += "nrt"[named];
    return;
  }
  const auto byte = static_cast<unsigned char>(letter);
  to += 'x';
  to += kDigits[byte >> 4U];
  to += kDigits[byte & 0xFU];
}

constexpr std::size_t kLongestCompared = 64;  // edit distance costs the product of the lengths
constexpr std::size_t kShortestPrefix = 3;    // a shorter prefix matches too much

bool is_plausible(std::string_view word, std::string_view candidate) {
  if (word.size() >= kShortestPrefix && candidate.starts_with(word)) return true;
  return 2 * edit_distance(word, candidate) <= std::max(word.size(), candidate.size());
}

}  // namespace

std::string_view trimmed(std::string_view text, std::string_view blanks) {
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t bytes = first_character(text).bytes;
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string escaped(std::string_view text, std::size_t most_bytes) {
  std::string shown;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t bytes = printable_bytes(text.substr(at));
    const std::size_t taken = std::max<std::size_t>(1, bytes);
    if (at + taken > most_bytes) break;
    if (bytes == 0) {
      append_escape(shown, text[at]);
    } else if (text[at] == '\\') {
      shown += "\\\\";
    } else {
      shown += text.substr(at, bytes);
    }
    at += taken;
  }
  if (at < text.size()) shown += "(+" + std::to_string(text.size() - at) + " bytes)";
  return shown;
}

std::size_t edit_distance(std::string_view from, std::string_view to) {
  from = from.substr(0, kLongestCompared);
  to = to.substr(0, kLongestCompared);
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

std::string_view nearest(std::string_view word, const std::vector<std::string_view>& candidates) {
  const auto rank = [word](std::string_view candidate) {
    const auto differ =
        std::mismatch(word.begin(), word.end(), candidate.begin(), candidate.end()).first;
    return std::pair(edit_distance(word, candidate), word.end() - differ);
  };
  const auto best = std::min_element(
      candidates.begin(), candidates.end(),
      [&](std::string_view left, std::string_view right) { return rank(left) < rank(right); });
  return best == candidates.end() ? std::string_view() : *best;
}

std::string_view similar(std::string_view word, const std::vector<std::string_view>& candidates) {
  std::vector<std::string_view> plausible;
  std::copy_if(candidates.begin(), candidates.end(), std::back_inserter(plausible),
               [word](std::string_view candidate) { return is_plausible(word, candidate); });
  return nearest(word, plausible);
}

}  // namespace gpulet
