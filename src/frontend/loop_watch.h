// LoopWatch: how long the event loop was held up, by whatever ran on it. Two things are measured:
// how late a timer comes that is due every ten milliseconds, and how long the handlers take that
// say so with a Scope. Of one pause that both see the longer figure counts. Single-strand types, on
// the io_context's thread.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "gpulet/core/time.h"
#include "gpulet/net/alarm.h"
#include "gpulet/net/asio.h"

namespace gpulet::frontend {

struct LoopPauses {
  Duration longest{};              // of the last minute
  std::string_view longest_ran{};  // what ran then; empty: not known
  std::uint64_t long_ones = 0;     // since the start: kLongPause or longer
};
inline constexpr Duration kLongPause = std::chrono::milliseconds(5);

// The last minute's pauses, a second each. Pure: time comes in.
class PauseBook {
 public:
  // `ran` lives as long as the book.
  void record(Duration pause, std::string_view ran, Time now);
  [[nodiscard]] LoopPauses look(Time now) const;

 private:
  struct Second {
    std::int64_t number = -1;
    Duration longest{};
    std::string_view ran{};
  };
  static constexpr std::size_t kSeconds = 60;
  std::array<Second, kSeconds> seconds_{};
  std::uint64_t long_ones_ = 0;
};

class LoopWatch {
 public:
  explicit LoopWatch(net::asio::io_context& io) : timer_(io) {}

  // Begins to measure; logs a warning of pauses above kWarnAbove, one in ten seconds at most.
  void start();
  void stop();
  [[nodiscard]] LoopPauses pauses() const;

  // Measures from `began` to its end. `what` is a literal.
  class Scope {
   public:
    Scope(LoopWatch& watch, std::string_view what, Time began)
        : watch_(watch), what_(what), began_(began) {}
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    LoopWatch& watch_;
    std::string_view what_;
    Time began_;
  };

 private:
  static constexpr Duration kEvery = std::chrono::milliseconds(10);
  static constexpr Duration kWarnAbove = std::chrono::milliseconds(100);

  void wait();
  void on_time(Time now);
  void warn(Duration pause, std::string_view ran, Time now);

  net::Alarm timer_;
  Time due_{};
  // Of the scopes since the timer came last.
  Duration longest_scope_{};
  std::string_view longest_ran_{};
  PauseBook book_;
  Time quiet_until_{};  // no warnings before
  std::uint64_t unsaid_ = 0;
};

}  // namespace gpulet::frontend
