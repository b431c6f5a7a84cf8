// When a batch of a lane leaves that has its gpulet for itself, and with how many requests. A lane
// is one model's place on one gpulet; where several share a gpulet they take turns
// (serve/dispatcher.h).
//
// A batch leaves when it is full, when the lane's turn in the duty cycle has come, or when waiting
// longer would put the most urgent request's deadline at risk. A lane that was idle for a duty
// cycle has its turn at once. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <variant>

#include "gpulet/core/time.h"

namespace gpulet::batching {

struct LaneView {
  std::size_t waiting = 0;  // requests that this lane can still serve in time
  Time most_urgent{};       // the earliest deadline among them
  std::span<const Duration>
      execution;         // execution[n-1]: a batch of n; its size is the largest batch
  Time turn{};           // last dispatch plus one duty cycle
  Time start{};          // when the gpulet could start the batch: now, or after what it holds
  Duration allowance{};  // how much later than predicted a batch may end (batching/allowance.h)
};

struct Dispatch {
  std::uint32_t count = 0;  // 1 .. largest batch
};
struct WaitUntil {
  Time time{};  // ask again then, or when something changes; kNever: only when something changes
};
using Decision = std::variant<Dispatch, WaitUntil>;

// REQUIRES: a lane with a largest batch of at least 1.
[[nodiscard]] Decision decide(const LaneView& lane, Time now);

// The largest batch not above `wanted` that ends by `deadline` when started at `start`; at least 1.
[[nodiscard]] std::uint32_t largest_batch_by(std::span<const Duration> execution,
                                             std::uint32_t wanted, Time start, Time deadline);

}  // namespace gpulet::batching
