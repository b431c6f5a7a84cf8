#include "gpulet/core/escape.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace gpulet {
namespace {

struct CodePoints {
  std::uint32_t first;
  std::uint32_t last;
};

// Without a look of their own: controls, marks of direction, joiners, tags, private use,
// unassigned ends of planes.
constexpr std::array kUnseen{
    CodePoints{0x00, 0x1F},       CodePoints{0x7F, 0x9F},        CodePoints{0xAD, 0xAD},
    CodePoints{0x61C, 0x61C},     CodePoints{0x180E, 0x180E},    CodePoints{0x200B, 0x200F},
    CodePoints{0x2028, 0x202E},   CodePoints{0x2060, 0x206F},    CodePoints{0xD800, 0xF8FF},
    CodePoints{0xFE00, 0xFE0F},   CodePoints{0xFEFF, 0xFEFF},    CodePoints{0xFFF0, 0xFFFF},
    CodePoints{0x1FFFE, 0x1FFFF}, CodePoints{0xE0000, 0x10FFFF},
};

bool is_seen(std::uint32_t code_point) {
  return std::none_of(kUnseen.begin(), kUnseen.end(), [code_point](const CodePoints& range) {
    return code_point >= range.first && code_point <= range.last;
  });
}

// How many bytes the printable character at the text's beginning has; 0: there is none.
std::size_t printable_bytes(std::string_view text) {
  const auto byte = [text](std::size_t at) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(text[at]));
  };
  const std::uint32_t lead = byte(0);
  if (lead < 0x80) return is_seen(lead) ? 1 : 0;
  const std::size_t bytes = lead >= 0xF0 && lead < 0xF8   ? 4
                            : lead >= 0xE0 && lead < 0xF0 ? 3
                            : lead >= 0xC2 && lead < 0xE0 ? 2
                                                          : 0;
  if (bytes == 0 || text.size() < bytes) return 0;
  std::uint32_t code_point = lead & (0xFFU >> (bytes + 1));
  for (std::size_t at = 1; at < bytes; ++at) {
    if ((byte(at) & 0xC0U) != 0x80U) return 0;
    code_point = code_point << 6U | (byte(at) & 0x3FU);
  }
  constexpr std::array<std::uint32_t, 5> kLeast{0, 0, 0x80, 0x800, 0x10000};  // shorter forms exist
  return code_point >= kLeast[bytes] && code_point <= 0x10FFFF && is_seen(code_point) ? bytes : 0;
}

void append_escape(std::string& to, char letter) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  switch (letter) {
    case '\n':
      to += "\\n";
      return;
    case '\r':
      to += "\\r";
      return;
    case '\t':
      to += "\\t";
      return;
    default:
      break;
  }
  const auto byte = static_cast<unsigned char>(letter);
  to += "\\x";
  to += kDigits[byte >> 4U];
  to += kDigits[byte & 0xFU];
}

}  // namespace

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

}  // namespace gpulet
