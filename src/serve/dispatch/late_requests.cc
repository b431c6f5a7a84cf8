#include "serve/dispatch/late_requests.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace gpulet::serve {

void LateRequests::answer_timeouts(ModelIndex model, Time now, Time& wake, DispatchOutput& out) {
  batching::PriorityQueue* const levels = queues_.of(model).requests.levels();
  if (levels == nullptr) return;
  std::vector<Request> rejected = levels->take_rejected(now);
  slots_.reorder(model);
  for (Request& request : rejected) {
    answers_.refuse(model, std::move(request),
                    {StatusCode::too_late,
                     "model " + queues_.models()[model].name + ": its queue timeout passed"},
                    now, out);
  }
  wake = std::min(wake, levels->next_timeout());
}

void LateRequests::drop_hopeless(ModelIndex model, Time now, DispatchOutput& out) {
  batching::PendingRequests& requests = queues_.of(model).requests;
  if (requests.empty()) return;
  Time reachable = kNever;
  for (const ServingSlot& one : slots_.of(model)) {
    if (!one.gpulet->ready) continue;
    reachable = std::min(reachable, slots_.reachable_deadline(*one.gpulet, *one.slot, now));
    if (reachable <= requests.front_deadline()) return;  // all can be served
  }
  const bool none_ready = reachable == kNever;
  if (none_ready) reachable = now;  // a gpulet may become ready until the deadline
  std::vector<Request> hopeless = requests.take_due_before(reachable);
  if (hopeless.empty()) return;
  slots_.reorder(model);
  const std::string name = "model " + queues_.models()[model].name;
  for (Request& request : hopeless) {
    const bool slept = request.late_after != kNever;
    const char* const why = !none_ready ? ": the deadline could not be met any more"
                            : slept     ? ": it was asleep, and no gpulet was ready for it in time"
                                        : ": no gpulet was ready before the deadline";
    Status status = none_ready && !absence_.ok() ? absence_.within(name)
                                                 : Status(StatusCode::too_late, name + why);
    answers_.refuse(model, std::move(request), std::move(status), now, out);
  }
}

void LateRequests::drop_hopeless(const RoutedGpulet& gpulet, Time now, DispatchOutput& out) {
  // No slot's allowance is larger than that of the longest batch.
  const Time earliest =
      std::max(now, gpulet.busy_until) + gpulet.allowance.for_execution(gpulet.longest);
  std::vector<ModelIndex> late;
  for (const auto& [latest_start, slot] : gpulet.latest_starts) {
    if (latest_start >= earliest) break;
    late.push_back(gpulet.slots[slot].model);
  }
  for (const ModelIndex model : late) drop_hopeless(model, now, out);
}

}  // namespace gpulet::serve
