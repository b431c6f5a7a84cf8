// RoutedGpulet: a gpulet as the Dispatcher sees it: its slots, and the batches that it holds.
// Values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gpulet/base/time.h"
#include "gpulet/batching/dispatch_policy.h"
#include "gpulet/core/ids.h"
#include "gpulet/schedule/plan.h"
#include "gpulet/serve/values/frontend_status.h"
#include "serve/dispatch/agenda.h"
#include "serve/dispatch/gpulet_route.h"
#include "serve/dispatch/slot_order.h"

namespace gpulet::serve {

inline constexpr std::size_t kBatchesInFlight = 2;

struct RoutedSlot {
  ModelIndex model = 0;
  std::vector<Duration> execution;  // as in SlotSpec
  Time turn{};
  batching::RateSplit::Slot part;
};

struct RoutedGpulet {
  BackendId backend;
  Duration duty_cycle{};
  std::vector<RoutedSlot> slots;  // empty: it has no route any more
  // With several slots and rounds: those with waiting requests. `turns` and `yielding`: by their
  // turn; the latter leave it to others unless the gpulet is idle (ServingSlots::reorder).
  // `latest_starts`: by the latest start of a batch that serves the earliest request in time.
  SlotOrder turns;
  SlotOrder yielding;
  SlotOrder latest_starts;
  Duration longest{};  // of the slots' executions
  Agenda::GpuletMark mark;
  bool ready = true;
  std::size_t in_flight = 0;  // batches
  Duration expected{};        // sum over its batches
  Time busy_until{};          // predicted end of its batches
  batching::Allowance allowance;
  GpuletStatistics statistics;
  RecentPace pace;
  schedule::Service service = schedule::Service::rounds;
  std::uint32_t processes = 1;  // as in GpuletRoute
  std::uint64_t instance = 0;
  std::size_t at_once = 1;    // batches that it holds, without rounds
  std::size_t last_slot = 0;  // by_need: the slot that had the last turn
  bool reserved = false;      // for a suspect: takes nothing else until it holds nothing

  [[nodiscard]] bool has_rounds() const { return service == schedule::Service::rounds; }
  [[nodiscard]] bool takes_turns() const { return has_rounds() && slots.size() > 1; }
  // It can take one more batch.
  [[nodiscard]] bool has_room() const {
    return ready && !reserved && in_flight < (has_rounds() ? kBatchesInFlight : at_once);
  }
  // It takes a batch. Returns the batch's predicted end.
  Time hold(Duration duration, Time now) {
    ++in_flight;
    expected += duration;
    busy_until = std::max(now, busy_until) + duration;
    return busy_until;
  }
};

// A gpulet with a slot for a model. Valid until the routes change.
struct ServingSlot {
  GpuletId id;
  RoutedGpulet* gpulet = nullptr;
  RoutedSlot* slot = nullptr;
};

}  // namespace gpulet::serve
