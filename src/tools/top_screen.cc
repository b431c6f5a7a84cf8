#include "tools/top_screen.h"

#include <algorithm>
#include <array>
#include <utility>

namespace gpulet::tools {
namespace {

constexpr std::array<std::pair<std::string_view, Key>, 17> kKeys = {{
    {"\033[A", Key::up},
    {"\033OA", Key::up},
    {"k", Key::up},
    {"\033[B", Key::down},
    {"\033OB", Key::down},
    {"j", Key::down},
    {"\033[5~", Key::page_up},
    {"b", Key::page_up},
    {"\033[6~", Key::page_down},
    {" ", Key::page_down},
    {"\033[H", Key::first},
    {"g", Key::first},
    {"\033[F", Key::last},
    {"G", Key::last},
    {"q", Key::quit},
    {"Q", Key::quit},
    {"\003", Key::quit},
}};

bool is_letter(char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }

// The length of the escape sequence at the beginning of the text: up to its letter or '~'.
std::size_t escape_length(std::string_view text) {
  std::size_t length = 1;
  while (length < text.size()) {
    const char c = text[length++];
    if (is_letter(c) || c == '~') break;
  }
  return length;
}

bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }

// As much of the line as has room.
std::string clipped(std::string_view line, std::size_t columns) {
  std::string text;
  std::size_t shown = 0;
  bool styled = false;
  for (std::size_t at = 0; at < line.size();) {
    if (line[at] == '\033') {
      const std::size_t length = escape_length(line.substr(at));
      text += line.substr(at, length);
      at += length;
      styled = true;
      continue;
    }
    if (begins_character(line[at]) && shown++ == columns) break;
    text += line[at++];
  }
  if (styled) text += "\033[0m";
  return text;
}

std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

}  // namespace

std::vector<Key> keys_of(std::string_view typed) {
  std::vector<Key> keys;
  while (!typed.empty()) {
    const auto* const known = std::find_if(kKeys.begin(), kKeys.end(), [typed](const auto& entry) {
      return typed.starts_with(entry.first);
    });
    if (known != kKeys.end()) {
      keys.push_back(known->second);
      typed.remove_prefix(known->first.size());
    } else {
      typed.remove_prefix(typed.front() == '\033' ? escape_length(typed) : 1);
    }
  }
  return keys;
}

std::size_t scrolled(std::size_t first, Key key, std::size_t lines, std::size_t shown) {
  const std::size_t last = lines > shown ? lines - shown : 0;
  const std::size_t page = std::max<std::size_t>(shown, 2) - 1;
  const auto back = [first](std::size_t by) { return first > by ? first - by : 0; };
  switch (key) {
    case Key::up:
      return std::min(back(1), last);
    case Key::down:
      return std::min(first + 1, last);
    case Key::page_up:
      return std::min(back(page), last);
    case Key::page_down:
      return std::min(first + page, last);
    case Key::first:
      return 0;
    case Key::last:
      return last;
    case Key::quit:
      break;
  }
  return std::min(first, last);
}

std::size_t count_lines(std::string_view text) {
  const auto ends = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  return ends + (!text.empty() && text.back() != '\n' ? 1 : 0);
}

std::string compose_screen(std::string_view title, std::string_view body, std::size_t first,
                           const Window& window) {
  constexpr std::string_view kHome = "\033[H";
  constexpr std::string_view kRestOfLine = "\033[K";
  constexpr std::string_view kRestOfScreen = "\033[J";
  std::string screen(kHome);
  screen += clipped(title, window.columns);
  screen += kRestOfLine;
  for (std::size_t line = 0; line < first && !body.empty(); ++line) take_line(body);
  for (std::size_t row = 1; row < window.rows && !body.empty(); ++row) {
    screen += "\r\n";
    screen += clipped(take_line(body), window.columns);
    screen += kRestOfLine;
  }
  screen += kRestOfScreen;
  return screen;
}

}  // namespace gpulet::tools
