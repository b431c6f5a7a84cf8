#include "gpulet/serve/dispatcher.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "gpulet/batching/form.h"

namespace gpulet::serve {

Dispatcher::Dispatcher(std::vector<ServedModel> models, std::uint32_t max_queue_per_model,
                       BatchId first_batch)
    : models_(std::move(models)),
      max_queue_(max_queue_per_model),
      queues_(models_.size()),
      scheduled_wake_(models_.size(), kNever),
      next_batch_(first_batch) {}

void Dispatcher::touch(ModelIndex model) {
  if (queues_[model].touched) return;
  queues_[model].touched = true;
  touched_.push_back(model);
}

void Dispatcher::touch(const Gpulet& gpulet) {
  for (const Lane& lane : gpulet.lanes) touch(lane.model);
}

void Dispatcher::change_ready(Gpulet& gpulet, bool ready) {
  if (gpulet.ready == ready) return;
  gpulet.ready = ready;
  for (const Lane& lane : gpulet.lanes) {
    std::size_t& room = queues_[lane.model].room;
    room = ready ? room + lane.execution.size() : room - lane.execution.size();
  }
}

void Dispatcher::set_routes(const std::vector<Route>& routes, Time now) {
  for (auto& [id, gpulet] : gpulets_) gpulet.lanes.clear();
  for (ModelState& state : queues_) {
    state.places.clear();
    state.room = 0;
  }
  for (const Route& route : routes) {
    Gpulet& gpulet = gpulets_[route.gpulet];
    gpulet.backend = route.backend;
    gpulet.duty_cycle = route.duty_cycle;
    for (const LaneSpec& spec : route.lanes) {
      gpulet.lanes.push_back({spec.model, spec.execution, now});
      if (gpulet.ready) queues_[spec.model].room += spec.execution.size();
    }
    for (Lane& lane : gpulet.lanes) {
      queues_[lane.model].places.push_back({route.gpulet, &gpulet, &lane});
    }
    touch(gpulet);
  }
  for (ModelState& state : queues_) {
    std::sort(state.places.begin(), state.places.end(),
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
    std::erase_if(queues_[lane.model].places, [id](const Place& place) { return place.id == id; });
  }
  gpulets_.erase(found);
  std::vector<BatchId> lost;
  for (const auto& [batch, held] : in_flight_) {
    if (held.gpulet == id) lost.push_back(batch);
  }
  std::sort(lost.begin(), lost.end());  // the same order on every run
  for (const BatchId batch : lost) {
    InFlight held = std::move(in_flight_.at(batch));
    in_flight_.erase(batch);
    put_back(std::move(held), {StatusCode::unavailable, "its gpulet was lost"}, now, out);
  }
}

bool Dispatcher::has_ready_lane(ModelIndex model) const {
  return std::any_of(queues_[model].places.begin(), queues_[model].places.end(),
                     [](const Place& place) { return place.gpulet->ready; });
}

std::size_t Dispatcher::in_flight(GpuletId id) const {
  const auto found = gpulets_.find(id);
  return found == gpulets_.end() ? 0 : found->second.in_flight;
}

void Dispatcher::enqueue(ModelIndex model, Request request, Time now, DispatchOutput& out) {
  ModelState& state = queues_[model];
  ++state.counters.offered;
  if (state.requests.size() >= max_queue_) {
    answer(model, std::move(request),
           {StatusCode::overloaded, "model " + models_[model].name + ": " +
                                        std::to_string(max_queue_) +
                                        " requests are waiting already; send slower"},
           {}, now, out);
    return;
  }
  state.requests.push(std::move(request));
  touch(model);
}

void Dispatcher::refuse(ModelIndex model, Request request, Status status, DispatchOutput& out) {
  ++queues_[model].counters.offered;
  const Time arrived = request.trace.arrived;
  answer(model, std::move(request), std::move(status), {}, arrived, out);
}

void Dispatcher::client_gone(ClientId client) {
  for (ModelState& state : queues_) {
    state.counters.failed += state.requests.remove_client(client);
  }
}

void Dispatcher::refuse_waiting(const Status& status, DispatchOutput& out) {
  for (ModelIndex model = 0; model < queues_.size(); ++model) {
    for (Request& request : queues_[model].requests.take_due_before(kNever)) {
      const Time arrived = request.trace.arrived;
      answer(model, std::move(request), status, {}, arrived, out);
    }
  }
}

void Dispatcher::answer(ModelIndex model, Request request, Status status,
                        std::vector<Bytes> outputs, Time now, DispatchOutput& out) {
  ModelState& state = queues_[model];
  if (status.ok()) {
    ++state.counters.served;
    if (now > request.deadline) ++state.counters.late;
    state.latency.record(now - request.trace.arrived, now);
  } else if (status.code() == StatusCode::too_late || status.code() == StatusCode::overloaded) {
    ++state.counters.dropped;
  } else {
    ++state.counters.failed;
  }
  request.input = Bytes();
  out.answers.push_back({std::move(request), model, std::move(status), std::move(outputs)});
}

void Dispatcher::release(const InFlight& batch, bool executed, Time now) {
  const auto found = gpulets_.find(batch.gpulet);
  if (found == gpulets_.end()) return;
  Gpulet& gpulet = found->second;
  if (executed) gpulet.allowance.observe(now - batch.predicted_end);
  --gpulet.in_flight;
  gpulet.expected -= batch.expected;
  gpulet.busy_until = now + gpulet.expected;
  touch(gpulet);
  if (gpulet.lanes.empty() && gpulet.in_flight == 0) gpulets_.erase(found);
}

void Dispatcher::completed(const BatchResult& result, Time now, DispatchOutput& out) {
  const auto found = in_flight_.find(result.id);
  if (found == in_flight_.end())
    return;  // its gpulet was given up for lost before: it was answered then
  InFlight batch = std::move(found->second);
  in_flight_.erase(found);
  const auto served_by = gpulets_.find(batch.gpulet);
  if (served_by != gpulets_.end() && result.status.ok()) {
    GpuletStatistics& statistics = served_by->second.statistics;
    ++statistics.batches;
    statistics.requests += batch.requests.size();
    statistics.executed += result.executed;
  }
  release(batch, result.status.ok(), now);

  const ServedModel& model = models_[batch.model];
  Status status = result.status;
  if (status.ok()) {
    status = batching::check_outputs(result.outputs, batch.requests.size(), model.output_sizes);
  }
  if (!status.ok()) {
    put_back(std::move(batch), status, now, out);
    return;
  }
  const std::size_t count = batch.requests.size();
  for (std::size_t i = 0; i < count; ++i) {
    Request& request = batch.requests[i];
    request.trace.completed = now;
    request.trace.queued_at_backend = result.queued;
    request.trace.executed = result.executed;
    answer(batch.model, std::move(request), {},
           batching::scatter_outputs(result.outputs, count, i, model.output_sizes), now, out);
  }
}

void Dispatcher::put_back(InFlight batch, const Status& why, Time now, DispatchOutput& out) {
  // A refusal is no fault of the batch; a death under it, or a failure in it, may be.
  const bool refused = why.code() == StatusCode::too_late || why.code() == StatusCode::overloaded;
  const bool worth_another_try = refused || why.code() == StatusCode::unavailable;
  ModelState& state = queues_[batch.model];
  for (Request& request : batch.requests) {
    if (!refused) ++request.attempts;
    if (!worth_another_try || request.attempts >= kMaxAttempts) {
      answer(batch.model, std::move(request), why.within("model " + models_[batch.model].name), {},
             now, out);
    } else {
      // Whoever cannot make it any more is dropped by the next pump.
      state.requests.push(std::move(request));
    }
  }
  touch(batch.model);
}

bool Dispatcher::backlogged(ModelIndex model) const {
  return queues_[model].requests.size() > queues_[model].room;
}

// With a backlog, whoever would make a batch smaller than full makes room for the many behind:
// otherwise the queue's head, always close to its deadline, would keep all batches small and the
// goodput would collapse.
Time Dispatcher::reachable_deadline(const Gpulet& gpulet, const Lane& lane, Time now) const {
  const Time start = std::max(now, gpulet.busy_until);
  const Duration execution =
      backlogged(lane.model) ? lane.execution.back() : lane.execution.front();
  return start + execution + gpulet.allowance.for_execution(execution);
}

void Dispatcher::drop_hopeless(ModelIndex model, Time now, DispatchOutput& out) {
  ModelState& state = queues_[model];
  if (state.requests.empty()) return;
  Time reachable = kNever;
  for (const Place& place : state.places) {
    if (!place.gpulet->ready) continue;
    reachable = std::min(reachable, reachable_deadline(*place.gpulet, *place.lane, now));
    if (reachable <= state.requests.front_deadline()) return;  // nobody is hopeless
  }
  const bool nobody = reachable == kNever;
  if (nobody) reachable = now;  // a gpulet may yet come: only what is past its deadline is lost
  for (Request& request : state.requests.take_due_before(reachable)) {
    Status status(StatusCode::too_late, "model " + models_[model].name +
                                            (nobody ? ": no gpulet was ready before the deadline"
                                                    : ": the deadline could not be met any more"));
    answer(model, std::move(request), std::move(status), {}, now, out);
  }
}

void Dispatcher::dispatch(GpuletId id, Gpulet& gpulet, Lane& lane, std::uint32_t count, Time now,
                          DispatchOutput& out) {
  ModelState& state = queues_[lane.model];
  InFlight held;
  held.gpulet = id;
  held.model = lane.model;
  held.requests = state.requests.take_due_from(reachable_deadline(gpulet, lane, now), count);
  held.expected = lane.execution[held.requests.size() - 1];
  for (Request& request : held.requests) {
    request.trace.dispatched = now;
    request.trace.gpulet = id;
    request.trace.batch_size = static_cast<std::uint32_t>(held.requests.size());
  }

  Batch batch;
  batch.id = next_batch_;
  ++next_batch_.value;
  batch.gpulet = id;
  batch.model = models_[lane.model].name;
  batch.count = static_cast<std::uint32_t>(held.requests.size());
  // What was worth sending is worth starting as long as one request of it, the last one, can still
  // make it.
  batch.start_within =
      std::max(Duration::zero(), held.requests.back().deadline - held.expected - now);
  batch.expected_duration = held.expected;
  batch.inputs = batching::gather_inputs(held.requests, models_[lane.model].input_sizes);

  gpulet.expected += held.expected;
  gpulet.busy_until = std::max(now, gpulet.busy_until) + held.expected;
  held.predicted_end = gpulet.busy_until;
  ++gpulet.in_flight;
  lane.turn = now + gpulet.duty_cycle;
  in_flight_.emplace(batch.id, std::move(held));
  out.batches.push_back({gpulet.backend, std::move(batch)});
}

std::optional<batching::LaneView> Dispatcher::view_of(const Gpulet& gpulet, const Lane& lane,
                                                      Time now) const {
  const batching::RequestQueue& queue = queues_[lane.model].requests;
  if (queue.empty()) return std::nullopt;
  const Time reachable = reachable_deadline(gpulet, lane, now);
  batching::LaneView view;
  view.waiting = queue.count_due_from(reachable);
  if (view.waiting == 0) return std::nullopt;
  view.most_urgent = queue.first_deadline_from(reachable);
  view.execution = lane.execution;
  view.turn = lane.turn;
  view.start = std::max(now, gpulet.busy_until);
  view.allowance = gpulet.allowance.for_execution(
      lane.execution[std::min(view.waiting, lane.execution.size()) - 1]);
  return view;
}

bool Dispatcher::pump_gpulet(const Place& place, Time now, Time& wake, DispatchOutput& out) {
  Gpulet& gpulet = *place.gpulet;
  if (!gpulet.ready || gpulet.in_flight >= kBatchesInFlight) return false;
  if (gpulet.lanes.size() > 1) return pump_in_turn(place, now, wake, out);
  Lane& lane = gpulet.lanes.front();
  const auto view = view_of(gpulet, lane, now);
  if (!view) return false;
  const batching::Decision decision = batching::decide(*view, now);
  if (const auto* wait = std::get_if<batching::WaitUntil>(&decision)) {
    wake = std::min(wake, wait->time);
    return false;
  }
  dispatch(place.id, gpulet, lane, std::get<batching::Dispatch>(decision).count, now, out);
  return true;
}

// Models that share a gpulet take turns without pause: whoever waits and was served longest ago is
// next, with what waits by then. So a request that just missed a batch waits for one batch of every
// lane at most, which is the round that was planned, whatever came between and however fast the
// gpulet is. Waiting for full batches, or for a point in time, would let rounds drift apart; and a
// batch bound while another runs would make the next one wait for both.
bool Dispatcher::pump_in_turn(const Place& place, Time now, Time& wake, DispatchOutput& out) {
  Gpulet& gpulet = *place.gpulet;
  Lane* next = nullptr;
  std::optional<batching::LaneView> chosen;
  for (Lane& lane : gpulet.lanes) {
    if (next != nullptr && lane.turn >= next->turn) continue;
    if (const auto view = view_of(gpulet, lane, now)) {
      next = &lane;
      chosen = view;
    }
  }
  if (next == nullptr) return false;
  const auto count = static_cast<std::uint32_t>(std::min(chosen->waiting, next->execution.size()));
  if (gpulet.in_flight > 0) {
    const Time bind = gpulet.busy_until - time_ahead(*next, count);
    if (now < bind) {
      wake = std::min(wake, bind);
      return false;
    }
  }
  dispatch(place.id, gpulet, *next,
           batching::largest_batch_by(next->execution, count, chosen->start + chosen->allowance,
                                      chosen->most_urgent),
           now, out);
  return true;
}

// What it takes to bring a batch to its proxy.
Duration Dispatcher::time_ahead(const Lane& lane, std::uint32_t count) const {
  constexpr Duration kHandling = std::chrono::microseconds(300);
  constexpr double kBytesPerSecond = 2e9;
  const std::vector<std::size_t>& sizes = models_[lane.model].input_sizes;
  const auto bytes = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}) * count;
  return kHandling + from_seconds(static_cast<double>(bytes) / kBytesPerSecond);
}

void Dispatcher::pump_model(ModelIndex model, Time now, DispatchOutput& out) {
  ModelState& state = queues_[model];
  Time wake = kNever;
  for (const Place& place : state.places) {
    while (pump_gpulet(place, now, wake, out)) {
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
  while (!wakes_.empty() && wakes_.top().first <= now) {
    const auto [time, model] = wakes_.top();
    wakes_.pop();
    if (scheduled_wake_[model] != time) continue;  // an earlier entry took its place
    scheduled_wake_[model] = kNever;
    touch(model);
  }
  while (!touched_.empty()) {
    const ModelIndex model = touched_.back();
    touched_.pop_back();
    queues_[model].touched = false;
    pump_model(model, now, out);
  }
}

Time Dispatcher::next_wake() const { return wakes_.empty() ? kNever : wakes_.top().first; }

observe::Histogram Dispatcher::latencies(ModelIndex model, Time now) const {
  return queues_[model].latency.recent(now);
}

bool Dispatcher::idle() const {
  return in_flight_.empty() &&
         std::all_of(queues_.begin(), queues_.end(),
                     [](const ModelState& state) { return state.requests.empty(); });
}

Dispatcher::GpuletStatistics Dispatcher::statistics(GpuletId id) const {
  const auto found = gpulets_.find(id);
  return found == gpulets_.end() ? GpuletStatistics{} : found->second.statistics;
}

}  // namespace gpulet::serve
