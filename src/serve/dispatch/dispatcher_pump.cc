// Dispatcher: when batches leave, and which requests cannot be served any more.
#include <algorithm>
#include <utility>

#include "gpulet/batching/request_queue.h"
#include "serve/dispatch/dispatcher.h"

namespace gpulet::serve {

using schedule::Service;

bool Dispatcher::backlogged(ModelIndex model) const {
  return queue_of(model).requests.size() > queue_of(model).room;
}

// With a backlog, requests that only a smaller batch could serve in time are given up. Otherwise
// the head of the queue, always urgent, would keep batches small, and the goodput would collapse.
Time Dispatcher::reachable_deadline(const Gpulet& gpulet, const ModelSlot& slot, Time now) const {
  if (gpulet.service != Service::rounds) return now;  // it may become idle
  const Time start = std::max(now, gpulet.busy_until);
  const Duration execution = next_execution(slot);
  return start + execution + gpulet.allowance.for_execution(execution);
}

Duration Dispatcher::next_execution(const ModelSlot& slot) const {
  const bool full = queue_of(slot.model).requests.size() > slot.execution.size();
  return full ? slot.execution.back() : slot.execution.front();
}

void Dispatcher::drop_hopeless(ModelIndex model, Time now, DispatchOutput& out) {
  ModelQueue& state = queue_of(model);
  if (state.requests.empty()) return;
  Time reachable = kNever;
  for (const Candidate& candidate : state.candidates) {
    if (!candidate.gpulet->ready) continue;
    reachable = std::min(reachable, reachable_deadline(*candidate.gpulet, *candidate.slot, now));
    if (reachable <= state.requests.front_deadline()) return;  // all can be served
  }
  const bool none_ready = reachable == kNever;
  if (none_ready) reachable = now;  // a gpulet may become ready until the deadline
  std::vector<Request> hopeless = state.requests.take_due_before(reachable);
  if (hopeless.empty()) return;
  reorder(model);
  for (Request& request : hopeless) {
    const bool slept = request.late_after != kNever;
    const char* const why = !none_ready ? ": the deadline could not be met any more"
                            : slept     ? ": it was asleep, and no gpulet was ready for it in time"
                                        : ": no gpulet was ready before the deadline";
    Status status = none_ready && !absence_.ok()
                        ? absence_.within("model " + models_[model].name)
                        : Status(StatusCode::too_late, "model " + models_[model].name + why);
    answer(model, std::move(request), std::move(status), {}, now, out);
  }
}

void Dispatcher::drop_hopeless(const Gpulet& gpulet, Time now, DispatchOutput& out) {
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

void Dispatcher::dispatch(GpuletId id, Gpulet& gpulet, ModelSlot& slot, std::uint32_t count,
                          Time now, DispatchOutput& out) {
  send(id, gpulet, slot,
       queue_of(slot.model).requests.take_due_from(reachable_deadline(gpulet, slot, now), count),
       now, out);
}

void Dispatcher::send(GpuletId id, Gpulet& gpulet, ModelSlot& slot, std::vector<Request> requests,
                      Time now, DispatchOutput& out) {
  ModelQueue& state = queue_of(slot.model);
  BatchInFlight held;
  held.gpulet = id;
  held.model = slot.model;
  held.requests = std::move(requests);
  held.expected = slot.execution[held.requests.size() - 1];
  held.planned = slot.execution.size();
  for (Request& request : held.requests) {
    request.trace.dispatched = now;
    request.trace.gpulet = id;
    request.trace.batch = batches_.next_id();
    request.trace.batch_size = static_cast<std::uint32_t>(held.requests.size());
  }

  Batch batch;
  batch.id = batches_.take_id();
  batch.gpulet = id;
  batch.model = models_[slot.model].name;
  batch.count = static_cast<std::uint32_t>(held.requests.size());
  // The batch is worth starting while its last request can still be served in time.
  batch.start_within =
      std::max(Duration::zero(), held.requests.back().deadline - held.expected - now);
  batch.expected_duration = held.expected;
  batch.inputs = batching::gather_inputs(held.requests, models_[slot.model].input_sizes);

  gpulet.expected += held.expected;
  gpulet.busy_until = std::max(now, gpulet.busy_until) + held.expected;
  held.predicted_end = gpulet.busy_until;
  ++gpulet.in_flight;
  ++state.in_flight;
  slot.turn = now + gpulet.duty_cycle;
  if (gpulet.processes > 1) delay_processes_beside(gpulet, state, now);
  if (gpulet.service == Service::rounds)
    state.split.take(slot.part, held.requests.size(), slot.execution.size());
  reorder(slot.model);
  if (state.candidates.size() > 1) touch(slot.model);  // its other slots may take their part now
  batches_.add(batch.id, std::move(held));
  out.batches.push_back({gpulet.backend, std::move(batch)});
}

// Batches that start at equal distances hold equally many requests.
void Dispatcher::delay_processes_beside(const Gpulet& gpulet, ModelQueue& state, Time now) {
  const Time turn = now + gpulet.duty_cycle / gpulet.processes;
  for (const Candidate& other : state.candidates) {
    if (other.gpulet != &gpulet && other.gpulet->instance == gpulet.instance)
      other.slot->turn = std::max(other.slot->turn, turn);
  }
}

bool Dispatcher::has_room(const Gpulet& gpulet) {
  const bool rounds = gpulet.service == Service::rounds;
  return gpulet.ready && !gpulet.reserved && gpulet.in_flight < (rounds ? kBatchesInFlight : 1);
}

void Dispatcher::flush(ModelIndex model, Time now, DispatchOutput& out) {
  for (const Candidate& candidate : queue_of(model).candidates) {
    Gpulet& gpulet = *candidate.gpulet;
    while (has_room(gpulet)) {
      const auto view = view_of(gpulet, *candidate.slot, now);
      if (!view) break;
      const std::size_t count = std::min(view->waiting, candidate.slot->execution.size());
      dispatch(candidate.id, gpulet, *candidate.slot, static_cast<std::uint32_t>(count), now, out);
    }
  }
}

std::optional<batching::SlotView> Dispatcher::view_of(const Gpulet& gpulet, const ModelSlot& slot,
                                                      Time now) const {
  const batching::PendingRequests& queue = queue_of(slot.model).requests;
  if (queue.empty()) return std::nullopt;
  const Time reachable = reachable_deadline(gpulet, slot, now);
  batching::SlotView view;
  view.waiting = queue.count_due_from(reachable);
  if (view.waiting == 0) return std::nullopt;
  view.most_urgent = queue.first_deadline_from(reachable, slot.execution.size());
  view.execution = slot.execution;
  view.turn = slot.turn;
  view.start = std::max(now, gpulet.busy_until);
  const std::size_t count = std::min(view.waiting, slot.execution.size());
  view.allowance = gpulet.allowance.for_execution(slot.execution[count - 1]);
  view.bind =
      gpulet.in_flight > 0 ? view.start - time_ahead(slot, static_cast<std::uint32_t>(count)) : now;
  return view;
}

bool Dispatcher::pump_gpulet(const Candidate& candidate, Time now, Time& wake,
                             DispatchOutput& out) {
  Gpulet& gpulet = *candidate.gpulet;
  if (gpulet.service != Service::rounds) return false;
  if (gpulet.slots.size() > 1) return pump_in_turn(candidate.id, gpulet, now, out);
  if (!has_room(gpulet)) return false;
  ModelSlot& slot = gpulet.slots.front();
  auto view = view_of(gpulet, slot, now);
  if (!view) return false;
  // Processes of one instance take turns already.
  view->yields = gpulet.processes == 1 && queue_of(slot.model).split.ahead(slot.part) &&
                 !backlogged(slot.model);
  const batching::Decision decision = batching::decide(*view, now);
  if (const auto* wait = std::get_if<batching::WaitUntil>(&decision)) {
    wake = std::min(wake, wait->time);
    return false;
  }
  std::uint32_t count = std::get<batching::Dispatch>(decision).count;
  if (queue_of(slot.model).requests.levels() != nullptr) {
    count = count_in_time(
        slot, *view, static_cast<std::uint32_t>(std::min(view->waiting, slot.execution.size())),
        reachable_deadline(gpulet, slot, now));
  }
  dispatch(candidate.id, gpulet, slot, count, now, out);
  return true;
}

std::pair<Dispatcher::ModelSlot*, batching::SlotView> Dispatcher::next_in_turn(Gpulet& gpulet,
                                                                               Time now) const {
  auto turn = gpulet.turns.begin();
  auto yielding = gpulet.in_flight == 0 ? gpulet.yielding.begin() : gpulet.yielding.end();
  while (turn != gpulet.turns.end() || yielding != gpulet.yielding.end()) {
    const bool yields =
        turn == gpulet.turns.end() || (yielding != gpulet.yielding.end() && *yielding < *turn);
    ModelSlot& slot = gpulet.slots[(yields ? yielding++ : turn++)->second];
    if (auto view = view_of(gpulet, slot, now)) return {&slot, *view};
  }
  return {};
}

// A batch is bound as late as possible: bound while another runs, it makes the next wait for both.
bool Dispatcher::pump_in_turn(GpuletId id, Gpulet& gpulet, Time now, DispatchOutput& out) {
  if (!has_room(gpulet)) return false;
  const auto [next, view] = next_in_turn(gpulet, now);
  if (next == nullptr) return false;
  const auto count = static_cast<std::uint32_t>(std::min(view.waiting, next->execution.size()));
  if (now < view.bind) {
    if (view.bind < gpulet.wake) {
      gpulet.wake = view.bind;
      gpulet_wakes_.emplace(view.bind, id);
    }
    return false;
  }
  dispatch(id, gpulet, *next,
           count_in_time(*next, view, count, reachable_deadline(gpulet, *next, now)), now, out);
  return true;
}

void Dispatcher::pump_due(GpuletId id, Time now, DispatchOutput& out) {
  const auto found = gpulets_.find(id);
  if (found == gpulets_.end()) return;  // removed
  Gpulet& gpulet = found->second;
  gpulet.due = false;
  if (!takes_turns(gpulet)) return touch(gpulet);  // its routes changed
  if (!gpulet.ready) return;                       // what it holds decides nothing now
  while (pump_in_turn(id, gpulet, now, out)) {
  }
  drop_hopeless(gpulet, now, out);
}

std::uint32_t Dispatcher::count_in_time(const ModelSlot& slot, const batching::SlotView& view,
                                        std::uint32_t wanted, Time reachable) const {
  const Time start = view.start + view.allowance;
  if (const batching::PriorityQueue* const levels = queue_of(slot.model).requests.levels())
    return levels->largest_batch(reachable, slot.execution, wanted, start);
  return batching::largest_batch_by(slot.execution, wanted, start, view.most_urgent);
}

void Dispatcher::pump_timeouts(ModelIndex model, Time now, Time& wake, DispatchOutput& out) {
  batching::PriorityQueue& levels = *queue_of(model).requests.levels();
  std::vector<Request> rejected = levels.take_rejected(now);
  reorder(model);
  for (Request& request : rejected) {
    answer(model, std::move(request),
           {StatusCode::too_late, "model " + models_[model].name + ": its queue timeout passed"},
           {}, now, out);
  }
  wake = std::min(wake, levels.next_timeout());
}

// The time to transfer a batch to its proxy.
Duration Dispatcher::time_ahead(const ModelSlot& slot, std::uint32_t count) const {
  constexpr Duration kHandling = std::chrono::microseconds(300);
  constexpr double kBytesPerSecond = 2e9;
  const std::size_t bytes = models_[slot.model].input_bytes * count;
  return kHandling + from_seconds(static_cast<double>(bytes) / kBytesPerSecond);
}

void Dispatcher::pump_model(ModelIndex model, Time now, DispatchOutput& out) {
  ModelQueue& state = queue_of(model);
  Time wake = kNever;
  pump_suspects(model, now, wake, out);
  if (state.requests.levels() != nullptr) pump_timeouts(model, now, wake, out);
  if (state.in_turn) {
    // The next batch goes to the process that is free first.
    std::stable_sort(state.candidates.begin(), state.candidates.end(),
                     [](const Candidate& a, const Candidate& b) {
                       return a.gpulet->busy_until < b.gpulet->busy_until;
                     });
  }
  for (const Candidate& candidate : state.candidates) {
    while (pump_gpulet(candidate, now, wake, out)) {
    }
  }
  drop_hopeless(model, now, out);
  if (!state.requests.empty()) wake = std::min(wake, state.requests.front_deadline() + Duration(1));
  if (wake < scheduled_wake_[model]) {
    scheduled_wake_[model] = wake;
    wakes_.emplace(wake, model);
  }
}

void Dispatcher::pump(Time now, DispatchOutput& out) {
  answer_overdue(now, out);
  while (!wakes_.empty() && wakes_.top().first <= now) {
    const auto [time, model] = wakes_.top();
    wakes_.pop();
    if (scheduled_wake_[model] != time) continue;  // an earlier entry replaced it
    scheduled_wake_[model] = kNever;
    touch(model);
  }
  while (!gpulet_wakes_.empty() && gpulet_wakes_.top().first <= now) {
    const auto [time, id] = gpulet_wakes_.top();
    gpulet_wakes_.pop();
    const auto found = gpulets_.find(id);
    if (found == gpulets_.end() || found->second.wake != time) continue;
    found->second.wake = kNever;
    list_due(id, found->second);
  }
  while (!touched_.empty() || !due_.empty()) {
    if (touched_.empty()) {
      const GpuletId id = due_.back();
      due_.pop_back();
      pump_due(id, now, out);
      continue;
    }
    const ModelIndex model = touched_.back();
    touched_.pop_back();
    queue_of(model).touched = false;
    pump_model(model, now, out);
  }
  if (instances_due_) pump_instances(now, out);
}

Time Dispatcher::next_wake() const {
  return std::min({batches_.next_deadline(), wakes_.empty() ? kNever : wakes_.top().first,
                   gpulet_wakes_.empty() ? kNever : gpulet_wakes_.top().first});
}

// ---- instances, which take one request at a time

bool Dispatcher::only_instances(ModelIndex model) const {
  const std::vector<Candidate>& candidates = queue_of(model).candidates;
  return !candidates.empty() &&
         std::all_of(candidates.begin(), candidates.end(), [](const Candidate& candidate) {
           return candidate.gpulet->service != Service::rounds;
         });
}

void Dispatcher::set_expected(GpuletId instance, Duration expected) {
  const auto found = gpulets_.find(instance);
  if (found == gpulets_.end()) return;
  for (ModelSlot& slot : found->second.slots) slot.execution.assign(1, expected);
}

void Dispatcher::pump_instances(Time now, DispatchOutput& out) {
  instances_due_ = false;
  for (const GpuletId id : by_need_) pump_by_need(id, gpulets_.at(id), now, out);
  if (!controlled_.empty()) pump_controlled(now, out);
}

void Dispatcher::pump_by_need(GpuletId id, Gpulet& gpulet, Time now, DispatchOutput& out) {
  if (!has_room(gpulet)) return;
  std::vector<batching::ModelNeed> models;
  models.reserve(gpulet.slots.size());
  for (const ModelSlot& slot : gpulet.slots) {
    const ModelQueue& state = queue_of(slot.model);
    batching::ModelNeed& model = models.emplace_back();
    model.queued = state.requests.count_due_from(now);
    if (model.queued == 0) continue;
    model.mean_waited = state.requests.mean_waited(now) + control_.overhead;
    model.device_time = slot.execution.front();
    const std::optional<Responses>& responses = queue_of(state.counted_as).responses;
    if (responses) model.response = responses->recent_mean(now);
    if (model.response) *model.response += control_.overhead;
    model.objective = from_ms(models_[slot.model].slo_ms);
  }
  const auto chosen = control_.gpu == control::GpuRule::need
                          ? batching::neediest(models, {control_.set_point, control_.queued_weight},
                                               gpulet.last_slot)
                          : batching::next_in_turn(models, gpulet.last_slot);
  if (!chosen) return;
  gpulet.last_slot = *chosen;
  dispatch(id, gpulet, gpulet.slots[*chosen], 1, now, out);
}

// Serves queues in random order, each by a random free instance, until queues or instances run out.
void Dispatcher::pump_controlled(Time now, DispatchOutput& out) {
  std::map<ModelIndex, std::vector<Candidate>> free;
  for (const GpuletId id : controlled_) {
    Gpulet& gpulet = gpulets_.at(id);
    if (!has_room(gpulet) || gpulet.slots.empty()) continue;
    const Candidate candidate{id, &gpulet, &gpulet.slots.front()};
    if (choice_of(candidate, now).which != Choice::Which::none)
      free[candidate.slot->model].push_back(candidate);
  }
  while (!free.empty()) {
    const auto chosen =
        std::next(free.begin(), static_cast<std::ptrdiff_t>(chance_.below(free.size())));
    auto& [model, candidates] = *chosen;
    const std::size_t at = chance_.below(candidates.size());
    const Candidate candidate = candidates[at];
    const Choice choice = choice_of(candidate, now);
    batching::PendingRequests& requests = queue_of(model).requests;
    std::vector<Request> taken;
    if (choice.which == Choice::Which::first) {
      taken = requests.take_due_from(choice.from, 1);
    } else {
      taken.push_back(requests.take_last());
      reorder(model);
    }
    send(candidate.id, *candidate.gpulet, *candidate.slot, std::move(taken), now, out);
    candidates.erase(candidates.begin() + static_cast<std::ptrdiff_t>(at));
    std::erase_if(candidates, [&](const Candidate& other) {
      return choice_of(other, now).which == Choice::Which::none;
    });
    if (candidates.empty()) free.erase(chosen);
  }
}

Time Dispatcher::reachable_by_rounds(ModelIndex model, Time now) const {
  Time reachable = kNever;
  for (const Candidate& candidate : queue_of(model).candidates) {
    if (!candidate.gpulet->ready || candidate.gpulet->service != Service::rounds) continue;
    reachable = std::min(reachable, reachable_deadline(*candidate.gpulet, *candidate.slot, now));
  }
  return reachable;
}

// Beside gpulets with rounds, an instance takes only what they cannot serve in time and it can: the
// first request that is too late for them, or the last one of a backlog.
Dispatcher::Choice Dispatcher::choice_of(const Candidate& instance, Time now) const {
  const ModelIndex model = instance.slot->model;
  const batching::PendingRequests& requests = queue_of(model).requests;
  const bool alone = only_instances(model);
  const Time from = alone ? now : now + instance.slot->execution.front();
  if (requests.count_due_from(from) == 0) return {};
  if (alone || requests.first_deadline_from(from, 1) < reachable_by_rounds(model, now))
    return {Choice::Which::first, from};
  return {backlogged(model) ? Choice::Which::last : Choice::Which::none, from};
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
  const batching::PendingRequests& waiting = queue_of(model).requests;
  std::int64_t count = static_cast<std::int64_t>(waiting.size());
  Duration sum = count == 0 ? Duration{} : waiting.mean_waited(now) * count;
  for (const auto& [id, batch] : batches_.all()) {
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
