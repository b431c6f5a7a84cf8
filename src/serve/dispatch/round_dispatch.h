// RoundDispatch: when gpulets with rounds take batches. A model that has a gpulet to itself gathers
// them (batching/dispatch_policy.h); models that share one take turns. Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "gpulet/base/time.h"
#include "gpulet/batching/dispatch_policy.h"
#include "serve/dispatch/batch_sender.h"

namespace gpulet::serve {

class RoundDispatch {
 public:
  // All outlive it.
  RoundDispatch(const ModelQueues& queues, const ServingSlots& slots, BatchSender& sender,
                Agenda& agenda)
      : queues_(queues), slots_(slots), sender_(sender), agenda_(agenda) {}

  // Sends one batch of the gpulet if one is due; otherwise lowers `wake` to the next try. Returns
  // whether it sent one. Does nothing for instances.
  bool pump(const ServingSlot& one, Time now, Time& wake, DispatchOutput& out);
  // The same for a gpulet whose models take turns, with its own next try.
  bool pump_in_turn(GpuletId id, RoutedGpulet& gpulet, Time now, DispatchOutput& out);

 private:
  // Empty: no request waits that the slot can still serve in time.
  [[nodiscard]] std::optional<batching::SlotView> view_of(const RoutedGpulet& gpulet,
                                                          const RoutedSlot& slot, Time now) const;
  // The slot whose turn it is, with its view; null: none has requests that it can serve.
  [[nodiscard]] std::pair<RoutedSlot*, batching::SlotView> next_in_turn(RoutedGpulet& gpulet,
                                                                        Time now) const;
  // The size of the slot's next batch, at most `wanted`, so that it ends in time.
  [[nodiscard]] std::uint32_t count_in_time(const RoutedSlot& slot, const batching::SlotView& view,
                                            std::uint32_t wanted, Time reachable) const;
  // The time to transfer a batch to its proxy.
  [[nodiscard]] Duration time_ahead(const RoutedSlot& slot, std::uint32_t count) const;

  const ModelQueues& queues_;
  const ServingSlots& slots_;
  BatchSender& sender_;
  Agenda& agenda_;
};

}  // namespace gpulet::serve
