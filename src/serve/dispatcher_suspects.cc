// Dispatcher: requests under which a process ended or hung, or whose batch failed for what one of
// them holds. One of them may be what did it: each is tried again in a batch of its own, on a
// gpulet that holds nothing else, so that it is known which.
#include <algorithm>
#include <string>
#include <utility>

#include "gpulet/serve/dispatcher.h"
#include "serve/wording.h"

namespace gpulet::serve {

bool Dispatcher::ended_process(const BatchResult& result) {
  return !result.status.ok() &&
         (result.cause == FailureCause::model_crash || result.cause == FailureCause::hung);
}

// The process is gone, and with it all that its gpulet held, whichever result comes first.
void Dispatcher::lose_process(const BatchResult& result, Time now, DispatchOutput& out) {
  const GpuletId id = in_flight_.at(result.id).gpulet;
  if (const auto found = gpulets_.find(id); found != gpulets_.end())
    change_ready(found->second, false);  // until its backend says that it is ready again
  std::vector<BatchId> ids;
  for (const auto& [batch, held] : in_flight_) {
    if (held.gpulet == id) ids.push_back(batch);
  }
  std::sort(ids.begin(), ids.end());  // the same order on every run
  LostProcess lost{id, {}, 0, result.cause, result.end};
  std::vector<InFlight> batches;
  for (const BatchId batch : ids) {
    InFlight held = take_in_flight(batch);
    release(held, false, now);
    lost.requests += held.requests.size();
    const std::string& name = models_[held.model].name;
    if (std::find(lost.models.begin(), lost.models.end(), name) == lost.models.end())
      lost.models.push_back(name);
    batches.push_back(std::move(held));
  }
  for (InFlight& batch : batches) suspect(std::move(batch), lost, now, out);
  out.lost.push_back(std::move(lost));
}

void Dispatcher::suspect(InFlight batch, const LostProcess& lost, Time now, DispatchOutput& out) {
  const std::optional<ModelIndex> queue = queue_for(batch.model);
  const std::string what = "the process serving model " + models_[batch.model].name + " " +
                           how_it_ended(lost.cause, lost.end);
  for (std::size_t i = 0; i < batch.requests.size(); ++i) {
    if (batch.is_answered(i)) continue;
    Request& request = batch.requests[i];
    ++request.attempts;
    ++request.crashes;
    if (request.crashes >= kMostCrashes) {
      answer(batch.model, std::move(request),
             {StatusCode::internal,
              what + " while running this request alone, as one before it did while running its "
                     "batch; it is not tried again"},
             {}, now, out);
    } else if (!queue) {
      answer(batch.model, std::move(request), queue_of(batch.model).closed, {}, now, out);
    } else {
      queue_of(*queue).suspects.push(std::move(request));
    }
  }
  if (!queue) return;
  queue_of(*queue).lost = what + " while running this batch";
  arrived(*queue);
}

void Dispatcher::separate(InFlight batch, Time now, DispatchOutput& out) {
  const std::optional<ModelIndex> queue = queue_for(batch.model);
  for (std::size_t i = 0; i < batch.requests.size(); ++i) {
    if (batch.is_answered(i)) continue;
    Request& request = batch.requests[i];
    if (queue) {
      queue_of(*queue).suspects.push(std::move(request));
    } else {
      answer(batch.model, std::move(request), queue_of(batch.model).closed, {}, now, out);
    }
  }
  if (!queue) return;
  queue_of(*queue).lost =
      "model " + models_[batch.model].name + ": another request of its batch could not be computed";
  arrived(*queue);
}

// The one that has the fewest models beside it, which would lose their process with it.
const Dispatcher::Place* Dispatcher::place_for_suspects(ModelIndex model) const {
  const Place* chosen = nullptr;
  for (const Place& place : queue_of(model).places) {
    if (!place.gpulet->ready) continue;
    if (chosen == nullptr || place.gpulet->lanes.size() < chosen->gpulet->lanes.size())
      chosen = &place;
  }
  return chosen;
}

void Dispatcher::pump_suspects(ModelIndex model, Time now, Time& wake, DispatchOutput& out) {
  ModelQueue& state = queue_of(model);
  if (state.suspects.empty()) return;
  for (Request& request : state.suspects.take_due_before(now)) {
    answer(
        model, std::move(request),
        {StatusCode::unavailable, state.lost + ", and no process could run it before its deadline"},
        {}, now, out);
  }
  if (state.suspects.empty()) return;
  wake = std::min(wake, state.suspects.front_deadline() + Duration(1));
  const Place* const place = place_for_suspects(model);
  if (place == nullptr) return;
  Gpulet& gpulet = *place->gpulet;
  gpulet.reserved = true;  // for one of them, as soon as it holds nothing
  if (gpulet.in_flight > 0) return;
  send(place->id, gpulet, *place->lane, state.suspects.take_due_from(now, 1), now, out);
}

}  // namespace gpulet::serve
