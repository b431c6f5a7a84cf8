// The terminal while a program shows something that changes: keys come as they are typed, and what
// stood there comes back at the end, however that comes about short of SIGKILL. One at a time; one
// thread.
#pragma once

#include <termios.h>

#include <chrono>
#include <string>
#include <string_view>

#include "gpulet/core/status.h"
#include "tools/signal_watch.h"
#include "tools/top_screen.h"

namespace gpulet::tools {

class LiveTerminal {
 public:
  // Standard input and output, both terminals. Throws std::system_error where it cannot be set.
  LiveTerminal();
  ~LiveTerminal();
  LiveTerminal(const LiveTerminal&) = delete;
  LiveTerminal& operator=(const LiveTerminal&) = delete;

  [[nodiscard]] static bool possible();

  [[nodiscard]] Window window() const;
  void write(std::string_view text) const;

  struct Event {
    bool ended = false;  // SIGINT, SIGTERM, SIGHUP, or the terminal went away
    bool timed_out = false;
    std::string typed{};  // else, unless the window changed
  };
  // Until something happens, or the time is over.
  [[nodiscard]] Event wait(std::chrono::milliseconds timeout);

 private:
  termios before_{};
  SignalWatch signals_;
};

}  // namespace gpulet::tools
