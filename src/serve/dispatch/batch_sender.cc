#include "serve/dispatch/batch_sender.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "gpulet/batching/request_queue.h"

namespace gpulet::serve {
namespace {

// The requests whose payloads are here come first, then those of one entry after another.
void group_by_entry(std::vector<Request>& requests) {
  const auto entry_of = [](const Request& one) {
    return one.kept ? one.client.value : std::uint64_t{0};
  };
  std::stable_sort(requests.begin(), requests.end(), [&](const Request& a, const Request& b) {
    return std::pair(a.kept, entry_of(a)) < std::pair(b.kept, entry_of(b));
  });
}

// Adds the inputs, of `bytes` each, and the places where others are kept.
// REQUIRES: group_by_entry().
void add_rows(const std::vector<Request>& requests, std::size_t bytes, BatchToSend& to) {
  for (const Request& request : requests) {
    if (!request.kept) {
      to.batch.inputs.push_back(request.synthetic ? Bytes::own(std::vector<std::byte>(bytes))
                                                  : request.input);
      continue;
    }
    if (to.kept.empty() || to.kept.back().client != request.client)
      to.kept.push_back({request.client, {}});
    to.kept.back().tags.push_back(request.tag);
  }
}

}  // namespace

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

  BatchToSend sent{held.backend, {}};
  Batch& batch = sent.batch;
  batch.id = batches_.numbers().take();
  batch.gpulet = to.id;
  batch.model = model.name;
  batch.count = static_cast<std::uint32_t>(held.requests.size());
  // The batch is worth starting while its last request can still be served in time.
  batch.start_within =
      std::max(Duration::zero(), held.requests.back().deadline - held.expected - now);
  batch.expected_duration = held.expected;
  const bool kept = std::any_of(held.requests.begin(), held.requests.end(),
                                [](const Request& one) { return one.kept; });
  batch.synthetic = std::all_of(held.requests.begin(), held.requests.end(),
                                [](const Request& request) { return request.synthetic; });
  if (kept) {
    group_by_entry(held.requests);
    add_rows(held.requests, model.input_bytes, sent);
  } else if (!batch.synthetic) {
    batch.inputs = batching::gather_inputs(held.requests, model.input_sizes);
  }
  for (Request& request : held.requests) {
    request.trace.dispatched = now;
    request.trace.gpulet = to.id;
    request.trace.batch = batch.id;
    request.trace.batch_size = batch.count;
  }

  held.predicted_end = to.gpulet->hold(held.expected, now);
  slots_.take(to, held.requests.size(), now);
  out.batches.push_back(std::move(sent));
  batches_.add(out.batches.back().batch.id, std::move(held));
}

}  // namespace gpulet::serve
