// Agenda: the time of a simulation and what is due in it. Everything that happens has an order, so
// that events of one time are handled as they were caused. Pure; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <unordered_map>
#include <vector>

#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"

namespace gpulet::simulate {

// In the order in which they were added, from 0.
using NodeIndex = std::size_t;
using FrontendIndex = std::size_t;

// When something is due. Equal times are handled by order.
struct Due {
  Time time;
  std::uint64_t order = 0;

  friend auto operator<=>(const Due&, const Due&) = default;
};

struct Timer {
  enum class Kind : std::uint8_t { batch_done, node_wakes, call };
  Due due;
  Kind kind = Kind::call;
  NodeIndex node = 0;  // of a batch or a node that wakes
  GpuletId gpulet;     // of a batch

  friend bool operator>(const Timer& a, const Timer& b) { return a.due > b.due; }
};

class Agenda {
 public:
  using Call = std::function<void()>;

  [[nodiscard]] Time now() const { return now_; }
  // The time never goes back.
  void advance(Time time);
  // The order of an event that is caused now and that the agenda does not keep.
  std::uint64_t next_order() { return next_order_++; }

  // Returns the order of the timer.
  std::uint64_t add(Time time, Timer::Kind kind, NodeIndex node, GpuletId gpulet);
  // A time before now() counts as now.
  void call_at(Time time, Call call);

  // Null: none.
  [[nodiscard]] const Timer* first() const { return timers_.empty() ? nullptr : &timers_.top(); }
  // REQUIRES: there is a first timer.
  Timer take_first();
  // REQUIRES: the timer was taken, and is a call.
  void run_call(const Timer& timer);

 private:
  Time now_{std::chrono::seconds(1)};
  std::uint64_t next_order_ = 0;
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
  std::unordered_map<std::uint64_t, Call> calls_;  // by order
};

}  // namespace gpulet::simulate
