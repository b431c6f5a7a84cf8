// BatchSender: makes batches of waiting requests, and gives them to gpulets. Pure; one thread at a
// time.
#pragma once

#include <cstddef>
#include <vector>

#include "gpulet/base/time.h"
#include "serve/dispatch/batches_in_flight.h"
#include "serve/dispatch/dispatch_output.h"
#include "serve/dispatch/model_queues.h"
#include "serve/dispatch/serving_slots.h"

namespace gpulet::serve {

class BatchSender {
 public:
  // All outlive it.
  BatchSender(ModelQueues& queues, ServingSlots& slots, BatchesInFlight& batches)
      : queues_(queues), slots_(slots), batches_(batches) {}

  // Sends the first `count` requests that the slot can still serve in time.
  void send_next(const ServingSlot& to, std::size_t count, Time now, DispatchOutput& out);
  // Sends these requests of the slot's model. REQUIRES: between one and the slot's largest batch.
  void send(const ServingSlot& to, std::vector<Request> requests, Time now, DispatchOutput& out);

 private:
  ModelQueues& queues_;
  ServingSlots& slots_;
  BatchesInFlight& batches_;
};

}  // namespace gpulet::serve
