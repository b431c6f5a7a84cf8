#include "serve/dispatch/dispatcher.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "gpulet/batching/request_queue.h"

namespace gpulet::serve {
namespace {

// A batch that waited that long for a payload in vain was held up by its entry.
constexpr Duration kHeldUp = std::chrono::milliseconds(20);

}  // namespace

Dispatcher::Dispatcher(std::vector<ServedModel> models, std::uint32_t max_queue_per_model,
                       BatchId first_batch, const control::Options& control)
    : queues_(max_queue_per_model),
      batches_(first_batch),
      instances_(control, {queues_, slots_, gpulets_, records_, batches_, sender_}) {
  for (ServedModel& model : models) versions_.add(std::move(model));
}

// ---- gpulets

void Dispatcher::set_routes(const std::vector<GpuletRoute>& routes, Time now) {
  gpulets_.set_routes(routes, now);
  instances_.follow(routes);
}

void Dispatcher::set_ready(GpuletId id, bool ready, Time now) {
  RoutedGpulet* const gpulet = gpulets_.find(id);
  if (gpulet == nullptr) return;
  slots_.change_ready(*gpulet, ready);
  gpulet->busy_until = std::max(gpulet->busy_until, now);
  gpulets_.touch(*gpulet);
}

void Dispatcher::remove(GpuletId id, Time now, DispatchOutput& out) {
  gpulets_.remove(id);
  instances_.forget(id);
  const Status lost(StatusCode::unavailable, "its gpulet was lost");
  for (const BatchId batch : batches_.held_by(id))
    retries_.put_back(batches_.take(batch), lost, now, out);
}

// ---- requests

void Dispatcher::enqueue(ModelIndex model, Request&& request, Time now, DispatchOutput& out) {
  records_.offered(model);
  if (Status full = queues_.why_full(model, request); !full.ok())
    return answers_.refuse(model, std::move(request), std::move(full), now, out);
  queues_.of(model).push(std::move(request));
  slots_.arrived(model);
}

void Dispatcher::refuse(ModelIndex model, Request&& request, Status status, DispatchOutput& out) {
  records_.offered(model);
  const Time arrived = request.trace.arrived;
  answers_.refuse(model, std::move(request), std::move(status), arrived, out);
}

void Dispatcher::client_gone(ClientId client) {
  for (const auto& [model, gone] : queues_.remove_client(client)) {
    records_.cancelled(model, gone);
    slots_.reorder(model);
  }
}

void Dispatcher::withdraw(ModelIndex model, ClientId client, std::uint64_t tag) {
  if (!queues_.remove(model, client, tag)) return;
  slots_.reorder(model);
  records_.cancelled(model, 1);
}

std::vector<std::pair<ModelIndex, Request>> Dispatcher::take_waiting(
    const std::function<bool(ModelIndex)>& of) {
  std::vector<std::pair<ModelIndex, Request>> taken;
  for (const ModelIndex model : queues_.unlist(of)) {
    std::vector<Request> waiting = queues_.take_all(model);
    records_.handed_on(model, waiting.size());
    slots_.reorder(model);
    for (Request& request : waiting) taken.emplace_back(model, std::move(request));
  }
  return taken;
}

// ---- results of batches

void Dispatcher::completed(const BatchResult& result, Time now, DispatchOutput& out) {
  if (!batches_.contains(result.id))
    return;  // its gpulet was lost before, and its requests were answered then
  if (Retries::ended_process(result)) return retries_.lose_process(result, now, out);
  BatchInFlight batch = batches_.take(result.id);
  take_missing(batch, result, now, out);
  const bool ran = result.status.ok() && !batch.requests.empty();
  if (ran) note_run(batch, result.executed, now, out);
  gpulets_.release(batch, ran, now);
  if (result.elsewhere) return return_elsewhere(std::move(batch), now, out);
  if (batch.requests.empty()) return;
  Status status = result.status;
  if (status.ok()) {
    status = batching::check_outputs(result.outputs, batch.requests.size(),
                                     queues_.models()[batch.model].output_sizes);
  }
  status.ok() ? take_outputs(std::move(batch), result, now, out)
              : take_failure(std::move(batch), status, result.cause, now, out);
}

// A node is not trusted: places beyond the batch are ignored, and a request whose payload it got
// from here goes back to its queue.
void Dispatcher::take_missing(BatchInFlight& batch, const BatchResult& result, Time now,
                              DispatchOutput& out) {
  if (result.withdrawn.empty() && result.missing.empty()) return;
  enum class Fate : std::uint8_t { ran, withdrawn, missing };
  std::vector<Fate> fates(batch.requests.size(), Fate::ran);
  const auto mark = [&fates](const std::vector<std::uint32_t>& places, Fate fate) {
    for (const std::uint32_t place : places) {
      if (place < fates.size()) fates[place] = fate;
    }
  };
  mark(result.withdrawn, Fate::withdrawn);
  mark(result.missing, Fate::missing);
  BatchInFlight lost = batch;
  lost.requests.clear();
  lost.answered.clear();
  std::vector<Request> stay;
  std::vector<bool> answered;
  for (std::size_t i = 0; i < fates.size(); ++i) {
    Request& request = batch.requests[i];
    if (fates[i] == Fate::ran) {
      answered.push_back(batch.is_answered(i));
      stay.push_back(std::move(request));
    } else if (batch.is_answered(i)) {
      records_.discarded(batch.model);
    } else if (request.kept) {
      // Where its batch had little time, its entry is not to blame.
      const bool held_up = fates[i] == Fate::missing && result.received >= kHeldUp;
      records_.handed_on(batch.model, 1);
      out.returned.push_back({request.client, request.tag, held_up, now});
    } else {
      lost.requests.push_back(std::move(request));
    }
  }
  batch.requests = std::move(stay);
  batch.answered = std::move(answered);
  if (lost.requests.empty()) return;
  retries_.put_back(std::move(lost), {StatusCode::unavailable, "its node has not got it"}, now,
                    out);
}

void Dispatcher::note_run(const BatchInFlight& batch, Duration executed, Time now,
                          DispatchOutput& out) {
  RoutedGpulet* const gpulet = gpulets_.find(batch.gpulet);
  if (gpulet == nullptr) return;
  gpulets_.ran(*gpulet, batch, executed, now);
  if (!gpulet->has_rounds()) return;
  records_.ran(batch.model, executed, batch.expected, now);
  out.ran = BatchRun{batch.gpulet, batch.model, static_cast<std::uint32_t>(batch.requests.size()),
                     executed};
}

void Dispatcher::return_elsewhere(BatchInFlight batch, Time now, DispatchOutput& out) {
  if (RoutedGpulet* const gpulet = gpulets_.find(batch.gpulet))
    slots_.change_ready(*gpulet, false);  // until its backend reports it to this frontend again
  const Status refused(StatusCode::overloaded, "its gpulet has another owner");
  retries_.put_back(std::move(batch), refused, now, out);
}

void Dispatcher::take_failure(BatchInFlight batch, const Status& status, FailureCause cause,
                              Time now, DispatchOutput& out) {
  const bool refused =
      status.code() == StatusCode::too_late || status.code() == StatusCode::overloaded;
  if (!refused && cause != FailureCause::input)
    out.failed = BatchFailed{batch.gpulet, batch.model, status};
  const bool one_of_many = cause == FailureCause::input && batch.requests.size() > 1;
  one_of_many ? retries_.isolate(std::move(batch), now, out)
              : retries_.put_back(std::move(batch), status, now, out);
}

namespace {

// Null: the batch ran with it.
const FailedRow* failed_row(const BatchResult& result, std::size_t row) {
  const auto found = std::find_if(result.failed.begin(), result.failed.end(),
                                  [row](const FailedRow& one) { return one.row == row; });
  return found == result.failed.end() ? nullptr : &*found;
}

// A process is not trusted to report other failures.
Status failure_of(const FailedRow& failed) {
  const bool overloaded = failed.why.code() == StatusCode::overloaded;
  return {overloaded ? StatusCode::overloaded : StatusCode::invalid, failed.why.message()};
}

}  // namespace

void Dispatcher::take_outputs(BatchInFlight batch, const BatchResult& result, Time now,
                              DispatchOutput& out) {
  const std::size_t count = batch.requests.size();
  const BatchTimes times = times_of(result, now - batch.requests.front().trace.dispatched, now);
  records_.add_batch(batch.model, static_cast<std::uint32_t>(count), times);
  for (std::size_t i = 0; i < count; ++i) {
    Request& request = batch.requests[i];
    if (!batch.is_answered(i) && request.answer_by() < now) answer_overdue(batch, i, now, out);
    if (batch.is_answered(i)) {
      records_.discarded(batch.model);
      continue;
    }
    request.trace.completed = now;
    request.trace.queued_at_backend = result.queued;
    request.trace.executed = result.executed;
    if (const FailedRow* const failed = failed_row(result, i)) {
      answers_.refuse(batch.model, std::move(request),
                      failure_of(*failed).within("model " + queues_.models()[batch.model].name),
                      now, out);
      continue;
    }
    answers_.serve(batch.model, std::move(request),
                   batching::scatter_outputs(result.outputs, count, i,
                                             queues_.models()[batch.model].output_sizes),
                   times, now, out);
  }
}

void Dispatcher::answer_overdue(BatchInFlight& batch, std::size_t index, Time now,
                                DispatchOutput& out) {
  batch.answered.resize(batch.requests.size());
  batch.answered[index] = true;
  // The copy in the batch keeps counting as in flight, because its gpulet still works for it.
  Request& request = batch.requests[index];
  request.input = Bytes();
  records_.overdue(batch.model);
  answers_.refuse(batch.model, Request(request),
                  {StatusCode::too_late, "model " + queues_.models()[batch.model].name +
                                             ": its batch was still running at the deadline"},
                  now, out);
}

// ---- time

void Dispatcher::pump(Time now, DispatchOutput& out) {
  batches_.answer_overdue(now, [&](BatchInFlight& batch, std::size_t index) {
    answer_overdue(batch, index, now, out);
  });
  agenda_.advance(now, [this](GpuletId id) {
    RoutedGpulet* const gpulet = gpulets_.find(id);
    return gpulet == nullptr ? nullptr : &gpulet->mark;
  });
  while (true) {
    if (const std::optional<ModelIndex> model = agenda_.take_model()) {
      pump_model(*model, now, out);
    } else if (const std::optional<GpuletId> gpulet = agenda_.take_gpulet()) {
      pump_gpulet(*gpulet, now, out);
    } else {
      break;
    }
  }
  if (agenda_.take_instances()) instances_.pump(now, out);
}

void Dispatcher::pump_model(ModelIndex model, Time now, DispatchOutput& out) {
  Time wake = kNever;
  retries_.pump(model, now, wake, out);
  late_.answer_timeouts(model, now, wake, out);
  for (const ServingSlot& one : slots_.first_free_first(model)) {
    while (rounds_.pump(one, now, wake, out)) {
    }
  }
  late_.drop_hopeless(model, now, out);
  const batching::PendingRequests& requests = queues_.of(model).requests;
  if (!requests.empty()) wake = std::min(wake, requests.front_deadline() + Duration(1));
  agenda_.wake(model, wake);
}

void Dispatcher::pump_gpulet(GpuletId id, Time now, DispatchOutput& out) {
  RoutedGpulet* const gpulet = gpulets_.find(id);
  if (gpulet == nullptr) return;  // removed
  gpulet->mark.due = false;
  if (!gpulet->takes_turns()) return gpulets_.touch(*gpulet);  // its routes changed
  if (!gpulet->ready) return;                                  // what it holds decides nothing now
  while (rounds_.pump_in_turn(id, *gpulet, now, out)) {
  }
  late_.drop_hopeless(*gpulet, now, out);
}

Time Dispatcher::next_wake() const {
  return std::min(batches_.next_deadline(), agenda_.next_wake());
}

}  // namespace gpulet::serve
