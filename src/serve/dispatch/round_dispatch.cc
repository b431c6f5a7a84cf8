#include "serve/dispatch/round_dispatch.h"

#include <algorithm>
#include <chrono>
#include <variant>

namespace gpulet::serve {

std::optional<batching::SlotView> RoundDispatch::view_of(const RoutedGpulet& gpulet,
                                                         const RoutedSlot& slot, Time now) const {
  const batching::PendingRequests& queue = queues_.of(slot.model).requests;
  if (queue.empty()) return std::nullopt;
  const Time reachable = slots_.reachable_deadline(gpulet, slot, now);
  batching::SlotView view;
  view.waiting = queue.count_due_from(reachable);
  if (view.waiting == 0) return std::nullopt;
  view.most_urgent = queue.first_deadline_from(reachable, slot.execution.size());
  view.execution = slot.execution;
  view.turn = slot.turn;
  view.start = std::max(now, gpulet.busy_until);
  const std::size_t count = std::min(view.waiting, slot.execution.size());
  view.allowance = gpulet.allowance.for_execution(slot.execution[count - 1]);
  view.bind =
      gpulet.in_flight > 0 ? view.start - time_ahead(slot, static_cast<std::uint32_t>(count)) : now;
  return view;
}

bool RoundDispatch::pump(const ServingSlot& one, Time now, Time& wake, DispatchOutput& out) {
  RoutedGpulet& gpulet = *one.gpulet;
  if (!gpulet.has_rounds()) return false;
  if (gpulet.takes_turns()) return pump_in_turn(one.id, gpulet, now, out);
  if (!gpulet.has_room()) return false;
  const RoutedSlot& slot = *one.slot;
  auto view = view_of(gpulet, slot, now);
  if (!view) return false;
  // Processes of one instance take turns already.
  view->yields = gpulet.processes == 1 && slots_.yields(slot);
  const batching::Decision decision = batching::decide(*view, now);
  if (const auto* wait = std::get_if<batching::WaitUntil>(&decision)) {
    wake = std::min(wake, wait->time);
    return false;
  }
  std::uint32_t count = std::get<batching::Dispatch>(decision).count;
  if (queues_.of(slot.model).requests.levels() != nullptr) {
    count = count_in_time(
        slot, *view, static_cast<std::uint32_t>(std::min(view->waiting, slot.execution.size())),
        slots_.reachable_deadline(gpulet, slot, now));
  }
  sender_.send_next(one, count, now, out);
  return true;
}

std::pair<RoutedSlot*, batching::SlotView> RoundDispatch::next_in_turn(RoutedGpulet& gpulet,
                                                                       Time now) const {
  auto turn = gpulet.turns.begin();
  auto yielding = gpulet.in_flight == 0 ? gpulet.yielding.begin() : gpulet.yielding.end();
  while (turn != gpulet.turns.end() || yielding != gpulet.yielding.end()) {
    const bool yields =
        turn == gpulet.turns.end() || (yielding != gpulet.yielding.end() && *yielding < *turn);
    RoutedSlot& slot = gpulet.slots[(yields ? yielding++ : turn++)->second];
    if (auto view = view_of(gpulet, slot, now)) return {&slot, *view};
  }
  return {};
}

// A batch is bound as late as possible: bound while another runs, it makes the next wait for both.
bool RoundDispatch::pump_in_turn(GpuletId id, RoutedGpulet& gpulet, Time now, DispatchOutput& out) {
  if (!gpulet.has_room()) return false;
  const auto [next, view] = next_in_turn(gpulet, now);
  if (next == nullptr) return false;
  if (now < view.bind) {
    agenda_.wake(id, gpulet.mark, view.bind);
    return false;
  }
  const auto most = static_cast<std::uint32_t>(std::min(view.waiting, next->execution.size()));
  const Time reachable = slots_.reachable_deadline(gpulet, *next, now);
  sender_.send_next({id, &gpulet, next}, count_in_time(*next, view, most, reachable), now, out);
  return true;
}

std::uint32_t RoundDispatch::count_in_time(const RoutedSlot& slot, const batching::SlotView& view,
                                           std::uint32_t wanted, Time reachable) const {
  const Time start = view.start + view.allowance;
  if (const batching::PriorityQueue* const levels = queues_.of(slot.model).requests.levels())
    return levels->largest_batch(reachable, slot.execution, wanted, start);
  return batching::largest_batch_by(slot.execution, wanted, start, view.most_urgent);
}

Duration RoundDispatch::time_ahead(const RoutedSlot& slot, std::uint32_t count) const {
  constexpr Duration kHandling = std::chrono::microseconds(300);
  constexpr double kBytesPerSecond = 2e9;
  const std::size_t bytes = queues_.models()[slot.model].input_bytes * count;
  return kHandling + from_seconds(static_cast<double>(bytes) / kBytesPerSecond);
}

}  // namespace gpulet::serve
