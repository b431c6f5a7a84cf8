// When a gpulet or device gets its next batch: for which model, and with how many requests. Pure;
// any thread, except Allowance: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>

#include "gpulet/base/time.h"

namespace gpulet::batching {

// ---- a model slot that has its gpulet to itself

// A model slot is one model's place on one gpulet.
struct SlotView {
  std::size_t waiting = 0;  // queued requests that this slot can still serve in time
  Time most_urgent{};       // the earliest deadline among them
  // execution[n-1]: duration of a batch of n requests. Its size is the largest batch.
  std::span<const Duration> execution;
  Time turn{};           // the last dispatch plus one duty cycle
  Time start{};          // the earliest start of a batch: now, or after the batches in flight
  Duration allowance{};  // Allowance::for_execution()
  // A batch that is sent by then can start at `start`; after that no request joins it.
  Time bind{};
  bool yields = false;  // it had its part of the model's requests: others should take these
};

struct Dispatch {
  std::uint32_t count = 0;  // 1 .. largest batch
};
struct WaitUntil {
  Time time{};  // decide again then, or when the queue changes; kNever: only when it changes
};
using Decision = std::variant<Dispatch, WaitUntil>;

// A batch is dispatched when it is full, when the slot's turn in the duty cycle has come, or when
// waiting longer would put the earliest deadline at risk; but not before `bind` unless it is full:
// where batches take longer than planned, one would be sent each duty cycle and be ever smaller. A
// slot that was idle for a duty cycle dispatches at once. One that yields dispatches only where the
// earliest deadline is at risk. REQUIRES: slot.execution is not empty.
[[nodiscard]] Decision decide(const SlotView& slot, Time now);

// The largest batch of at most `requested` requests that ends by `deadline` when it starts at
// `start`; at least 1.
[[nodiscard]] std::uint32_t largest_batch_by(std::span<const Duration> execution,
                                             std::uint32_t requested, Time start, Time deadline);

// How much later than predicted the batches of a gpulet end, because of transfers or a device that
// is slower than its profile: a smoothed mean. Chance is no part of it: a request that is given up
// because its batch might take longer mostly would have been in time. So the mean is over many
// batches, and one that takes very long counts as twice the largest allowance.
class Allowance {
 public:
  // `error`: the end of a batch minus its predicted end. `execution`: its predicted duration.
  void observe(Duration error, Duration execution);

  // The time to add to the prediction of a batch of that duration. At least 0.5 ms; at most 2 ms
  // plus a quarter of `execution`, because after one long stall a larger allowance would stop
  // all dispatching, and with it the observations that correct the allowance.
  [[nodiscard]] Duration for_execution(Duration execution) const;

 private:
  static constexpr int kBatches = 32;
  Duration mean_{};
};

// ---- a model with several slots

// Divides a model's requests among its slots in proportion to their planned rates. A slot that is
// ahead of its part leaves requests to the others: on a gpulet that it shares, more than its part
// is time that the plan gave to its neighbours in the round.
class RateSplit {
 public:
  struct Slot {
    double rate = 0;      // planned requests per second; 0: none was planned, and it is never ahead
    double served_s = 0;  // its requests in seconds of its rate
  };

  // Forgets all slots.
  void clear();
  // Starts to count the slot.
  void join(Slot& slot);
  // Whether the slot took more than its part of what all slots took. One of them never did.
  [[nodiscard]] bool ahead(const Slot& slot) const;
  // The slot takes `count` requests. It is at most kMostBatches of its batches ahead or behind
  // afterwards, so that a slot that could not serve for a while does not have to catch up.
  void take(Slot& slot, std::size_t count, std::size_t largest_batch);

 private:
  static constexpr double kMostBatches = 2;
  void limit(Slot& slot, double most_s);

  double rate_ = 0;      // of all slots
  double served_s_ = 0;  // the mean over the slots, by rate
};

// ---- a device that several models share request by request

// A device that becomes free serves the model whose response time is furthest above its set point.
// Source: ROMA, algorithm 1; the listing in the paper omits beta and alpha, which its text defines.
struct ModelNeed {
  std::size_t queued = 0;            // number of requests
  Duration mean_waited{};            // of the queued requests, so far
  Duration device_time{};            // of one request on the device, from the profile
  std::optional<Duration> response;  // recent mean response time; empty without recent responses
  Duration objective{};              // above zero
};

struct NeedRule {
  double set_point = 0.8;      // alpha: fraction of the objective
  double queued_weight = 0.5;  // beta: weight of queued requests against answered ones
};

// The excess of the model's response time over its set point, as a fraction of the set point; 0 at
// or below it. The estimate for queued requests adds the execution of the requests before them to
// the time that they have waited. Without recent responses the estimate counts alone.
[[nodiscard]] double need_of(const ModelNeed& model, const NeedRule& rule);

// The index of the model with the largest need among those with queued requests. Ties go to the
// longest queue, then to the first model after `last` in cyclic order. Empty without requests.
[[nodiscard]] std::optional<std::size_t> neediest(std::span<const ModelNeed> models,
                                                  const NeedRule& rule, std::size_t last);

// The first model after `last`, in cyclic order, with queued requests. Empty without requests.
[[nodiscard]] std::optional<std::size_t> next_in_turn(std::span<const ModelNeed> models,
                                                      std::size_t last);

}  // namespace gpulet::batching
