#include "tools/report/terminal.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <system_error>
#include <utility>

#include "gpulet/base/files.h"
#include "tools/report/format.h"

namespace gpulet::tools {
namespace {

// Checks the variables that set the encoding, in the order of their precedence.
bool locale_is_utf8() {
  for (const char* const name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string_view value = environment_variable(name);
    if (value.empty()) continue;
    std::string lower;
    for (const char c : value)
      lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return lower.find("utf-8") != std::string::npos || lower.find("utf8") != std::string::npos;
  }
  return false;
}

}  // namespace

Terminal describe_terminal(std::FILE* stream) {
  Terminal terminal;
  terminal.interactive = isatty(fileno(stream)) == 1;
  terminal.colour = terminal.interactive && environment_variable("NO_COLOR").empty() &&
                    environment_variable("TERM") != "dumb";
  terminal.utf8 = terminal.interactive && locale_is_utf8();
  return terminal;
}

ProgressLine::ProgressLine() : shown_(describe_terminal(stderr).interactive) {}

ProgressLine::~ProgressLine() {
  if (shown_) std::cerr << "\r\033[K" << std::flush;
}

void ProgressLine::show(std::string_view text) const {
  if (shown_) std::cerr << "\r\033[K" << text << std::flush;
}

namespace asio = boost::asio;

struct SignalWatch::Impl {
  asio::io_context context{1};
  asio::signal_set signals{context};
  std::deque<int> caught;

  void wait() {
    signals.async_wait([this](const boost::system::error_code& error, int signal) {
      if (error) return;
      caught.push_back(signal);
      wait();
    });
  }
};

SignalWatch::SignalWatch(std::initializer_list<int> signals) : impl_(std::make_unique<Impl>()) {
  for (const int signal : signals) impl_->signals.add(signal);
  impl_->wait();
}

SignalWatch::~SignalWatch() = default;

std::optional<int> SignalWatch::take() {
  impl_->context.poll();
  if (impl_->caught.empty()) return std::nullopt;
  const int signal = impl_->caught.front();
  impl_->caught.pop_front();
  return signal;
}

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

// The length of the escape sequence at the beginning of the text, which ends with a letter or '~'.
std::size_t escape_length(std::string_view text) {
  std::size_t length = 1;
  while (length < text.size()) {
    const char c = text[length++];
    if (is_letter(c) || c == '~') break;
  }
  return length;
}

bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }

// The beginning of the line that fits into that many columns.
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

// Switches to the alternate screen and hides the cursor; and back.
constexpr std::string_view kEnter = "\033[?1049h\033[?25l";
constexpr std::string_view kLeave = "\033[?25h\033[?1049l";

// A signal that another thread received does not interrupt poll().
constexpr std::chrono::milliseconds kSignalInterval{50};

bool LiveTerminal::possible() { return isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1; }

LiveTerminal::LiveTerminal() : signals_({SIGINT, SIGTERM, SIGHUP, SIGWINCH}) {
  if (tcgetattr(STDIN_FILENO, &before_) != 0)
    throw std::system_error(errno, std::generic_category(), "the terminal");
  termios raw = before_;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  // Ctrl-Z would leave this screen to the shell.
  raw.c_cc[VSUSP] = _POSIX_VDISABLE;
  raw.c_cc[VMIN] = 0;
  raw.c_cc[VTIME] = 0;
  tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  write(kEnter);
}

LiveTerminal::~LiveTerminal() {
  // First the settings: input typed after the screen is back belongs to the shell.
  tcsetattr(STDIN_FILENO, TCSAFLUSH, &before_);
  write(kLeave);
}

Window LiveTerminal::window() const {
  winsize size{};
  Window window;
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0)
    window = {size.ws_row, size.ws_col};
  return window;
}

void LiveTerminal::write(std::string_view text) const {
  (void)write_all(STDOUT_FILENO, text);  // the terminal may be gone: wait() reports it
}

LiveTerminal::Event LiveTerminal::wait(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    if (const std::optional<int> signal = signals_.take())
      return Event{.ended = *signal != SIGWINCH};
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return Event{.timed_out = true};
    pollfd input{STDIN_FILENO, POLLIN, 0};
    if (::poll(&input, 1, static_cast<int>(std::min(left, kSignalInterval).count())) <= 0) continue;
    std::array<char, 256> typed{};
    const ssize_t count = ::read(STDIN_FILENO, typed.data(), typed.size());
    if (count <= 0) return Event{.ended = true};
    return Event{.typed = std::string(typed.data(), static_cast<std::size_t>(count))};
  }
}

}  // namespace gpulet::tools
