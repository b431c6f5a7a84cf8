// WarmPool: when to start a proxy ahead of the gpulet that will need it.
//
// A process that links LibTorch takes half a second to start, which is a quarter of the time that
// a reorganisation has. So a few are kept that have nothing to load yet. Starting one costs CPU
// that a loading gpulet wants: none is started while one loads, nor in the moment after, when more
// may be asked for; and one at a time. One that dies is replaced after a growing delay.
//
// Of one proxy program. Pure; one thread at a time.
#pragma once

#include <cstdint>

#include "gpulet/core/time.h"

namespace gpulet::serve {

struct WarmPoolOptions {
  std::uint32_t wanted = 2;  // 0: never any
  Duration quiet_after_loading = std::chrono::seconds(1);
  Duration first_restart_delay = std::chrono::milliseconds(100);  // doubles with every death
  Duration longest_restart_delay = std::chrono::seconds(30);
  Duration healthy_after = std::chrono::minutes(1);  // so long without a death: they are forgotten
};

class WarmPool {
 public:
  explicit WarmPool(const WarmPoolOptions& options) : options_(options) {}

  // A process should be started now. Where there is none to start, nor will be by time alone, the
  // next look is at kNever.
  [[nodiscard]] bool wants_another(Time now) const;
  [[nodiscard]] Time next_look() const;

  // What happens. A process is started, is idle some time later, and taken or dies at any time.
  void started() { starting_ = true; }
  void idle();
  void taken(bool was_idle) { forget(was_idle); }
  // Also for one that could not even be made: it counts as started.
  void died(bool was_idle, Time now);
  // Whether any gpulet loads.
  void loading(bool any, Time now);

 private:
  [[nodiscard]] bool lacks_one() const;
  void forget(bool was_idle);

  WarmPoolOptions options_;
  std::uint32_t idle_ = 0;
  bool starting_ = false;
  bool loading_ = false;
  std::uint32_t deaths_ = 0;  // in a row
  Time last_death_{};
  Time not_before_{};
};

}  // namespace gpulet::serve
