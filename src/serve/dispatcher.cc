#include "gpulet/serve/dispatcher.h"

#include <algorithm>
#include <utility>

#include "gpulet/batching/form.h"

namespace gpulet::serve {

Dispatcher::Dispatcher(std::vector<ServedModel> models, std::uint32_t max_queue_per_model,
                       BatchId first_batch, const control::Options& control)
    : models_(std::move(models)),
      max_queue_(max_queue_per_model),
      scheduled_wake_(models_.size(), kNever),
      first_batch_(first_batch),
      next_batch_(first_batch),
      control_(control),
      chance_(control.seed) {
  for (ModelIndex model = 0; model < models_.size(); ++model) {
    queues_.emplace_back(std::make_unique<ModelQueue>())->counted_as = model;
    queue_of(model).requests.set_rules(models_[model].queue);
  }
}

// ---- models

ModelIndex Dispatcher::add(ServedModel model) {
  if (free_.empty()) {
    free_.push_back(models_.size());
    models_.emplace_back();
    queues_.push_back(std::make_unique<ModelQueue>());
    scheduled_wake_.push_back(kNever);
  }
  const ModelIndex index = free_.back();
  free_.pop_back();
  models_[index] = std::move(model);
  queue_of(index).counted_as = index;
  queue_of(index).requests.set_rules(models_[index].queue);
  return index;
}

void Dispatcher::change(ModelIndex model, ServedModel changed) {
  models_[model] = std::move(changed);
  if (queue_of(model).requests.set_rules(models_[model].queue)) touch(model);
}

bool Dispatcher::same_tensors(ModelIndex a, ModelIndex b) const {
  return models_[a].inputs == models_[b].inputs && models_[a].outputs == models_[b].outputs;
}

std::optional<ModelIndex> Dispatcher::queue_for(ModelIndex model) const {
  if (queue_of(model).heir) return queue_of(model).heir;
  return queue_of(model).closed.ok() ? std::optional(model) : std::nullopt;
}

void Dispatcher::succeed(ModelIndex model, ModelIndex heir, Time now, DispatchOutput& out) {
  ModelQueue& old = queue_of(model);
  ModelQueue& next = queue_of(heir);
  next.counters = std::exchange(old.counters, {});
  next.statistics = std::exchange(old.statistics, {});
  next.latency = std::exchange(old.latency, observe::RecentHistogram(kLatencyWindow));
  next.outcomes = std::exchange(old.outcomes, {});
  next.responses = std::exchange(old.responses, std::nullopt);
  std::vector<ModelIndex> versions = std::exchange(old.before, {});
  versions.push_back(model);
  next.before.insert(next.before.end(), versions.begin(), versions.end());
  for (const ModelIndex index : versions) {
    ModelQueue& queue = queue_of(index);
    queue.counted_as = heir;
    if (index != model && queue.heir != model) continue;
    queue.heir = same_tensors(index, heir) ? std::optional(heir) : std::nullopt;
    if (!queue.heir) {
      queue.closed = {StatusCode::unavailable,
                      "model " + models_[model].name +
                          " was replaced by a version with other tensors; ask again for those"};
    }
  }
  next.heir.reset();
  next.closed = Status();
  if (!old.heir) {
    refuse_waiting(model, old.closed, now, out);
    return;
  }
  for (Request& request : old.requests.take_all()) next.requests.push(std::move(request));
  for (Request& request : old.suspects.take_due_before(kNever))
    next.requests.push(std::move(request));
  arrived(heir);
}

void Dispatcher::close(ModelIndex model, const Status& why, Time now, DispatchOutput& out) {
  queue_of(model).heir.reset();
  queue_of(model).closed = why;
  for (const ModelIndex index : queue_of(model).before) {
    ModelQueue& queue = queue_of(index);
    if (queue.heir != model) continue;
    queue.heir.reset();
    queue.closed = why;
  }
  refuse_waiting(model, why, now, out);
}

bool Dispatcher::unused(ModelIndex model) const {
  const ModelQueue& queue = queue_of(model);
  return queue.places.empty() && queue.requests.empty() && queue.suspects.empty() &&
         queue.in_flight == 0;
}

void Dispatcher::forget(ModelIndex model) {
  for (const ModelIndex index : queue_of(model).before) queue_of(index).counted_as = index;
  std::erase(queue_of(queue_of(model).counted_as).before, model);
  const bool touched = queue_of(model).touched;
  const bool listed = queue_of(model).listed;
  models_[model] = ServedModel();
  queue_of(model) = ModelQueue();
  queue_of(model).counted_as = model;
  queue_of(model).touched = touched;
  queue_of(model).listed = listed;
  scheduled_wake_[model] = kNever;
  free_.push_back(model);
}

void Dispatcher::arrived(ModelIndex model) {
  touch(model);
  if (std::exchange(queue_of(model).listed, true)) return;
  waiting_.push_back(model);
}

// ---- gpulets

void Dispatcher::touch(ModelIndex model) {
  executables_due_ = true;
  if (queue_of(model).touched) return;
  queue_of(model).touched = true;
  touched_.push_back(model);
}

void Dispatcher::touch(const Gpulet& gpulet) {
  for (const Lane& lane : gpulet.lanes) touch(lane.model);
}

void Dispatcher::change_ready(Gpulet& gpulet, bool ready) {
  if (gpulet.ready == ready) return;
  gpulet.ready = ready;
  if (gpulet.service != schedule::Service::rounds) return;
  for (const Lane& lane : gpulet.lanes) {
    std::size_t& room = queue_of(lane.model).room;
    room = ready ? room + lane.execution.size() : room - lane.execution.size();
  }
}

void Dispatcher::set_routes(const std::vector<Route>& routes, Time now) {
  for (auto& [id, gpulet] : gpulets_) gpulet.lanes.clear();
  for (const auto& state : queues_) {
    state->places.clear();
    state->room = 0;
  }
  by_need_.clear();
  controlled_.clear();
  for (const Route& route : routes) {
    Gpulet& gpulet = gpulets_[route.gpulet];
    gpulet.backend = route.backend;
    gpulet.duty_cycle = route.duty_cycle;
    gpulet.service = route.service;
    if (route.service == schedule::Service::by_need) by_need_.push_back(route.gpulet);
    if (route.service == schedule::Service::controlled) controlled_.push_back(route.gpulet);
    for (const LaneSpec& spec : route.lanes) {
      gpulet.lanes.push_back({spec.model, spec.execution, now});
      if (gpulet.ready && route.service == schedule::Service::rounds)
        queue_of(spec.model).room += spec.execution.size();
      if (route.service != schedule::Service::rounds && !queue_of(spec.model).responses)
        queue_of(spec.model).responses.emplace(control_.period);
    }
    for (Lane& lane : gpulet.lanes) {
      queue_of(lane.model).places.push_back({route.gpulet, &gpulet, &lane});
    }
    touch(gpulet);
  }
  for (const auto& state : queues_) {
    std::sort(state->places.begin(), state->places.end(),
              [](const Place& a, const Place& b) { return a.id < b.id; });
  }
  std::erase_if(gpulets_, [](const auto& entry) {
    return entry.second.lanes.empty() && entry.second.in_flight == 0;
  });
}

void Dispatcher::set_ready(GpuletId id, bool ready, Time now) {
  const auto found = gpulets_.find(id);
  if (found == gpulets_.end()) return;
  change_ready(found->second, ready);
  found->second.busy_until = std::max(found->second.busy_until, now);
  touch(found->second);
}

void Dispatcher::remove(GpuletId id, Time now, DispatchOutput& out) {
  const auto found = gpulets_.find(id);
  if (found == gpulets_.end()) return;
  touch(found->second);
  change_ready(found->second, false);
  for (const Lane& lane : found->second.lanes) {
    std::erase_if(queue_of(lane.model).places, [id](const Place& place) { return place.id == id; });
  }
  gpulets_.erase(found);
  std::erase(by_need_, id);
  std::erase(controlled_, id);
  std::vector<BatchId> lost;
  for (const auto& [batch, held] : in_flight_) {
    if (held.gpulet == id) lost.push_back(batch);
  }
  std::sort(lost.begin(), lost.end());  // the same order on every run
  for (const BatchId batch : lost) {
    put_back(take_in_flight(batch), {StatusCode::unavailable, "its gpulet was lost"}, now, out);
  }
}

bool Dispatcher::has_ready_lane(ModelIndex model) const {
  return std::any_of(queue_of(model).places.begin(), queue_of(model).places.end(),
                     [](const Place& place) { return place.gpulet->ready; });
}

std::size_t Dispatcher::in_flight(GpuletId id) const {
  const auto found = gpulets_.find(id);
  return found == gpulets_.end() ? 0 : found->second.in_flight;
}

std::vector<Duration> Dispatcher::execution(GpuletId id, ModelIndex model) const {
  const auto found = gpulets_.find(id);
  if (found == gpulets_.end()) return {};
  const auto& lanes = found->second.lanes;
  const auto lane = std::find_if(lanes.begin(), lanes.end(),
                                 [model](const Lane& one) { return one.model == model; });
  return lane == lanes.end() ? std::vector<Duration>() : lane->execution;
}

// ---- requests

void Dispatcher::enqueue(ModelIndex model, Request&& request, Time now, DispatchOutput& out) {
  ModelQueue& state = queue_of(model);
  ++state.counters.offered;
  if (state.requests.size() >= max_queue_) {
    answer(model, std::move(request),
           {StatusCode::overloaded, "model " + models_[model].name + ": " +
                                        std::to_string(max_queue_) +
                                        " requests are waiting already; send slower"},
           {}, now, out);
    return;
  }
  if (const batching::LevelQueue* const levels = state.requests.levels();
      levels != nullptr && levels->full_for(request)) {
    const std::uint32_t level = levels->rules().level_of(request.priority);
    const std::uint32_t most = levels->rules().policy_of(level).max_queue_size;
    answer(model, std::move(request),
           {StatusCode::overloaded,
            "model " + models_[model].name + ": " + std::to_string(most) +
                (level == 0 ? " requests" : " requests of priority " + std::to_string(level)) +
                " are waiting already, its max_queue_size; send slower"},
           {}, now, out);
    return;
  }
  state.requests.push(std::move(request));
  arrived(model);
}

void Dispatcher::refuse(ModelIndex model, Request&& request, Status status, DispatchOutput& out) {
  ++queue_of(model).counters.offered;
  const Time arrived = request.trace.arrived;
  answer(model, std::move(request), std::move(status), {}, arrived, out);
}

void Dispatcher::client_gone(ClientId client) {
  std::erase_if(waiting_, [this, client](ModelIndex model) {
    ModelQueue& state = queue_of(model);
    const std::size_t gone =
        state.requests.remove_client(client) + state.suspects.remove_client(client);
    ModelQueue& counted = queue_of(state.counted_as);
    counted.counters.failed += gone;
    counted.statistics.add_cancelled(gone);
    state.listed = !state.requests.empty() || !state.suspects.empty();
    return !state.listed;
  });
}

void Dispatcher::withdraw(ModelIndex model, ClientId client, std::uint64_t tag) {
  ModelQueue& state = queue_of(model);
  if (!state.requests.remove(client, tag) && !state.suspects.remove(client, tag)) return;
  ModelQueue& counted = queue_of(queue_of(model).counted_as);
  ++counted.counters.failed;
  counted.statistics.add_cancelled(1);
}

void Dispatcher::refuse_waiting(ModelIndex model, const Status& status, Time now,
                                DispatchOutput& out) {
  ModelQueue& state = queue_of(model);
  for (Request& request : state.requests.take_all())
    answer(model, std::move(request), status, {}, now, out);
  for (Request& request : state.suspects.take_due_before(kNever))
    answer(model, std::move(request), status, {}, now, out);
}

void Dispatcher::answer(ModelIndex model, Request&& request, Status status,
                        std::vector<Bytes> outputs, Time now, DispatchOutput& out,
                        const BatchTimes& times) {
  ModelQueue& state = queue_of(queue_of(model).counted_as);
  request.trace.answered = now;
  record_response(queue_of(model).counted_as, request, status, now);
  const Duration latency = now - request.trace.arrived;
  if (status.ok()) {
    ++state.counters.served;
    const bool late = now > request.due();
    if (late) ++state.counters.late;
    state.outcomes.add_served(late, now);
    state.latency.record(latency, now);
    const RequestTrace& trace = request.trace;
    state.statistics.add_success({latency, trace.dispatched - trace.arrived + times.queued,
                                  times.input, times.executed, times.output},
                                 now);
  } else {
    const bool dropped =
        status.code() == StatusCode::too_late || status.code() == StatusCode::overloaded;
    ++(dropped ? state.counters.dropped : state.counters.failed);
    state.outcomes.add_failure(dropped, now);
    state.statistics.add_failure(status.code(), latency);
  }
  request.input = Bytes();
  out.answers.push_back({std::move(request), model, std::move(status), std::move(outputs)});
}

void Dispatcher::release(const InFlight& batch, bool executed, Time now) {
  const auto found = gpulets_.find(batch.gpulet);
  if (found == gpulets_.end()) return;
  Gpulet& gpulet = found->second;
  if (executed) gpulet.allowance.observe(now - batch.predicted_end);
  if (--gpulet.in_flight == 0) gpulet.reserved = false;
  gpulet.expected -= batch.expected;
  gpulet.busy_until = now + gpulet.expected;
  touch(gpulet);
  if (gpulet.lanes.empty() && gpulet.in_flight == 0) gpulets_.erase(found);
}

std::optional<BackendId> Dispatcher::holder_of(BatchId batch) const {
  const auto held = in_flight_.find(batch);
  if (held == in_flight_.end()) return std::nullopt;
  const auto gpulet = gpulets_.find(held->second.gpulet);
  return gpulet == gpulets_.end() ? std::nullopt : std::optional(gpulet->second.backend);
}

void Dispatcher::completed(const BatchResult& result, Time now, DispatchOutput& out) {
  if (!in_flight_.contains(result.id))
    return;  // its gpulet was given up for lost before: it was answered then
  if (ended_process(result)) return lose_process(result, now, out);
  InFlight batch = take_in_flight(result.id);
  const auto served_by = gpulets_.find(batch.gpulet);
  if (served_by != gpulets_.end() && result.status.ok()) {
    GpuletStatistics& statistics = served_by->second.statistics;
    ++statistics.batches;
    statistics.requests += batch.requests.size();
    statistics.executed += result.executed;
    statistics.planned += batch.planned;
    if (served_by->second.service == schedule::Service::rounds) {
      served_by->second.pace.add(result.executed, batch.expected, now);
      queue_of(queue_of(batch.model).counted_as).pace.add(result.executed, batch.expected, now);
    }
  }
  release(batch, result.status.ok(), now);

  const ServedModel& model = models_[batch.model];
  Status status = result.status;
  if (status.ok()) {
    status = batching::check_outputs(result.outputs, batch.requests.size(), model.output_sizes);
  }
  if (!status.ok()) {
    const bool one_of_many = result.cause == FailureCause::input && batch.requests.size() > 1;
    one_of_many ? separate(std::move(batch), now, out)
                : put_back(std::move(batch), status, now, out);
    return;
  }
  const std::size_t count = batch.requests.size();
  const BatchTimes times = times_of(result, now - batch.requests.front().trace.dispatched, now);
  queue_of(queue_of(batch.model).counted_as)
      .statistics.add_batch(static_cast<std::uint32_t>(count), times);
  ModelCounters& counters = queue_of(queue_of(batch.model).counted_as).counters;
  for (std::size_t i = 0; i < count; ++i) {
    Request& request = batch.requests[i];
    if (!batch.is_answered(i) && request.answer_by() < now) answer_overdue(batch, i, now, out);
    if (batch.is_answered(i)) {
      ++counters.discarded;
      continue;
    }
    request.trace.completed = now;
    request.trace.queued_at_backend = result.queued;
    request.trace.executed = result.executed;
    answer(batch.model, std::move(request), {},
           batching::scatter_outputs(result.outputs, count, i, model.output_sizes), now, out,
           times);
  }
}

void Dispatcher::put_back(InFlight batch, const Status& why, Time now, DispatchOutput& out) {
  // A refusal is no fault of the batch; a death under it, or a failure in it, may be.
  const bool refused = why.code() == StatusCode::too_late || why.code() == StatusCode::overloaded;
  const bool worth_another_try = refused || why.code() == StatusCode::unavailable;
  const std::optional<ModelIndex> queue = queue_for(batch.model);
  for (std::size_t i = 0; i < batch.requests.size(); ++i) {
    if (batch.is_answered(i)) continue;
    Request& request = batch.requests[i];
    if (!refused) ++request.attempts;
    if (!worth_another_try || request.attempts >= kMaxAttempts) {
      answer(batch.model, std::move(request), why.within("model " + models_[batch.model].name), {},
             now, out);
    } else if (!queue) {
      answer(batch.model, std::move(request), queue_of(batch.model).closed, {}, now, out);
    } else {
      // Whoever cannot make it any more is dropped by the next pump.
      queue_of(*queue).requests.push(std::move(request));
    }
  }
  if (queue) arrived(*queue);
}

observe::Histogram Dispatcher::latencies(ModelIndex model, Time now) const {
  return queue_of(model).latency.recent(now);
}

bool Dispatcher::idle() const {
  return in_flight_.empty() && std::all_of(queues_.begin(), queues_.end(), [](const auto& state) {
           return state->requests.empty() && state->suspects.empty();
         });
}

double Dispatcher::pace(GpuletId id, Time now) const {
  const auto found = gpulets_.find(id);
  return found == gpulets_.end() ? 0 : found->second.pace.pace(now);
}

Dispatcher::GpuletStatistics Dispatcher::statistics(GpuletId id) const {
  const auto found = gpulets_.find(id);
  return found == gpulets_.end() ? GpuletStatistics{} : found->second.statistics;
}

}  // namespace gpulet::serve
