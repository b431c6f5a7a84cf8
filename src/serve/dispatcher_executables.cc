// Dispatcher: executables, which take one request at a time.
#include <algorithm>
#include <utility>

#include "gpulet/serve/dispatcher.h"

namespace gpulet::serve {

using schedule::Service;

bool Dispatcher::by_executables(ModelIndex model) const {
  const std::vector<Place>& places = queue_of(model).places;
  return !places.empty() && std::all_of(places.begin(), places.end(), [](const Place& place) {
    return place.gpulet->service != Service::rounds;
  });
}

void Dispatcher::set_expected(GpuletId executable, Duration expected) {
  const auto found = gpulets_.find(executable);
  if (found == gpulets_.end()) return;
  for (Lane& lane : found->second.lanes) lane.execution.assign(1, expected);
}

void Dispatcher::pump_executables(Time now, DispatchOutput& out) {
  executables_due_ = false;
  for (const GpuletId id : by_need_) pump_by_need(id, gpulets_.at(id), now, out);
  if (!controlled_.empty()) pump_controlled(now, out);
}

void Dispatcher::pump_by_need(GpuletId id, Gpulet& gpulet, Time now, DispatchOutput& out) {
  if (!has_room(gpulet)) return;
  std::vector<batching::ModelNeed> models;
  models.reserve(gpulet.lanes.size());
  for (const Lane& lane : gpulet.lanes) {
    const ModelQueue& state = queue_of(lane.model);
    batching::ModelNeed& model = models.emplace_back();
    model.queued = state.requests.count_due_from(now);
    if (model.queued == 0) continue;
    model.mean_waited = state.requests.mean_waited(now);
    model.device_time = lane.execution.front();
    const std::optional<Responses>& responses = queue_of(state.counted_as).responses;
    if (responses) model.response = responses->recent_mean(now);
    model.objective = from_ms(models_[lane.model].slo_ms);
  }
  const auto chosen = control_.gpu == control::GpuRule::need
                          ? batching::neediest(models, {control_.set_point, control_.queued_weight},
                                               gpulet.last_lane)
                          : batching::next_in_turn(models, gpulet.last_lane);
  if (!chosen) return;
  gpulet.last_lane = *chosen;
  dispatch(id, gpulet, gpulet.lanes[*chosen], 1, now, out);
}

// Queues in random order, each to one of its executables that are free, until either runs out.
void Dispatcher::pump_controlled(Time now, DispatchOutput& out) {
  std::map<ModelIndex, std::vector<Place>> free;
  for (const GpuletId id : controlled_) {
    Gpulet& gpulet = gpulets_.at(id);
    if (!has_room(gpulet) || gpulet.lanes.empty()) continue;
    const Place place{id, &gpulet, &gpulet.lanes.front()};
    if (taking_of(place, now).which != Taking::Which::none)
      free[place.lane->model].push_back(place);
  }
  while (!free.empty()) {
    const auto chosen =
        std::next(free.begin(), static_cast<std::ptrdiff_t>(chance_.below(free.size())));
    auto& [model, places] = *chosen;
    const std::size_t at = chance_.below(places.size());
    const Place place = places[at];
    const Taking taking = taking_of(place, now);
    batching::WaitingRequests& requests = queue_of(model).requests;
    std::vector<Request> taken;
    if (taking.which == Taking::Which::first) {
      taken = requests.take_due_from(taking.from, 1);
    } else {
      taken.push_back(requests.take_last());
    }
    send(place.id, *place.gpulet, *place.lane, std::move(taken), now, out);
    places.erase(places.begin() + static_cast<std::ptrdiff_t>(at));
    std::erase_if(places, [&](const Place& other) {
      return taking_of(other, now).which == Taking::Which::none;
    });
    if (places.empty()) free.erase(chosen);
  }
}

Time Dispatcher::reachable_by_rounds(ModelIndex model, Time now) const {
  Time reachable = kNever;
  for (const Place& place : queue_of(model).places) {
    if (!place.gpulet->ready || place.gpulet->service != Service::rounds) continue;
    reachable = std::min(reachable, reachable_deadline(*place.gpulet, *place.lane, now));
  }
  return reachable;
}

// Beside gpulets with rounds an executable takes only what they cannot serve in time, and it can:
// the first that are too late for them, or the last of more than their next batches hold.
Dispatcher::Taking Dispatcher::taking_of(const Place& executable, Time now) const {
  const ModelIndex model = executable.lane->model;
  const batching::WaitingRequests& requests = queue_of(model).requests;
  const bool alone = by_executables(model);
  const Time from = alone ? now : now + executable.lane->execution.front();
  if (requests.count_due_from(from) == 0) return {};
  if (alone || requests.first_deadline_from(from, 1) < reachable_by_rounds(model, now))
    return {Taking::Which::first, from};
  return {backlogged(model) ? Taking::Which::last : Taking::Which::none, from};
}

void Dispatcher::record_response(ModelIndex model, const Request& request, const Status& status,
                                 Time now) {
  std::optional<Responses>& responses = queue_of(model).responses;
  if (!responses) return;
  if (status.ok()) {
    const auto served_by = gpulets_.find(request.trace.gpulet);
    const bool on_cpu =
        served_by != gpulets_.end() && served_by->second.service == Service::controlled;
    responses->record(now - request.trace.arrived,
                      on_cpu ? Responses::Where::cpu : Responses::Where::gpu, now);
  } else if (status.code() == StatusCode::too_late) {
    responses->record(std::max(now - request.trace.arrived, 2 * from_ms(models_[model].slo_ms)),
                      Responses::Where::nowhere, now);
  }
}

Responses::Period Dispatcher::take_period(ModelIndex model) {
  std::optional<Responses>& responses = queue_of(model).responses;
  return responses ? responses->take_period() : Responses::Period{};
}

Duration Dispatcher::mean_age(ModelIndex model, Time now) const {
  const batching::WaitingRequests& waiting = queue_of(model).requests;
  std::int64_t count = static_cast<std::int64_t>(waiting.size());
  Duration sum = count == 0 ? Duration{} : waiting.mean_waited(now) * count;
  for (const auto& [id, batch] : in_flight_) {
    if (batch.model != model) continue;
    for (std::size_t i = 0; i < batch.requests.size(); ++i) {
      if (batch.is_answered(i)) continue;
      sum += now - batch.requests[i].trace.arrived;
      ++count;
    }
  }
  return count == 0 ? Duration{} : sum / count;
}

}  // namespace gpulet::serve
