// What is seen of a training while it runs: a line with where it stands and how long it will take,
// and Ctrl-C. One thread.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>
#include <string>

#include "gpulet/train/training.h"
#include "tools/progress_line.h"
#include "tools/signal_watch.h"

namespace gpulet::tools {

// "episode 120 of 1500: reward 3.91, 0.42 % violated, 803 requests/s, 21 min left; Ctrl-C stops it"
// `passed`: since it began or was resumed, after episode `resumed_at`.
[[nodiscard]] std::string progress_text(const train::EpisodeFigures& figures,
                                        std::uint64_t episodes, std::uint64_t resumed_at,
                                        std::chrono::duration<double> passed);

class TrainingWatch {
 public:
  TrainingWatch(std::uint64_t episodes, std::uint64_t resumed_at)
      : episodes_(episodes), resumed_at_(resumed_at) {}

  // Shows that episode. Whether to go on: nobody has interrupted it.
  [[nodiscard]] bool show(const train::EpisodeFigures& figures);

  [[nodiscard]] bool interrupted() const { return interrupted_; }
  [[nodiscard]] std::chrono::duration<double> passed() const { return Clock::now() - began_; }

 private:
  using Clock = std::chrono::steady_clock;

  std::uint64_t episodes_, resumed_at_;
  bool interrupted_ = false;
  Clock::time_point began_ = Clock::now();
  ProgressLine line_;
  SignalWatch signals_{SIGINT, SIGTERM};
};

}  // namespace gpulet::tools
