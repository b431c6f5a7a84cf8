#include "serve/dispatch/retries.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "serve/values/event_log.h"

namespace gpulet::serve {

bool Retries::ended_process(const BatchResult& result) {
  return !result.status.ok() &&
         (result.cause == FailureCause::model_crash || result.cause == FailureCause::hung);
}

void Retries::lose_process(const BatchResult& result, Time now, DispatchOutput& out) {
  const GpuletId id = batches_.find(result.id)->gpulet;
  if (RoutedGpulet* const gpulet = gpulets_.find(id)) {
    slots_.change_ready(*gpulet, false);  // until its backend reports it ready again
    gpulets_.touch(*gpulet);
  }
  ProcessLost lost{id, {}, 0, result.cause, result.end};
  std::vector<BatchInFlight> batches;
  for (const BatchId batch : batches_.held_by(id)) {
    BatchInFlight held = batches_.take(batch);
    gpulets_.release(held, false, now);
    lost.requests += held.requests.size();
    const std::string& name = queues_.models()[held.model].name;
    if (std::find(lost.models.begin(), lost.models.end(), name) == lost.models.end())
      lost.models.push_back(name);
    batches.push_back(std::move(held));
  }
  for (BatchInFlight& batch : batches) suspect(std::move(batch), &lost, now, out);
  out.lost.push_back(std::move(lost));
}

void Retries::suspect(BatchInFlight batch, const ProcessLost* lost, Time now, DispatchOutput& out) {
  const std::optional<ModelIndex> queue = queues_.queue_for(batch.model);
  const std::string& name = queues_.models()[batch.model].name;
  std::string end;
  if (lost != nullptr) {
    end =
        fmt::format("the process serving model {} {}", name, how_it_ended(lost->cause, lost->end));
  }
  for (std::size_t i = 0; i < batch.requests.size(); ++i) {
    if (batch.is_answered(i)) continue;
    Request& request = batch.requests[i];
    if (lost != nullptr) {
      ++request.attempts;
      ++request.crashes;
    }
    if (request.crashes >= kMostCrashes) {
      answers_.refuse(
          batch.model, std::move(request),
          {StatusCode::internal,
           end + " while running this request alone, as one before it did while running "
                 "its batch; it is not tried again"},
          now, out);
    } else if (!queue) {
      answers_.refuse(batch.model, std::move(request), queues_.of(batch.model).closed, now, out);
    } else {
      queues_.of(*queue).suspects.push(std::move(request));
    }
  }
  if (!queue) return;
  queues_.of(*queue).lost =
      lost != nullptr
          ? end + " while running this batch"
          : fmt::format("model {}: another request of its batch could not be computed", name);
  slots_.arrived(*queue);
}

void Retries::put_back(BatchInFlight batch, const Status& why, Time now, DispatchOutput& out) {
  // A refusal is not the batch's fault; a failure or the end of its process may be.
  const bool refused = why.code() == StatusCode::too_late || why.code() == StatusCode::overloaded;
  const bool worth_another_try = refused || why.code() == StatusCode::unavailable;
  const std::optional<ModelIndex> queue = queues_.queue_for(batch.model);
  for (std::size_t i = 0; i < batch.requests.size(); ++i) {
    if (batch.is_answered(i)) continue;
    Request& request = batch.requests[i];
    if (!refused) ++request.attempts;
    if (!worth_another_try || request.attempts >= kMaxAttempts) {
      answers_.refuse(batch.model, std::move(request),
                      why.within("model " + queues_.models()[batch.model].name), now, out);
    } else if (!queue) {
      answers_.refuse(batch.model, std::move(request), queues_.of(batch.model).closed, now, out);
    } else {
      // The next pump drops those that cannot be served in time any more.
      queues_.of(*queue).push(std::move(request));
    }
  }
  if (queue) slots_.arrived(*queue);
}

const ServingSlot* Retries::slot_for_suspects(ModelIndex model) const {
  const ServingSlot* chosen = nullptr;
  for (const ServingSlot& one : slots_.of(model)) {
    if (!one.gpulet->ready) continue;
    if (chosen == nullptr || one.gpulet->slots.size() < chosen->gpulet->slots.size()) chosen = &one;
  }
  return chosen;
}

void Retries::pump(ModelIndex model, Time now, Time& wake, DispatchOutput& out) {
  ModelQueue& state = queues_.of(model);
  if (state.suspects.empty()) return;
  for (Request& request : state.suspects.take_due_before(now)) {
    const std::string why =
        state.lost.empty() ? fmt::format("model {}: a process ended while running this request",
                                         queues_.models()[model].name)
                           : state.lost;
    answers_.refuse(
        model, std::move(request),
        {StatusCode::unavailable, why + ", and no process could run it before its deadline"}, now,
        out);
  }
  if (state.suspects.empty()) return;
  wake = std::min(wake, state.suspects.front_deadline() + Duration(1));
  const ServingSlot* const slot = slot_for_suspects(model);
  if (slot == nullptr) return;
  slot->gpulet->reserved = true;  // for a suspect, as soon as it holds nothing
  if (slot->gpulet->in_flight > 0) return;
  sender_.send(*slot, state.suspects.take_due_from(now, 1), now, out);
}

}  // namespace gpulet::serve
