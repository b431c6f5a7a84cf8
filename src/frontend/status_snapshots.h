// StatusSnapshots: the frontend's status for whoever asks, taken in steps of at most half a
// millisecond between which the event loop does other things. One is taken at a time; those who ask
// meanwhile get that one. It is then given to everybody for fifty times as long as the loop's
// thread computed for it, a second at most, so that snapshots cost the loop no more than 2 %.
// Single-strand type, on the io_context's thread, which must not run any more when this goes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "background.h"
#include "gpulet/net/alarm.h"
#include "gpulet/net/asio.h"
#include "gpulet/observe/trace.h"
#include "gpulet/serve/status_in_steps.h"
#include "loop_watch.h"
#include "status_moment.h"

namespace gpulet::frontend {

struct TimedStatus {
  serve::FrontendStatus status;
  StatusMoment moment;
  observe::WallClock wall;
  std::uint64_t number = 0;  // 1, 2, ..
};
using StatusSnapshot = std::shared_ptr<const TimedStatus>;  // never null

class StatusSnapshots {
 public:
  struct Source {
    std::function<bool(serve::StatusInSteps& taken, std::size_t parts)> take;
    std::function<observe::WallClock()> wall_clock;
    std::function<StatusMoment(const observe::WallClock&)> moment;
  };
  using OnSnapshot = std::function<void(const StatusSnapshot&)>;

  // The background and the watch outlive it.
  StatusSnapshots(net::asio::io_context& io, Source source, Background& background,
                  LoopWatch& watch);

  // `done` is called later, never from within, with a snapshot of a higher number.
  void get(OnSnapshot done, std::uint64_t newer_than = 0);

 private:
  static constexpr Duration kLongestStep = std::chrono::microseconds(500);
  static constexpr std::size_t kParts = 16;  // between two looks at the clock

  void begin();
  void step();
  void finish();
  void hand_out();

  net::asio::io_context& io_;
  Source source_;
  Background& background_;
  LoopWatch& watch_;
  net::Alarm timer_;
  bool waits_ = false;  // for the timer, then begins
  std::optional<serve::StatusInSteps> taken_;
  Duration cost_{};  // of what is being taken
  StatusSnapshot last_;
  Time good_until_{};
  std::uint64_t number_ = 0;
  std::vector<OnSnapshot> waiting_;  // for the next one
};

}  // namespace gpulet::frontend
