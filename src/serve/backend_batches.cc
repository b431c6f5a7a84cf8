// BackendCore: batches on their way through.
#include <algorithm>
#include <utility>

#include "gpulet/serve/backend_core.h"

namespace gpulet::serve {
namespace {

constexpr Duration kLongestExpected =
    std::chrono::hours(1);  // a number from the wire must not overflow a time

}  // namespace

void BackendCore::on_event(BatchArrived& event, Now now) {
  last_heard_ = now.time;
  const auto expected =
      std::clamp(event.batch.expected_duration, Duration::zero(), kLongestExpected);
  HeldBatch held{event.batch.id, event.batch.model, event.batch.count,
                 expected,       event.arrived,     now.time,
                 false};
  BatchResult refused;
  refused.id = event.batch.id;
  refused.status = refusal(event, now.time);
  if (!refused.status.ok()) {
    answer(held, std::move(refused), now);
    return;
  }
  auto& gpulet = *find(event.batch.gpulet);
  const auto latency = simulated_latency(gpulet, event.batch);
  if (!latency.ok()) {
    refused.status = latency.status();
    answer(held, std::move(refused), now);
    return;
  }
  RunBatch run;
  run.id = event.batch.id;
  run.model = event.batch.model;
  run.count = event.batch.count;
  run.start_within = event.batch.start_within - (now.time - event.arrived);
  run.simulated_latency = latency.value();
  auto input = event.batch.inputs.empty() ? Bytes() : std::move(event.batch.inputs.front());
  run.input_bytes = input.size();
  if (gpulet.held.empty()) gpulet.last_progress = now.time;
  gpulet.held.push_back(std::move(held));
  plan_look(gpulet);
  now.effects.push_back(RunOnProxy{gpulet.id(), std::move(run), std::move(input)});
}

Status BackendCore::refusal(const BatchArrived& event, Time now) const {
  const std::string name = name_of(event.batch.gpulet);
  const auto found = gpulets_.find(event.batch.gpulet);
  if (found == gpulets_.end()) {
    return {StatusCode::unavailable, name + " is not on node '" + options_.node + "'"};
  }
  const auto& gpulet = found->second;
  if (gpulet.phase() != GpuletPhase::ready || !gpulet.doomed.ok()) {
    return {StatusCode::unavailable,
            name + " takes no batches: " +
                (gpulet.doomed.ok() ? "it is " + std::string(to_string(gpulet.phase()))
                                    : "its process is being ended")};
  }
  auto fits = gpulet.check(event.batch);
  if (!fits.ok()) return fits;
  if (now - event.arrived >= event.batch.start_within) {
    return {StatusCode::too_late, "the batch had to start within " +
                                      std::to_string(to_ms(event.batch.start_within)) +
                                      " ms and took longer to arrive"};
  }
  if (!event.placed) {
    return {StatusCode::overloaded, name + " holds as many batches as its memory takes"};
  }
  return {};
}

// What runs beside it right now: the head of every other gpulet of the device.
Result<Duration> BackendCore::simulated_latency(const HostedGpulet& gpulet, const Batch& batch) {
  if (!is_simulated(gpulet.device())) return Duration{};
  if (gpulet.controlled()) return latency_on(gpulet, cores_of(gpulet), batch.model, batch.count);
  std::vector<SimulatedBatch> beside;
  for (const HostedGpulet* other : on_device_[gpulet.device()]) {
    if (other == &gpulet || other->held.empty() || other->controlled()) continue;
    beside.push_back({other->held.front().model, other->held.front().count, other->size()});
  }
  return simulated_[gpulet.device()].latency({batch.model, batch.count, gpulet.size()}, beside);
}

void BackendCore::on_event(ProxyRan& event, Now now) {
  auto* gpulet = find(event.gpulet);
  if (gpulet == nullptr || !has_process(gpulet->phase())) return;
  const auto found = std::find_if(gpulet->held.begin(), gpulet->held.end(),
                                  [&](const auto& batch) { return batch.id == event.ran.id; });
  if (found == gpulet->held.end()) {
    if (!gpulet->doomed.ok()) return;  // answered when that was decided
    kill(*gpulet, FailureCause::model_crash,
         {StatusCode::malformed, "the process of gpulet " + std::to_string(event.gpulet.value) +
                                     " answered a batch that it does not hold"},
         now);
    return;
  }
  if (event.ran.device == partition::DeviceHealth::lost) {
    lose_device(*gpulet, event.ran.status, now);
    return;
  }
  const auto held = std::move(*found);
  gpulet->held.erase(found);
  gpulet->last_progress = now.time;
  plan_look(*gpulet);

  BatchResult result;
  result.id = held.id;
  result.status = std::move(event.ran.status);
  if (result.status.ok()) {
    result.outputs = std::move(event.outputs);
  } else if (event.ran.cause == FailureCause::input) {
    result.cause = FailureCause::input;  // other causes are not for a proxy to tell
  }
  result.received = held.sent - held.arrived;
  result.queued = result.received + event.ran.queued;
  result.executed = event.ran.executed;
  answer(held, std::move(result), now);
}

void BackendCore::answer(const HeldBatch& batch, BatchResult result, Now now) {
  if (!batch.orphaned) tell(std::move(result), now);
}

void BackendCore::answer_all_unavailable(HostedGpulet& gpulet, const Status& why,
                                         FailureCause cause, const ProcessEnd& end, Now now) {
  for (const auto& held : gpulet.held) {
    BatchResult result;
    result.id = held.id;
    result.cause = cause;
    result.end = end;
    result.status = {StatusCode::unavailable, "the process of gpulet " +
                                                  std::to_string(gpulet.id().value) +
                                                  " ended under the batch: " + why.to_string()};
    answer(held, std::move(result), now);
  }
  gpulet.held.clear();
}

}  // namespace gpulet::serve
