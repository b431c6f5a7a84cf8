// A FIFO queue of a model in virtual time, served by an instance whose cores change from period to
// period, and optionally by a GPU that takes every second request. The speed of a request follows
// the cores while it runs. Deterministic.
#pragma once

#include <algorithm>
#include <deque>
#include <optional>

#include "gpulet/base/random.h"
#include "gpulet/control/node_control.h"

namespace gpulet::control {

struct Load {
  double rate_rps = 20;
  double work_core_s = 0.1;  // per request
  double objective_s = 0.5;
  std::optional<double> gpu_s{};   // the time of a GPU, which serves every second request
  std::optional<Random> chance{};  // Poisson arrivals; otherwise constant intervals
};

class Queue {
 public:
  explicit Queue(const Load& load) : load_(load), next_arrival_s_(gap_s()) {}

  // Changes the load from now on.
  void change(double rate_rps, std::optional<double> gpu_s = {}) {
    load_.rate_rps = rate_rps;
    load_.gpu_s = gpu_s;
    next_arrival_s_ = now_s_ + gap_s();
  }

  // Runs one period of a second with those cores.
  Reading run(double cores) {
    const double end_s = now_s_ + 1;
    completed_ = 0;
    response_sum_s_ = 0;
    while (now_s_ < end_s) {
      const bool runs = !queued_.empty() && cores > 0;
      const double done_s = runs ? now_s_ + left_core_s_ / cores : end_s;
      const double until_s = std::min({end_s, done_s, next_arrival_s_});
      if (runs) left_core_s_ -= (until_s - now_s_) * cores;
      now_s_ = until_s;
      if (until_s == next_arrival_s_) {
        arrive();
      } else if (runs && until_s == done_s) {
        finish();
      }
    }
    return {response_s(), load_.objective_s};
  }

  [[nodiscard]] double set_point_s() const { return Options{}.set_point * load_.objective_s; }
  // The cores that keep up with the arrivals.
  [[nodiscard]] double needed_cores() const {
    return load_.rate_rps * load_.work_core_s * (load_.gpu_s ? 0.5 : 1);
  }

 private:
  double gap_s() {
    const double mean_s = 1 / load_.rate_rps;
    return load_.chance ? load_.chance->exponential(mean_s) : mean_s;
  }

  void arrive() {
    next_arrival_s_ = now_s_ + gap_s();
    for_gpu_ = !for_gpu_;
    if (load_.gpu_s && for_gpu_) {
      complete(*load_.gpu_s);
      return;
    }
    if (queued_.empty()) left_core_s_ = load_.work_core_s;
    queued_.push_back(now_s_);
  }

  void finish() {
    complete(now_s_ - queued_.front());
    queued_.pop_front();
    left_core_s_ = load_.work_core_s;
  }

  void complete(double response_s) {
    response_sum_s_ += response_s;
    ++completed_;
  }

  // The mean over the completed requests; without any, the wait of the oldest.
  [[nodiscard]] double response_s() const {
    if (completed_ > 0) return response_sum_s_ / completed_;
    return queued_.empty() ? 0 : now_s_ - queued_.front();
  }

  Load load_;
  double now_s_ = 0;
  double next_arrival_s_;
  std::deque<double> queued_;  // arrival times; the first one runs
  double left_core_s_ = 0;     // of the first request
  bool for_gpu_ = false;
  int completed_ = 0;
  double response_sum_s_ = 0;
};

}  // namespace gpulet::control
