// Dispatcher: which batch leaves when, and who cannot be served any more.
#include <algorithm>
#include <utility>

#include "gpulet/batching/form.h"
#include "gpulet/serve/dispatcher.h"

namespace gpulet::serve {

bool Dispatcher::backlogged(ModelIndex model) const {
  return queue_of(model).requests.size() > queue_of(model).room;
}

// With a backlog, whoever would make a batch smaller than full makes room for the many behind:
// otherwise the queue's head, always close to its deadline, would keep all batches small and the
// goodput would collapse.
Time Dispatcher::reachable_deadline(const Gpulet& gpulet, const Lane& lane, Time now) const {
  if (gpulet.service != schedule::Service::rounds) return now;  // it may yet come to be idle
  const Time start = std::max(now, gpulet.busy_until);
  const Duration execution =
      backlogged(lane.model) ? lane.execution.back() : lane.execution.front();
  return start + execution + gpulet.allowance.for_execution(execution);
}

void Dispatcher::drop_hopeless(ModelIndex model, Time now, DispatchOutput& out) {
  ModelQueue& state = queue_of(model);
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
    const bool slept = request.late_after != kNever;
    const char* const why = !nobody ? ": the deadline could not be met any more"
                            : slept ? ": it was asleep, and no gpulet was ready for it in time"
                                    : ": no gpulet was ready before the deadline";
    Status status = nobody && !absence_.ok()
                        ? absence_.within("model " + models_[model].name)
                        : Status(StatusCode::too_late, "model " + models_[model].name + why);
    answer(model, std::move(request), std::move(status), {}, now, out);
  }
}

void Dispatcher::dispatch(GpuletId id, Gpulet& gpulet, Lane& lane, std::uint32_t count, Time now,
                          DispatchOutput& out) {
  send(id, gpulet, lane,
       queue_of(lane.model).requests.take_due_from(reachable_deadline(gpulet, lane, now), count),
       now, out);
}

void Dispatcher::send(GpuletId id, Gpulet& gpulet, Lane& lane, std::vector<Request> requests,
                      Time now, DispatchOutput& out) {
  ModelQueue& state = queue_of(lane.model);
  InFlight held;
  held.gpulet = id;
  held.model = lane.model;
  held.requests = std::move(requests);
  held.expected = lane.execution[held.requests.size() - 1];
  held.planned = lane.execution.size();
  for (Request& request : held.requests) {
    request.trace.dispatched = now;
    request.trace.gpulet = id;
    request.trace.batch = next_batch_;
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
  ++state.in_flight;
  lane.turn = now + gpulet.duty_cycle;
  held.answer_by = held.next_answer_by();
  deadlines_.add(held.answer_by, batch.id);
  in_flight_.emplace(batch.id, std::move(held));
  out.batches.push_back({gpulet.backend, std::move(batch)});
}

bool Dispatcher::has_room(const Gpulet& gpulet) {
  const bool rounds = gpulet.service == schedule::Service::rounds;
  return gpulet.ready && !gpulet.reserved && gpulet.in_flight < (rounds ? kBatchesInFlight : 1);
}

void Dispatcher::flush(ModelIndex model, Time now, DispatchOutput& out) {
  for (const Place& place : queue_of(model).places) {
    Gpulet& gpulet = *place.gpulet;
    while (has_room(gpulet)) {
      const auto view = view_of(gpulet, *place.lane, now);
      if (!view) break;
      const std::size_t count = std::min(view->waiting, place.lane->execution.size());
      dispatch(place.id, gpulet, *place.lane, static_cast<std::uint32_t>(count), now, out);
    }
  }
}

std::optional<batching::LaneView> Dispatcher::view_of(const Gpulet& gpulet, const Lane& lane,
                                                      Time now) const {
  const batching::WaitingRequests& queue = queue_of(lane.model).requests;
  if (queue.empty()) return std::nullopt;
  const Time reachable = reachable_deadline(gpulet, lane, now);
  batching::LaneView view;
  view.waiting = queue.count_due_from(reachable);
  if (view.waiting == 0) return std::nullopt;
  view.most_urgent = queue.first_deadline_from(reachable, lane.execution.size());
  view.execution = lane.execution;
  view.turn = lane.turn;
  view.start = std::max(now, gpulet.busy_until);
  view.allowance = gpulet.allowance.for_execution(
      lane.execution[std::min(view.waiting, lane.execution.size()) - 1]);
  return view;
}

bool Dispatcher::pump_gpulet(const Place& place, Time now, Time& wake, DispatchOutput& out) {
  Gpulet& gpulet = *place.gpulet;
  if (gpulet.service != schedule::Service::rounds) return false;
  if (!has_room(gpulet)) return false;
  if (gpulet.lanes.size() > 1) return pump_in_turn(place, now, wake, out);
  Lane& lane = gpulet.lanes.front();
  const auto view = view_of(gpulet, lane, now);
  if (!view) return false;
  const batching::Decision decision = batching::decide(*view, now);
  if (const auto* wait = std::get_if<batching::WaitUntil>(&decision)) {
    wake = std::min(wake, wait->time);
    return false;
  }
  std::uint32_t count = std::get<batching::Dispatch>(decision).count;
  if (queue_of(lane.model).requests.levels() != nullptr) {
    count = count_in_time(
        lane, *view, static_cast<std::uint32_t>(std::min(view->waiting, lane.execution.size())),
        reachable_deadline(gpulet, lane, now));
  }
  dispatch(place.id, gpulet, lane, count, now, out);
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
           count_in_time(*next, *chosen, count, reachable_deadline(gpulet, *next, now)), now, out);
  return true;
}

std::uint32_t Dispatcher::count_in_time(const Lane& lane, const batching::LaneView& view,
                                        std::uint32_t wanted, Time reachable) const {
  const Time start = view.start + view.allowance;
  if (const batching::LevelQueue* const levels = queue_of(lane.model).requests.levels())
    return levels->largest_batch(reachable, lane.execution, wanted, start);
  return batching::largest_batch_by(lane.execution, wanted, start, view.most_urgent);
}

void Dispatcher::pump_timeouts(ModelIndex model, Time now, Time& wake, DispatchOutput& out) {
  batching::LevelQueue& levels = *queue_of(model).requests.levels();
  for (Request& request : levels.take_rejected(now)) {
    answer(model, std::move(request),
           {StatusCode::too_late, "model " + models_[model].name + ": its queue timeout passed"},
           {}, now, out);
  }
  wake = std::min(wake, levels.next_timeout());
}

// What it takes to bring a batch to its proxy.
Duration Dispatcher::time_ahead(const Lane& lane, std::uint32_t count) const {
  constexpr Duration kHandling = std::chrono::microseconds(300);
  constexpr double kBytesPerSecond = 2e9;
  const std::size_t bytes = models_[lane.model].input_bytes * count;
  return kHandling + from_seconds(static_cast<double>(bytes) / kBytesPerSecond);
}

void Dispatcher::pump_model(ModelIndex model, Time now, DispatchOutput& out) {
  ModelQueue& state = queue_of(model);
  Time wake = kNever;
  pump_suspects(model, now, wake, out);
  if (state.requests.levels() != nullptr) pump_timeouts(model, now, wake, out);
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
  answer_overdue(now, out);
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
    queue_of(model).touched = false;
    pump_model(model, now, out);
  }
  if (executables_due_) pump_executables(now, out);
}

Time Dispatcher::next_wake() const {
  return std::min(deadlines_.next(), wakes_.empty() ? kNever : wakes_.top().first);
}

}  // namespace gpulet::serve
