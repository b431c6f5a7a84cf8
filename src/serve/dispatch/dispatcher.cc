#include "serve/dispatch/dispatcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "gpulet/batching/request_queue.h"
#include "serve/values/event_log.h"

namespace gpulet::serve {

Dispatcher::Dispatcher(std::vector<ServedModel> models, std::uint32_t max_queue_per_model,
                       BatchId first_batch, const control::Options& control)
    : max_queue_(max_queue_per_model),
      batches_(first_batch),
      control_(control),
      chance_(control.seed) {
  for (ServedModel& model : models) add(std::move(model));
}

// ---- models

ModelIndex Dispatcher::add(ServedModel model) {
  if (free_.empty()) {
    free_.push_back(models_.size());
    models_.emplace_back();
    queues_.emplace_back();
    scheduled_wake_.push_back(kNever);
  }
  const ModelIndex index = free_.back();
  free_.pop_back();
  models_[index] = std::move(model);
  queues_[index] = std::make_unique<ModelQueue>();
  queue_of(index).counted_as = index;
  queue_of(index).requests.set_rules(models_[index].queue);
  return index;
}

void Dispatcher::change(ModelIndex model, ServedModel changed) {
  models_[model] = std::move(changed);
  if (!queue_of(model).requests.set_rules(models_[model].queue)) return;
  reorder(model);
  touch(model);
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
      queue.closed = {
          StatusCode::unavailable,
          fmt::format("model {} was replaced by a version with other tensors; ask again for those",
                      models_[model].name)};
    }
  }
  next.heir.reset();
  next.closed = Status();
  if (!old.heir) return refuse_waiting(model, old.closed, now, out);
  for (Request& request : old.requests.take_all()) next.requests.push(std::move(request));
  for (Request& request : old.suspects.take_due_before(kNever))
    next.requests.push(std::move(request));
  reorder(model);
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
  return queue.candidates.empty() && queue.requests.empty() && queue.suspects.empty() &&
         queue.in_flight == 0;
}

void Dispatcher::forget(ModelIndex model) {
  for (const ModelIndex index : queue_of(model).before) queue_of(index).counted_as = index;
  std::erase(queue_of(queue_of(model).counted_as).before, model);
  if (queue_of(model).touched) std::erase(touched_, model);
  if (queue_of(model).listed) std::erase(waiting_, model);
  // Moved, because an assignment would keep the strings' memory.
  { const ServedModel forgotten = std::move(models_[model]); }
  models_[model] = ServedModel();
  queues_[model].reset();
  scheduled_wake_[model] = kNever;
  free_.push_back(model);
}

void Dispatcher::arrived(ModelIndex model) {
  reorder(model);
  touch(model);
  if (std::exchange(queue_of(model).listed, true)) return;
  waiting_.push_back(model);
}

// ---- gpulets

void Dispatcher::touch(ModelIndex model) {
  instances_due_ = true;
  if (queue_of(model).touched) return;
  queue_of(model).touched = true;
  touched_.push_back(model);
}

void Dispatcher::touch(const Gpulet& gpulet) {
  for (const ModelSlot& slot : gpulet.slots) touch(slot.model);
}

void Dispatcher::list_due(GpuletId id, Gpulet& gpulet) {
  if (std::exchange(gpulet.due, true)) return;
  due_.push_back(id);
}

// The models of a gpulet take turns without pause: the next is the one that was served longest ago,
// with its waiting requests. So a request that just missed a batch waits for at most one batch of
// every slot, the planned round; waiting for full batches or a point in time would let rounds
// drift. A slot that is ahead of its part of the model's requests leaves its turn to the other
// models, unless the model's other gpulets are full and nobody else needs the time (a slot alone in
// its gpulet leaves requests in the same way, in pump_gpulet()).
void Dispatcher::reorder(ModelIndex model) {
  const ModelQueue& state = queue_of(model);
  const bool waits = !state.requests.empty();
  for (const Candidate& candidate : state.candidates) {
    Gpulet& gpulet = *candidate.gpulet;
    if (!takes_turns(gpulet)) continue;
    const ModelSlot& slot = *candidate.slot;
    const auto index = static_cast<std::size_t>(candidate.slot - gpulet.slots.data());
    const bool ahead = state.split.ahead(slot.part);
    gpulet.turns.set(index, waits && !ahead ? slot.turn : kNever);
    gpulet.yielding.set(index, waits && ahead && backlogged(model) ? slot.turn : kNever);
    gpulet.latest_starts.set(
        index, waits ? state.requests.front_deadline() - next_execution(slot) : kNever);
  }
}

void Dispatcher::change_ready(Gpulet& gpulet, bool ready) {
  if (gpulet.ready == ready) return;
  gpulet.ready = ready;
  if (gpulet.service != schedule::Service::rounds) return;
  for (const ModelSlot& slot : gpulet.slots) {
    std::size_t& room = queue_of(slot.model).room;
    room = ready ? room + slot.execution.size() : room - slot.execution.size();
    split_rate(slot.model);
    reorder(slot.model);
  }
}

void Dispatcher::split_rate(ModelIndex model) {
  ModelQueue& state = queue_of(model);
  state.split.clear();
  for (const Candidate& candidate : state.candidates) {
    const bool counts =
        candidate.gpulet->ready && candidate.gpulet->service == schedule::Service::rounds;
    if (counts) state.split.join(candidate.slot->part);
  }
}

void Dispatcher::set_routes(const std::vector<GpuletRoute>& routes, Time now) {
  for (auto& [id, gpulet] : gpulets_) gpulet.slots.clear();
  for (const auto& state : queues_) {
    if (state == nullptr) continue;
    state->candidates.clear();
    state->in_turn = false;
    state->room = 0;
  }
  by_need_.clear();
  controlled_.clear();
  for (const GpuletRoute& route : routes) {
    Gpulet& gpulet = gpulets_[route.gpulet];
    gpulet.backend = route.backend;
    gpulet.duty_cycle = route.duty_cycle;
    gpulet.service = route.service;
    gpulet.processes = route.processes;
    gpulet.instance = route.instance;
    gpulet.longest = {};
    if (route.service == schedule::Service::by_need) by_need_.push_back(route.gpulet);
    if (route.service == schedule::Service::controlled) controlled_.push_back(route.gpulet);
    for (const SlotSpec& spec : route.slots) {
      gpulet.slots.push_back({spec.model, spec.execution, now, {spec.rate, 0}});
      if (gpulet.ready && route.service == schedule::Service::rounds)
        queue_of(spec.model).room += spec.execution.size();
      if (route.service != schedule::Service::rounds && !queue_of(spec.model).responses)
        queue_of(spec.model).responses.emplace(control_.window.value_or(control_.period));
    }
    for (ModelSlot& slot : gpulet.slots) {
      queue_of(slot.model).candidates.push_back({route.gpulet, &gpulet, &slot});
      if (route.processes > 1) queue_of(slot.model).in_turn = true;
      gpulet.longest =
          std::max(gpulet.longest, *std::max_element(slot.execution.begin(), slot.execution.end()));
    }
    gpulet.turns.reset(gpulet.slots.size());
    gpulet.yielding.reset(gpulet.slots.size());
    gpulet.latest_starts.reset(gpulet.slots.size());
    touch(gpulet);
  }
  for (const auto& state : queues_) {
    if (state == nullptr) continue;
    std::sort(state->candidates.begin(), state->candidates.end(),
              [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  }
  for (ModelIndex model = 0; model < queues_.size(); ++model) {
    if (queues_[model] == nullptr) continue;
    split_rate(model);
    reorder(model);
  }
  std::erase_if(gpulets_, [](const auto& entry) {
    return entry.second.slots.empty() && entry.second.in_flight == 0;
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
  for (const ModelSlot& slot : found->second.slots) {
    std::erase_if(queue_of(slot.model).candidates,
                  [id](const Candidate& candidate) { return candidate.id == id; });
  }
  gpulets_.erase(found);
  std::erase(by_need_, id);
  std::erase(controlled_, id);
  for (const BatchId batch : batches_.held_by(id)) {
    put_back(take_in_flight(batch), {StatusCode::unavailable, "its gpulet was lost"}, now, out);
  }
}

bool Dispatcher::has_ready_slot(ModelIndex model) const {
  return std::any_of(queue_of(model).candidates.begin(), queue_of(model).candidates.end(),
                     [](const Candidate& candidate) { return candidate.gpulet->ready; });
}

std::size_t Dispatcher::in_flight(GpuletId id) const {
  const auto found = gpulets_.find(id);
  return found == gpulets_.end() ? 0 : found->second.in_flight;
}

std::vector<Duration> Dispatcher::execution(GpuletId id, ModelIndex model) const {
  const auto found = gpulets_.find(id);
  if (found == gpulets_.end()) return {};
  const auto& slots = found->second.slots;
  const auto slot = std::find_if(slots.begin(), slots.end(),
                                 [model](const ModelSlot& one) { return one.model == model; });
  return slot == slots.end() ? std::vector<Duration>() : slot->execution;
}

// ---- requests

void Dispatcher::enqueue(ModelIndex model, Request&& request, Time now, DispatchOutput& out) {
  ModelQueue& state = queue_of(model);
  ++state.counters.offered;
  const auto refuse_full = [&](std::uint32_t most, const std::string& rest) {
    answer(model, std::move(request),
           {StatusCode::overloaded,
            fmt::format("model {}: {} requests{}; send slower", models_[model].name, most, rest)},
           {}, now, out);
  };
  if (state.requests.size() >= max_queue_) return refuse_full(max_queue_, " are waiting already");
  if (const batching::PriorityQueue* const levels = state.requests.levels();
      levels != nullptr && levels->full_for(request)) {
    const std::uint32_t level = levels->rules().level_of(request.priority);
    const std::uint32_t most = levels->rules().policy_of(level).max_queue_size;
    return refuse_full(most, (level == 0 ? "" : fmt::format(" of priority {}", level)) +
                                 " are waiting already, its max_queue_size");
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
    if (gone > 0) reorder(model);
    state.listed = !state.requests.empty() || !state.suspects.empty();
    return !state.listed;
  });
}

void Dispatcher::withdraw(ModelIndex model, ClientId client, std::uint64_t tag) {
  ModelQueue& state = queue_of(model);
  if (!state.requests.remove(client, tag) && !state.suspects.remove(client, tag)) return;
  reorder(model);
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
  reorder(model);
}

std::vector<std::pair<ModelIndex, Request>> Dispatcher::take_waiting(
    const std::function<bool(ModelIndex)>& of) {
  if (std::none_of(waiting_.begin(), waiting_.end(), of)) return {};  // usually
  const auto kept = std::stable_partition(waiting_.begin(), waiting_.end(),
                                          [&of](ModelIndex model) { return !of(model); });
  const std::vector<ModelIndex> leaving(kept, waiting_.end());
  waiting_.erase(kept, waiting_.end());
  std::vector<std::pair<ModelIndex, Request>> taken;
  for (const ModelIndex model : leaving) {
    ModelQueue& state = queue_of(model);
    state.listed = false;
    const std::size_t before = taken.size();
    for (Request& request : state.requests.take_all())
      taken.emplace_back(model, std::move(request));
    for (Request& request : state.suspects.take_due_before(kNever))
      taken.emplace_back(model, std::move(request));
    queue_of(state.counted_as).counters.offered -= taken.size() - before;
    reorder(model);
  }
  return taken;
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
    const bool dropped = is_drop(status.code());
    ++(dropped ? state.counters.dropped : state.counters.failed);
    state.outcomes.add_failure(dropped, now);
    state.statistics.add_failure(status.code(), latency);
  }
  request.input = Bytes();
  out.answers.push_back({std::move(request), model, std::move(status), std::move(outputs)});
}

void Dispatcher::release(const BatchInFlight& batch, bool executed, Time now) {
  const auto found = gpulets_.find(batch.gpulet);
  if (found == gpulets_.end()) return;
  Gpulet& gpulet = found->second;
  if (executed) gpulet.allowance.observe(now - batch.predicted_end, batch.expected);
  const bool was_reserved = gpulet.reserved;
  if (--gpulet.in_flight == 0) gpulet.reserved = false;
  gpulet.expected -= batch.expected;
  gpulet.busy_until = now + gpulet.expected;
  instances_due_ = true;
  if (takes_turns(gpulet) && !was_reserved) {
    list_due(batch.gpulet, gpulet);
  } else if (gpulet.slots.size() == 1 || was_reserved) {
    touch(gpulet);
  }
  if (gpulet.slots.empty() && gpulet.in_flight == 0) gpulets_.erase(found);
}

std::string_view Dispatcher::model_of(BatchId batch) const {
  const BatchInFlight* const held = batches_.find(batch);
  return held == nullptr ? std::string_view() : models_[held->model].name;
}

std::optional<BackendId> Dispatcher::holder_of(BatchId batch) const {
  const BatchInFlight* const held = batches_.find(batch);
  if (held == nullptr) return std::nullopt;
  const auto gpulet = gpulets_.find(held->gpulet);
  return gpulet == gpulets_.end() ? std::nullopt : std::optional(gpulet->second.backend);
}

void Dispatcher::completed(const BatchResult& result, Time now, DispatchOutput& out) {
  if (!batches_.contains(result.id))
    return;  // its gpulet was lost before, and its requests were answered then
  if (ended_process(result)) return lose_process(result, now, out);
  BatchInFlight batch = take_in_flight(result.id);
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
      out.ran = BatchRun{batch.gpulet, batch.model,
                         static_cast<std::uint32_t>(batch.requests.size()), result.executed};
    }
  }
  release(batch, result.status.ok(), now);
  if (result.elsewhere) return return_elsewhere(std::move(batch), now, out);

  const ServedModel& model = models_[batch.model];
  Status status = result.status;
  if (status.ok()) {
    status = batching::check_outputs(result.outputs, batch.requests.size(), model.output_sizes);
  }
  if (!status.ok()) {
    const bool refused =
        status.code() == StatusCode::too_late || status.code() == StatusCode::overloaded;
    if (!refused && result.cause != FailureCause::input)
      out.failed = BatchFailed{batch.gpulet, batch.model, status};
    const bool one_of_many = result.cause == FailureCause::input && batch.requests.size() > 1;
    one_of_many ? suspect(std::move(batch), nullptr, now, out)
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

void Dispatcher::return_elsewhere(BatchInFlight batch, Time now, DispatchOutput& out) {
  if (const auto found = gpulets_.find(batch.gpulet); found != gpulets_.end())
    change_ready(found->second, false);  // until its backend reports it to this frontend again
  const Status refused(StatusCode::overloaded, "its gpulet has another owner");
  put_back(std::move(batch), refused, now, out);
}

void Dispatcher::put_back(BatchInFlight batch, const Status& why, Time now, DispatchOutput& out) {
  // A refusal is not the batch's fault; a failure or the end of its process may be.
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
      // The next pump drops those that cannot be served in time any more.
      queue_of(*queue).requests.push(std::move(request));
    }
  }
  if (queue) arrived(*queue);
}

bool Dispatcher::idle() const {
  return batches_.empty() && std::all_of(queues_.begin(), queues_.end(), [](const auto& state) {
           return state == nullptr || (state->requests.empty() && state->suspects.empty());
         });
}

double Dispatcher::pace(GpuletId id, Time now) const {
  const auto found = gpulets_.find(id);
  return found == gpulets_.end() ? 0 : found->second.pace.pace(now);
}

GpuletStatistics Dispatcher::statistics(GpuletId id) const {
  const auto found = gpulets_.find(id);
  return found == gpulets_.end() ? GpuletStatistics{} : found->second.statistics;
}

// ---- deadlines of batches in flight

BatchInFlight Dispatcher::take_in_flight(BatchId id) {
  BatchInFlight batch = batches_.take(id);
  --queue_of(batch.model).in_flight;
  return batch;
}

void Dispatcher::answer_overdue(Time now, DispatchOutput& out) {
  batches_.answer_overdue(now, [&](BatchInFlight& batch, std::size_t index) {
    answer_overdue(batch, index, now, out);
  });
}

void Dispatcher::answer_overdue(BatchInFlight& batch, std::size_t index, Time now,
                                DispatchOutput& out) {
  batch.answered.resize(batch.requests.size());
  batch.answered[index] = true;
  // The copy in the batch keeps counting as in flight, because its gpulet still works for it.
  Request& request = batch.requests[index];
  request.input = Bytes();
  ++queue_of(queue_of(batch.model).counted_as).counters.overdue;
  answer(batch.model, Request(request),
         {StatusCode::too_late,
          "model " + models_[batch.model].name + ": its batch was still running at the deadline"},
         {}, now, out);
}

// ---- suspects: requests under which a process ended or hung, or whose batch failed because of one
// of them. Each runs again in a batch of its own, on a gpulet that holds nothing else.

bool Dispatcher::ended_process(const BatchResult& result) {
  return !result.status.ok() &&
         (result.cause == FailureCause::model_crash || result.cause == FailureCause::hung);
}

// The first result tells that the process ended, and with it all batches of its gpulet.
void Dispatcher::lose_process(const BatchResult& result, Time now, DispatchOutput& out) {
  const GpuletId id = batches_.find(result.id)->gpulet;
  if (const auto found = gpulets_.find(id); found != gpulets_.end()) {
    change_ready(found->second, false);  // until its backend reports it ready again
    touch(found->second);
  }
  ProcessLost lost{id, {}, 0, result.cause, result.end};
  std::vector<BatchInFlight> batches;
  for (const BatchId batch : batches_.held_by(id)) {
    BatchInFlight held = take_in_flight(batch);
    release(held, false, now);
    lost.requests += held.requests.size();
    const std::string& name = models_[held.model].name;
    if (std::find(lost.models.begin(), lost.models.end(), name) == lost.models.end())
      lost.models.push_back(name);
    batches.push_back(std::move(held));
  }
  for (BatchInFlight& batch : batches) suspect(std::move(batch), &lost, now, out);
  out.lost.push_back(std::move(lost));
}

void Dispatcher::suspect(BatchInFlight batch, const ProcessLost* lost, Time now,
                         DispatchOutput& out) {
  const std::optional<ModelIndex> queue = queue_for(batch.model);
  const std::string& name = models_[batch.model].name;
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
      answer(batch.model, std::move(request),
             {StatusCode::internal,
              end + " while running this request alone, as one before it did while running its "
                    "batch; it is not tried again"},
             {}, now, out);
    } else if (!queue) {
      answer(batch.model, std::move(request), queue_of(batch.model).closed, {}, now, out);
    } else {
      queue_of(*queue).suspects.push(std::move(request));
    }
  }
  if (!queue) return;
  queue_of(*queue).lost =
      lost != nullptr
          ? end + " while running this batch"
          : fmt::format("model {}: another request of its batch could not be computed", name);
  arrived(*queue);
}

// The gpulet with the fewest models, because they may lose their process.
const Dispatcher::Candidate* Dispatcher::candidate_for_suspects(ModelIndex model) const {
  const Candidate* chosen = nullptr;
  for (const Candidate& candidate : queue_of(model).candidates) {
    if (!candidate.gpulet->ready) continue;
    if (chosen == nullptr || candidate.gpulet->slots.size() < chosen->gpulet->slots.size())
      chosen = &candidate;
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
  const Candidate* const candidate = candidate_for_suspects(model);
  if (candidate == nullptr) return;
  Gpulet& gpulet = *candidate->gpulet;
  gpulet.reserved = true;  // for a suspect, as soon as it holds nothing
  if (gpulet.in_flight > 0) return;
  send(candidate->id, gpulet, *candidate->slot, state.suspects.take_due_from(now, 1), now, out);
}

}  // namespace gpulet::serve
