#include "serve/dispatch/batch_sender.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "gpulet/batching/request_queue.h"

namespace gpulet::serve {

void BatchSender::send_next(const ServingSlot& to, std::size_t count, Time now,
                            DispatchOutput& out) {
  const Time reachable = slots_.reachable_deadline(*to.gpulet, *to.slot, now);
  send(to, queues_.of(to.slot->model).requests.take_due_from(reachable, count), now, out);
}

void BatchSender::send(const ServingSlot& to, std::vector<Request> requests, Time now,
                       DispatchOutput& out) {
  const ServedModel& model = queues_.models()[to.slot->model];
  BatchInFlight held;
  held.gpulet = to.id;
  held.backend = to.gpulet->backend;
  held.model = to.slot->model;
  held.requests = std::move(requests);
  held.expected = to.slot->execution[held.requests.size() - 1];
  held.planned = to.slot->execution.size();

  Batch batch;
  batch.id = batches_.numbers().take();
  batch.gpulet = to.id;
  batch.model = model.name;
  batch.count = static_cast<std::uint32_t>(held.requests.size());
  // The batch is worth starting while its last request can still be served in time.
  batch.start_within =
      std::max(Duration::zero(), held.requests.back().deadline - held.expected - now);
  batch.expected_duration = held.expected;
  batch.inputs = batching::gather_inputs(held.requests, model.input_sizes);
  for (Request& request : held.requests) {
    request.trace.dispatched = now;
    request.trace.gpulet = to.id;
    request.trace.batch = batch.id;
    request.trace.batch_size = batch.count;
  }

  held.predicted_end = to.gpulet->hold(held.expected, now);
  slots_.take(to, held.requests.size(), now);
  out.batches.push_back({held.backend, std::move(batch)});
  batches_.add(out.batches.back().batch.id, std::move(held));
}

}  // namespace gpulet::serve
