#include "serve/dispatch/version_lifecycle.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace gpulet::serve {

ModelIndex VersionLifecycle::add(ServedModel model) {
  const ModelIndex index = queues_.add(std::move(model));
  slots_.add(index);
  records_.add(index);
  return index;
}

void VersionLifecycle::change(ModelIndex model, ServedModel changed) {
  if (queues_.change(model, std::move(changed))) slots_.queue_changed(model);
}

void VersionLifecycle::succeed(ModelIndex model, ModelIndex heir, Time now, DispatchOutput& out) {
  ModelQueue& old = queues_.of(model);
  ModelQueue& next = queues_.of(heir);
  for (const ModelIndex index : records_.succeed(model, heir)) {
    ModelQueue& queue = queues_.of(index);
    if (index != model && queue.heir != model) continue;
    queue.heir = queues_.same_tensors(index, heir) ? std::optional(heir) : std::nullopt;
    if (!queue.heir) {
      queue.closed = {
          StatusCode::unavailable,
          fmt::format("model {} was replaced by a version with other tensors; ask again for those",
                      queues_.models()[model].name)};
    }
  }
  next.heir.reset();
  next.closed = Status();
  if (!old.heir) return refuse_waiting(model, old.closed, now, out);
  for (Request& request : old.requests.take_all()) next.requests.push(std::move(request));
  if (!old.suspects.empty()) next.lost = old.lost;
  for (Request& request : old.suspects.take_due_before(kNever))
    next.suspects.push(std::move(request));
  slots_.reorder(model);
  slots_.arrived(heir);
}

void VersionLifecycle::flush(ModelIndex model, Time now, DispatchOutput& out) {
  const batching::PendingRequests& requests = queues_.of(model).requests;
  for (const ServingSlot& one : slots_.of(model)) {
    while (one.gpulet->has_room()) {
      const std::size_t waiting =
          requests.count_due_from(slots_.reachable_deadline(*one.gpulet, *one.slot, now));
      if (waiting == 0) break;
      sender_.send_next(one, std::min(waiting, one.slot->execution.size()), now, out);
    }
  }
}

void VersionLifecycle::refuse_waiting(ModelIndex model, const Status& status, Time now,
                                      DispatchOutput& out) {
  for (Request& request : queues_.take_all(model))
    answers_.refuse(model, std::move(request), status, now, out);
  slots_.reorder(model);
}

void VersionLifecycle::close(ModelIndex model, const Status& why, Time now, DispatchOutput& out) {
  queues_.of(model).heir.reset();
  queues_.of(model).closed = why;
  for (const ModelIndex index : records_.before(model)) {
    ModelQueue& queue = queues_.of(index);
    if (queue.heir != model) continue;
    queue.heir.reset();
    queue.closed = why;
  }
  refuse_waiting(model, why, now, out);
}

bool VersionLifecycle::unused(ModelIndex model) const {
  const ModelQueue& queue = queues_.of(model);
  return !slots_.has_slot(model) && queue.requests.empty() && queue.suspects.empty() &&
         !batches_.any_of(model);
}

void VersionLifecycle::forget(ModelIndex model) {
  records_.forget(model);
  slots_.forget(model);
  queues_.forget(model);
}

}  // namespace gpulet::serve
