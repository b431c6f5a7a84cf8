// The terminal of a command: what it can show, signals, a progress line, and a full screen that is
// redrawn (`gpulet top`). One thread.
#pragma once

#include <termios.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpulet::tools {

struct Terminal {
  bool interactive = false;  // a terminal, not a pipe or a file
  bool colour = false;       // interactive, and the user did not set NO_COLOR or TERM=dumb
  bool utf8 = false;         // interactive, in a UTF-8 locale
};

// Describes standard output or standard error. Reads the environment.
[[nodiscard]] Terminal describe_terminal(std::FILE* stream);

// A line on standard error, overwritten while a command works. Shows nothing without a terminal.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(std::string_view text) const;

 private:
  bool shown_;
};

// Catches signals during its lifetime; afterwards they have their default effect again. Blocking
// them in this thread would not be enough, because libraries start threads before main.
class SignalWatch {
 public:
  // Throws std::system_error if a signal cannot be caught.
  explicit SignalWatch(std::initializer_list<int> signals);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // The oldest signal that was not taken yet. Does not block.
  [[nodiscard]] std::optional<int> take();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct Window {
  std::size_t rows = 24;
  std::size_t columns = 80;
};

enum class Key { quit, up, down, page_up, page_down, first, last };

// The keys in the input of a terminal: q; the arrows, k and j; the page keys, b and space; home and
// end, g and G. Other keys are ignored. Pure, like the three functions below.
[[nodiscard]] std::vector<Key> keys_of(std::string_view typed);

// The first visible line after the key, for `lines` lines of which `shown` fit on the screen.
[[nodiscard]] std::size_t scrolled(std::size_t first, Key key, std::size_t lines,
                                   std::size_t shown);

[[nodiscard]] std::size_t count_lines(std::string_view text);

// The output that draws the title and, below it, the lines of `body` from `first` on over the
// current screen. Lines are cut to the window; escape sequences have no width, and colours end with
// their line. Never scrolls the window.
[[nodiscard]] std::string compose_screen(std::string_view title, std::string_view body,
                                         std::size_t first, const Window& window);

// Takes over the terminal: keys arrive as they are typed, on a screen of their own. The destructor
// restores the terminal; so do all ends but SIGKILL. Only one may exist at a time.
class LiveTerminal {
 public:
  // REQUIRES: possible(). Throws std::system_error if the terminal cannot be configured.
  LiveTerminal();
  ~LiveTerminal();
  LiveTerminal(const LiveTerminal&) = delete;
  LiveTerminal& operator=(const LiveTerminal&) = delete;

  // Whether standard input and output are terminals.
  [[nodiscard]] static bool possible();

  [[nodiscard]] Window window() const;
  void write(std::string_view text) const;

  // All false and empty: the window was resized.
  struct Event {
    bool ended = false;  // SIGINT, SIGTERM, SIGHUP, or the terminal is gone
    bool timed_out = false;
    std::string typed{};
  };
  [[nodiscard]] Event wait(std::chrono::milliseconds timeout);

 private:
  termios before_{};
  SignalWatch signals_;
};

}  // namespace gpulet::tools
