#include "tools/live_terminal.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <optional>
#include <system_error>

namespace gpulet::tools {
namespace {

// The other screen, without a cursor; and back.
constexpr std::string_view kEnter = "\033[?1049h\033[?25l";
constexpr std::string_view kLeave = "\033[?25h\033[?1049l";

// A signal that another thread took interrupts no poll here.
constexpr std::chrono::milliseconds kLookForSignals{50};

}  // namespace

bool LiveTerminal::possible() { return isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1; }

LiveTerminal::LiveTerminal() : signals_({SIGINT, SIGTERM, SIGHUP, SIGWINCH}) {
  if (tcgetattr(STDIN_FILENO, &before_) != 0)
    throw std::system_error(errno, std::generic_category(), "the terminal");
  termios raw = before_;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  // Ctrl-Z would leave the shell with this screen.
  raw.c_cc[VSUSP] = _POSIX_VDISABLE;
  raw.c_cc[VMIN] = 0;
  raw.c_cc[VTIME] = 0;
  tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  write(kEnter);
}

LiveTerminal::~LiveTerminal() {
  // First: who sees the shell's screen again types on the shell's terminal.
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
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // the terminal is gone: wait() tells
    text.remove_prefix(static_cast<std::size_t>(written));
  }
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
    if (::poll(&input, 1, static_cast<int>(std::min(left, kLookForSignals).count())) <= 0) continue;
    std::array<char, 256> typed{};
    const ssize_t count = ::read(STDIN_FILENO, typed.data(), typed.size());
    if (count <= 0) return Event{.ended = true};
    return Event{.typed = std::string(typed.data(), static_cast<std::size_t>(count))};
  }
}

}  // namespace gpulet::tools
