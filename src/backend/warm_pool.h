// WarmPool: when to start a proxy process ahead of the gpulet that will need it.
//
// A process that links LibTorch takes half a second to start, a quarter of the time of a
// reorganisation, so a backend keeps some idle ones. Starting a process takes CPU time that a
// loading gpulet needs. Therefore processes start one at a time, and not while a gpulet loads or
// shortly after, when another gpulet may follow. A process that dies is replaced after a growing
// delay. One pool per proxy program. Pure; one thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>

#include "gpulet/base/time.h"

namespace gpulet::backend {

struct WarmPoolOptions {
  std::uint32_t size = 2;  // 0: no warm processes
  Duration quiet_after_loading = std::chrono::seconds(1);
  Duration first_restart_delay = std::chrono::milliseconds(100);  // doubles with every death
  Duration longest_restart_delay = std::chrono::seconds(30);
  Duration healthy_after = std::chrono::minutes(1);  // time without a death that resets the delay
};

class WarmPool {
 public:
  explicit WarmPool(const WarmPoolOptions& options) : options_(options) {}

  // Whether to start a process now.
  [[nodiscard]] bool should_start(Time now) const { return lacks_one() && now >= not_before_; }
  // When should_start() may become true by time alone, or kNever.
  [[nodiscard]] Time next_check() const { return lacks_one() ? not_before_ : kNever; }

  // The events of a process: it starts, becomes idle, and is taken or dies at any time.
  void started() { starting_ = true; }
  void idle() {
    starting_ = false;
    ++idle_;
  }
  void taken(bool was_idle) { remove(was_idle); }
  // Also after started() for a process that could not be started.
  void died(bool was_idle, Time now) {
    remove(was_idle);
    if (now - last_death_ >= options_.healthy_after) deaths_ = 0;
    last_death_ = now;
    const Duration delay =
        backoff_after(++deaths_, options_.first_restart_delay, options_.longest_restart_delay);
    not_before_ = std::max(not_before_, now + delay);
  }
  // Whether any gpulet is loading.
  void loading(bool any, Time now) {
    if (loading_ && !any) not_before_ = std::max(not_before_, now + options_.quiet_after_loading);
    loading_ = any;
  }

 private:
  [[nodiscard]] bool lacks_one() const { return !starting_ && !loading_ && idle_ < options_.size; }
  void remove(bool was_idle) {
    if (was_idle) {
      --idle_;
    } else {
      starting_ = false;
    }
  }

  WarmPoolOptions options_;
  std::uint32_t idle_ = 0;
  bool starting_ = false;
  bool loading_ = false;
  std::uint32_t deaths_ = 0;  // consecutive
  Time last_death_{};
  Time not_before_{};
};

}  // namespace gpulet::backend
