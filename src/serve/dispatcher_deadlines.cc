// Dispatcher: requests whose deadline passes while their batch runs. Each is answered then; the
// batch keeps its place in flight until its gpulet answers or goes.
#include <algorithm>
#include <utility>

#include "gpulet/serve/dispatcher.h"

namespace gpulet::serve {

// The earliest time by which one of its requests must be answered.
Time Dispatcher::InFlight::next_answer_by() const {
  Time next = kNever;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (!is_answered(i)) next = std::min(next, requests[i].answer_by());
  }
  return next;
}

Dispatcher::InFlight Dispatcher::take_in_flight(BatchId id) {
  const auto found = in_flight_.find(id);
  InFlight batch = std::move(found->second);
  in_flight_.erase(found);
  deadlines_.remove(batch.answer_by, id);
  --queue_of(batch.model).in_flight;
  return batch;
}

void Dispatcher::answer_overdue(Time now, DispatchOutput& out) {
  for (const BatchId id : deadlines_.take_passed(now)) {
    InFlight& batch = in_flight_.at(id);
    for (std::size_t i = 0; i < batch.requests.size(); ++i) {
      if (!batch.is_answered(i) && batch.requests[i].answer_by() < now)
        answer_overdue(batch, i, now, out);
    }
    batch.answer_by = batch.next_answer_by();
    deadlines_.add(batch.answer_by, id);
  }
}

void Dispatcher::answer_overdue(InFlight& batch, std::size_t index, Time now, DispatchOutput& out) {
  batch.answered.resize(batch.requests.size());
  batch.answered[index] = true;
  // The batch keeps the request's place among those under way: its gpulet still works for it.
  Request& request = batch.requests[index];
  request.input = Bytes();
  ++queue_of(queue_of(batch.model).counted_as).counters.overdue;
  answer(batch.model, Request(request),
         {StatusCode::too_late,
          "model " + models_[batch.model].name + ": its batch was still running at the deadline"},
         {}, now, out);
}

}  // namespace gpulet::serve
