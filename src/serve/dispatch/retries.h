// Retries: what becomes of the requests of a batch that was not served. They go back to the queue,
// or are answered if the batch or they themselves may be at fault.
//
// Requests under which a process ended or hung, or whose batch failed because of one of them, are
// suspects: each runs again in a batch of its own, on a gpulet that holds nothing else. Pure; one
// thread at a time.
#pragma once

#include <cstdint>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/protocol/messages.h"
#include "serve/dispatch/batch_sender.h"
#include "serve/dispatch/dispatch_records.h"
#include "serve/dispatch/routed_gpulets.h"

namespace gpulet::serve {

// A request is not tried again after this many failed batches: it may be the cause.
inline constexpr std::uint32_t kMaxAttempts = 3;
// Nor after this many crashed or hung processes: under the second one it ran alone.
inline constexpr std::uint32_t kMostCrashes = 2;

class Retries {
 public:
  // All outlive it.
  Retries(ModelQueues& queues, ServingSlots& slots, RoutedGpulets& gpulets,
          BatchesInFlight& batches, Answers& answers, BatchSender& sender)
      : queues_(queues),
        slots_(slots),
        gpulets_(gpulets),
        batches_(batches),
        answers_(answers),
        sender_(sender) {}

  // The result tells that the process of the gpulet ended.
  [[nodiscard]] static bool ended_process(const BatchResult& result);
  // Handles the first such result: the gpulet lost all its batches.
  // REQUIRES: ended_process(result), and its batch is in flight.
  void lose_process(const BatchResult& result, Time now, DispatchOutput& out);
  // One request made the batch fail: each runs again alone.
  void isolate(BatchInFlight batch, Time now, DispatchOutput& out) {
    suspect(std::move(batch), nullptr, now, out);
  }
  // The batch failed, was refused, or is lost.
  void put_back(BatchInFlight batch, const Status& why, Time now, DispatchOutput& out);

  // Sends a suspect of the model where a gpulet is free for it, and answers those whose deadline
  // has passed. Lowers `wake` to the next try.
  void pump(ModelIndex model, Time now, Time& wake, DispatchOutput& out);

 private:
  // `lost`: the process that ended; null: one request made it fail.
  void suspect(BatchInFlight batch, const ProcessLost* lost, Time now, DispatchOutput& out);
  // The gpulet with the fewest models, because they may lose their process; null: none is ready.
  [[nodiscard]] const ServingSlot* slot_for_suspects(ModelIndex model) const;

  ModelQueues& queues_;
  ServingSlots& slots_;
  RoutedGpulets& gpulets_;
  BatchesInFlight& batches_;
  Answers& answers_;
  BatchSender& sender_;
};

}  // namespace gpulet::serve
