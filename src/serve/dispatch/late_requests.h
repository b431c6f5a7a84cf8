// LateRequests: answers waiting requests that cannot be served in time any more. Pure; one thread
// at a time.
#pragma once

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "serve/dispatch/dispatch_records.h"
#include "serve/dispatch/serving_slots.h"

namespace gpulet::serve {

class LateRequests {
 public:
  // All outlive it. `absence`: why no gpulet can become available; ok: one may.
  LateRequests(ModelQueues& queues, ServingSlots& slots, Answers& answers, const Status& absence)
      : queues_(queues), slots_(slots), answers_(answers), absence_(absence) {}

  // Those whose queue timeout passed, of a model with queue rules. Lowers `wake` to the next one.
  void answer_timeouts(ModelIndex model, Time now, Time& wake, DispatchOutput& out);
  // Those whose deadline no slot of the model can meet.
  void drop_hopeless(ModelIndex model, Time now, DispatchOutput& out);
  // The same for all models with a slot of this gpulet, which takes turns.
  void drop_hopeless(const RoutedGpulet& gpulet, Time now, DispatchOutput& out);

 private:
  ModelQueues& queues_;
  ServingSlots& slots_;
  Answers& answers_;
  const Status& absence_;
};

}  // namespace gpulet::serve
