#include "node/gpulet_batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace gpulet::node {
namespace {

// Bounds a number from the wire, so that it cannot overflow a time.
constexpr Duration kLongestExpected = std::chrono::hours(1);
// Bounds the reports that a process can cause.
constexpr Duration kBetweenConditions = std::chrono::seconds(1);

}  // namespace

bool GpuletBatches::admits(FrontendId from, const Batch& batch, Turn turn) {
  const HostedGpulet* const gpulet = gpulets_.find(batch.gpulet);
  if (gpulet == nullptr || gpulet->owner.empty()) return links_.admits(from, batch.term, turn);
  if (links_.frontend_of(gpulet->owner) == from) return true;
  links_.count_refusal();
  return false;
}

void GpuletBatches::reject(const HeldBatch& held, Status why, bool elsewhere, Turn turn) {
  BatchResult refused;
  refused.id = held.id;
  refused.status = std::move(why);
  refused.elsewhere = elsewhere;
  refused.received = held.sent - held.arrived;
  refused.withdrawn = held.withdrawn;
  refused.missing = held.missing;
  links_.send_to(held.from, std::move(refused), turn);
}

void GpuletBatches::on_arrived(FrontendId from, BatchArrived& event, Turn turn) {
  const auto expected =
      std::clamp(event.batch.expected_duration, Duration::zero(), kLongestExpected);
  HeldBatch held{from,     event.batch.id, event.batch.model, event.batch.count,
                 expected, event.arrived,  turn.time};
  if (!admits(from, event.batch, turn)) {
    awaited_.refuse(from, held.id);
    return reject(held,
                  {StatusCode::unavailable,
                   fmt::format("another frontend sends the batches of {} on node '{}'",
                               name_of(event.batch.gpulet), options_.node)},
                  true, turn);
  }
  event.batch.entries.empty() ? run(std::move(held), event, turn) : await(from, event, turn);
}

void GpuletBatches::await(FrontendId owner, BatchArrived& event, Turn turn) {
  const Batch& batch = event.batch;
  Status why = refusal(event, turn.time);
  if (event.memory.size() != input_bytes(batch)) event.memory = {};
  const std::size_t row_bytes =
      why.ok() ? gpulets_.find(batch.gpulet)->row_bytes(batch.model) : std::size_t{0};
  if (why.ok()) why = awaited_.check(owner, batch, row_bytes);
  if (!why.ok()) {
    awaited_.refuse(owner, batch.id);
    HeldBatch refused;
    refused.from = owner;
    refused.id = batch.id;
    refused.arrived = refused.sent = turn.time;
    return reject(refused, std::move(why), !may_run(batch.gpulet), turn);
  }
  std::vector<std::optional<FrontendId>> entries;
  for (const EntryRows& one : batch.entries) entries.push_back(links_.frontend_of(one.entry));
  awaited_.add(owner, std::move(event), row_bytes, entries, turn.time);
  run_ready(turn);
}

void GpuletBatches::on_rows(FrontendId from, const Rows& command, Turn turn) {
  const std::optional<FrontendId> owner = links_.frontend_of(command.owner);
  if (!owner) return;
  awaited_.take(from, *owner, command, turn.time);
  run_ready(turn);
}

void GpuletBatches::run_ready(Turn turn) {
  for (GatheredBatch& one : awaited_.take_ready(turn.time)) {
    const Batch& batch = one.arrived.batch;
    HeldBatch held{one.owner,
                   batch.id,
                   batch.model,
                   batch.count,
                   std::clamp(batch.expected_duration, Duration::zero(), kLongestExpected),
                   one.arrived.arrived,
                   turn.time,
                   std::move(one.withdrawn),
                   std::move(one.missing)};
    if (batch.count > 0) {
      run(std::move(held), one.arrived, turn);
    } else {
      reject(held, {StatusCode::unavailable, "none of the batch's inputs arrived"}, false, turn);
    }
  }
}

bool GpuletBatches::takes_rows(FrontendId frontend, const Rows& rows, std::size_t bytes) const {
  const std::optional<FrontendId> owner = links_.frontend_of(rows.owner);
  return owner && awaited_.wants(frontend, *owner, rows, bytes);
}

std::size_t GpuletBatches::input_bytes(const Batch& batch) const {
  const HostedGpulet* const gpulet = gpulets_.find(batch.gpulet);
  if (gpulet == nullptr || !gpulet->check(batch).ok()) return 0;
  const bool in_order = batch.synthetic || gpulet->has_one_input(batch.model);
  return in_order ? batch.count * gpulet->row_bytes(batch.model) : 0;
}

MutableBytes GpuletBatches::rows_memory(FrontendId frontend, const Rows& rows) const {
  const std::optional<FrontendId> owner = links_.frontend_of(rows.owner);
  return owner ? awaited_.place_of(frontend, *owner, rows) : MutableBytes();
}

void GpuletBatches::run(HeldBatch held, BatchArrived& event, Turn turn) {
  if (Status why = refusal(event, turn.time); !why.ok())
    return reject(held, std::move(why), !may_run(event.batch.gpulet), turn);
  auto& gpulet = *gpulets_.find(event.batch.gpulet);
  const auto latency = devices_.latency(gpulet, event.batch, gpulets_.on_device(gpulet.device()));
  if (!latency.ok()) return reject(held, latency.status(), false, turn);
  RunOnProxy order{gpulet.id(), {}, {}};
  RunBatch& run = order.batch;
  run.id = event.batch.id;
  run.model = event.batch.model;
  run.count = event.batch.count;
  run.start_within = event.batch.start_within - (turn.time - event.arrived);
  run.simulated_latency = latency.value();
  run.synthetic = event.batch.synthetic;
  if (event.memory.size() > 0) {
    order.input = std::move(event.memory).freeze();
    run.input_bytes = order.input.size();
  } else if (!event.batch.entries.empty()) {
    order.pieces = gpulet.in_layout(run.model, event.batch.inputs);
    run.input_bytes = run.count * gpulet.row_bytes(run.model);
  } else if (!event.batch.inputs.empty()) {
    order.input = std::move(event.batch.inputs.front());
    run.input_bytes = order.input.size();
  }
  if (gpulet.held.empty()) gpulet.last_progress = turn.time;
  gpulet.held.push_back(std::move(held));
  checks_.schedule(gpulet);
  turn.effects.push_back(std::move(order));
}

bool GpuletBatches::may_run(GpuletId id) const {
  const HostedGpulet* const gpulet = gpulets_.find(id);
  return gpulet != nullptr && gpulet->phase() != GpuletPhase::retiring &&
         gpulet->phase() != GpuletPhase::gone;
}

Status GpuletBatches::refusal(const BatchArrived& event, Time now) const {
  const std::string name = name_of(event.batch.gpulet);
  const HostedGpulet* const found = gpulets_.find(event.batch.gpulet);
  if (found == nullptr) {
    return {StatusCode::unavailable,
            fmt::format("{} does not exist on node '{}'", name, options_.node)};
  }
  const HostedGpulet& gpulet = *found;
  if (gpulet.phase() != GpuletPhase::ready || !gpulet.terminating.ok()) {
    return {StatusCode::unavailable,
            gpulet.terminating.ok()
                ? fmt::format("{} accepts no batches: it is {}", name, to_string(gpulet.phase()))
                : name + " accepts no batches: its process is being killed"};
  }
  auto fits = gpulet.check(event.batch);
  if (!fits.ok()) return fits;
  const bool held = std::any_of(gpulet.held.begin(), gpulet.held.end(),
                                [&](const auto& one) { return one.id == event.batch.id; });
  if (held) {
    return {StatusCode::invalid,
            fmt::format("{} holds another batch of that number, {}", name, event.batch.id.value)};
  }
  if (now - event.arrived >= event.batch.start_within) {
    return {StatusCode::too_late,
            fmt::format("the batch took longer to arrive than the {:f} ms within which it had to "
                        "start",
                        to_ms(event.batch.start_within))};
  }
  if (!event.placed && event.batch.entries.empty()) {
    return {StatusCode::overloaded, name + " has no memory left for another batch"};
  }
  return {};
}

void GpuletBatches::update_condition(HostedGpulet& gpulet, const BatchRan& ran, Turn turn) {
  if (!ran.condition || *ran.condition == gpulet.condition || gpulet.phase() != GpuletPhase::ready)
    return;
  const auto& last = gpulet.condition_reported;
  if (last && turn.time - *last < kBetweenConditions) return;
  gpulet.condition = *ran.condition;
  gpulet.condition_reported = turn.time;
  links_.send_report(gpulet.report(), turn);
}

void GpuletBatches::on_completed(BatchCompleted& event, Turn turn) {
  auto* gpulet = gpulets_.find(event.gpulet);
  if (gpulet == nullptr || !has_process(gpulet->phase())) return;
  const auto found = std::find_if(gpulet->held.begin(), gpulet->held.end(),
                                  [&](const auto& batch) { return batch.id == event.ran.id; });
  if (found == gpulet->held.end()) {
    if (!gpulet->terminating.ok()) return;  // failed when the process was killed
    processes_.kill(*gpulet, FailureCause::model_crash,
                    {StatusCode::malformed,
                     fmt::format("the process of gpulet {} returned a batch that it does not hold",
                                 event.gpulet.value)},
                    turn);
    return;
  }
  if (event.ran.device == partition::DeviceHealth::lost)
    return processes_.lose_device(*gpulet, event.ran.status, turn);
  const auto held = std::move(*found);
  gpulet->held.erase(found);
  gpulet->last_progress = turn.time;
  checks_.schedule(*gpulet);
  update_condition(*gpulet, event.ran, turn);

  BatchResult result;
  result.id = held.id;
  result.status = std::move(event.ran.status);
  if (result.status.ok()) {
    result.outputs = std::move(event.outputs);
  } else if (event.ran.cause == FailureCause::input) {
    result.cause = FailureCause::input;  // a process is not trusted to report other causes
  }
  result.received = held.sent - held.arrived;
  result.queued = result.received + event.ran.queued;
  result.executed = event.ran.executed;
  result.decoded = std::min(event.ran.decoded, event.ran.executed);
  result.failed = std::move(event.ran.failed);
  result.detail = std::move(event.ran.detail);
  result.withdrawn = held.withdrawn;
  result.missing = held.missing;
  links_.send_to(held.from, std::move(result), turn);
}

void GpuletBatches::disconnected(FrontendId frontend, Turn turn) {
  awaited_.disconnected(frontend);
  run_ready(turn);
}

}  // namespace gpulet::node
