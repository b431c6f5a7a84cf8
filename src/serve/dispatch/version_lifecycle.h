// VersionLifecycle: versions of models begin to be dispatched, change, succeed one another and are
// forgotten. The requests of a version that ends go to its heir, or are answered. Pure; one thread
// at a time.
#pragma once

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "serve/dispatch/batch_sender.h"
#include "serve/dispatch/dispatch_records.h"

namespace gpulet::serve {

class VersionLifecycle {
 public:
  // All outlive it.
  VersionLifecycle(ModelQueues& queues, ServingSlots& slots, DispatchRecords& records,
                   const BatchesInFlight& batches, Answers& answers, BatchSender& sender)
      : queues_(queues),
        slots_(slots),
        records_(records),
        batches_(batches),
        answers_(answers),
        sender_(sender) {}

  // The first versions have the indices 0, 1, ...
  ModelIndex add(ServedModel model);
  // The SLO, rate, largest batch, queue rules or description of the version changed.
  void change(ModelIndex model, ServedModel changed);
  // `heir`, a new version of the model, takes over the counters and, if both have the same tensors,
  // the waiting requests. Otherwise these are answered, now or when they come back.
  void succeed(ModelIndex model, ModelIndex heir, Time now, DispatchOutput& out);
  // Sends waiting requests to its gpulets at once, as far as they have room.
  void flush(ModelIndex model, Time now, DispatchOutput& out);
  // Answers all waiting requests of the version with that status.
  void refuse_waiting(ModelIndex model, const Status& status, Time now, DispatchOutput& out);
  // No gpulet will serve it any more: answers its requests with `why`, now or when they come back.
  void close(ModelIndex model, const Status& why, Time now, DispatchOutput& out);
  // No gpulet has a slot for it, and no request waits or is in flight.
  [[nodiscard]] bool unused(ModelIndex model) const;
  // Frees its index. REQUIRES: unused.
  void forget(ModelIndex model);

 private:
  ModelQueues& queues_;
  ServingSlots& slots_;
  DispatchRecords& records_;
  const BatchesInFlight& batches_;
  Answers& answers_;
  BatchSender& sender_;
};

}  // namespace gpulet::serve
