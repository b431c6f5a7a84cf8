// A model's queue in virtual time, before an executable whose cores change from period to period,
// and a GPU that may take every second request. Requests take their turns; one runs as fast as it
// is given cores, also when they change while it runs. Deterministic.
#pragma once

#include <algorithm>
#include <deque>
#include <optional>

#include "gpulet/control/node_control.h"
#include "gpulet/core/random.h"

namespace gpulet::control {

struct Load {
  double rate_rps = 20;
  double work_core_s = 0.1;  // of a request
  double objective_s = 0.5;
  std::optional<double> gpu_s{};   // what a GPU takes for every second request
  std::optional<Random> chance{};  // Poisson arrivals; otherwise all are as far apart
};

class Queue {
 public:
  explicit Queue(const Load& load) : load_(load), next_arrival_s_(gap_s()) {}

  // From now on.
  void change(double rate_rps, std::optional<double> gpu_s = {}) {
    load_.rate_rps = rate_rps;
    load_.gpu_s = gpu_s;
    next_arrival_s_ = now_s_ + gap_s();
  }

  // One period of a second with those cores.
  Reading run(double cores) {
    const double end_s = now_s_ + 1;
    answered_ = 0;
    response_sum_s_ = 0;
    while (now_s_ < end_s) {
      const bool runs = !waiting_.empty() && cores > 0;
      const double done_s = runs ? now_s_ + left_core_s_ / cores : end_s;
      const double until_s = std::min({end_s, done_s, next_arrival_s_});
      if (runs) left_core_s_ -= (until_s - now_s_) * cores;
      now_s_ = until_s;
      if (until_s == next_arrival_s_) {
        arrive();
      } else if (runs && until_s == done_s) {
        leave();
      }
    }
    return {response_s(), load_.objective_s};
  }

  [[nodiscard]] double set_point_s() const { return Options{}.set_point * load_.objective_s; }
  // That keep up with what arrives.
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
      answer(*load_.gpu_s);
      return;
    }
    if (waiting_.empty()) left_core_s_ = load_.work_core_s;
    waiting_.push_back(now_s_);
  }

  void leave() {
    answer(now_s_ - waiting_.front());
    waiting_.pop_front();
    left_core_s_ = load_.work_core_s;
  }

  void answer(double response_s) {
    response_sum_s_ += response_s;
    ++answered_;
  }

  // Of what was answered; where nothing was, what the oldest has waited.
  [[nodiscard]] double response_s() const {
    if (answered_ > 0) return response_sum_s_ / answered_;
    return waiting_.empty() ? 0 : now_s_ - waiting_.front();
  }

  Load load_;
  double now_s_ = 0;
  double next_arrival_s_;
  std::deque<double> waiting_;  // since when; the first one runs
  double left_core_s_ = 0;      // of the first
  bool for_gpu_ = false;
  int answered_ = 0;
  double response_sum_s_ = 0;
};

}  // namespace gpulet::control
