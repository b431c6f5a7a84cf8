#include "node/gpulet_processes.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gpulet/base/time.h"

namespace gpulet::node {
namespace {

// A check this late shows that the backend stalled: the process gets its time again.
constexpr Duration kStalled = std::chrono::milliseconds(500);

// The process was killed from outside or for want of memory: SIGHUP, SIGINT, SIGKILL, SIGTERM.
bool is_from_outside(const ProxyEnded& event) {
  const auto& end = event.end;
  if (event.cause == FailureCause::model_crash) return false;
  return end.signal == 1 || end.signal == 2 || end.signal == 9 || end.signal == 15;
}

}  // namespace

void GpuletProcesses::check_due(Turn turn) {
  while (HostedGpulet* const gpulet = checks_.take_due(turn.time)) {
    check(*gpulet, turn);
    checks_.schedule(*gpulet);
  }
}

void GpuletProcesses::start(HostedGpulet& gpulet, Turn turn) {
  gpulet.enter(GpuletPhase::starting, turn.time);
  gpulet.restart_at = kNever;
  checks_.schedule(gpulet);
  turn.effects.push_back(StartGpulet{gpulet.id(), gpulet.device(), gpulet.size(),
                                     files_.load_request(gpulet), gpulet.input_capacity(),
                                     gpulet.output_capacity(), gpulet.memory_mb(),
                                     gpulet.instance(), gpulet.controlled()});
}

void GpuletProcesses::on_event(ProxyStarted& event, Turn turn) {
  auto* gpulet = gpulets_.find(event.gpulet);
  if (gpulet != nullptr && gpulet->phase() == GpuletPhase::starting)
    gpulet->enter(GpuletPhase::loading, turn.time);
}

void GpuletProcesses::on_event(ProxyLoaded& event, Turn turn) {
  auto* gpulet = gpulets_.find(event.gpulet);
  if (gpulet == nullptr || gpulet->phase() != GpuletPhase::loading || !gpulet->terminating.ok())
    return;
  if (event.device == partition::DeviceHealth::lost)
    return lose_device(*gpulet, event.status, turn);
  if (!event.status.ok()) {
    gpulet->device_at_fault = event.device == partition::DeviceHealth::not_ready;
    kill(*gpulet, gpulet->device_at_fault ? FailureCause::device : event.cause, event.status, turn);
    gpulet->failed_model = std::move(event.failed_model);
    return;
  }
  gpulet->found_share = event.found;
  gpulet->load_stages = event.load_stages;
  gpulet->condition = event.condition;
  files_.remember_variants(*gpulet, event.variants);
  turn.effects.push_back(ActivateShare{event.gpulet});
}

void GpuletProcesses::on_event(ShareActive& event, Turn turn) {
  auto* gpulet = gpulets_.find(event.gpulet);
  if (gpulet == nullptr || gpulet->phase() != GpuletPhase::loading || !gpulet->terminating.ok())
    return;
  if (!event.status.ok()) return kill(*gpulet, event.cause, event.status, turn);
  gpulet->enter(GpuletPhase::ready, turn.time);
  gpulet->load_failures = 0;
  gpulet->status = {};
  links_.send_report(gpulet->report(), turn);
  if (gpulet->controlled() && gpulet->cores)
    turn.effects.push_back(AdjustCores{event.gpulet, *gpulet->cores});
}

void GpuletProcesses::retire(HostedGpulet& gpulet, Turn turn) {
  const auto phase = gpulet.phase();
  if (phase == GpuletPhase::retiring) return;
  if (!has_process(phase)) return enter_gone(gpulet, turn);
  gpulet.enter(GpuletPhase::retiring, turn.time);
  if (phase == GpuletPhase::ready) {
    turn.effects.push_back(FinishProxy{gpulet.id()});
  } else {
    // It holds no batches, and would complete loading before it ends.
    kill(gpulet, FailureCause::unknown, {StatusCode::cancelled, "retired before it had loaded"},
         turn);
  }
}

void GpuletProcesses::enter_gone(HostedGpulet& gpulet, Turn turn) {
  gpulet.enter(GpuletPhase::gone, turn.time);
  gpulet.status = {};
  gpulets_.set_some_gone();
  links_.send_report(gpulet.report(), turn);
}

void GpuletProcesses::kill(HostedGpulet& gpulet, FailureCause cause, Status why, Turn turn) {
  turn.effects.push_back(KillProxy{gpulet.id(), why});
  gpulet.terminating = std::move(why);
  gpulet.cause = cause;
  gpulet.failed_model.clear();
}

void GpuletProcesses::kill_and_fail_batches(HostedGpulet& gpulet, FailureCause cause,
                                            const Status& why, Turn turn) {
  kill(gpulet, cause, why, turn);
  if (gpulet.phase() == GpuletPhase::ready) {
    // Before the process ends, so that the frontend does not send its failed batches here again.
    gpulet.reported_restarting = true;
    links_.send_report(gpulet.report(), turn);
  }
  fail_batches(gpulet, why, cause, {}, turn);
}

void GpuletProcesses::fail_batches(HostedGpulet& gpulet, const Status& why, FailureCause cause,
                                   const ProcessEnd& end, Turn turn) {
  for (const auto& held : gpulet.held) {
    BatchResult result;
    result.id = held.id;
    result.cause = cause;
    result.end = end;
    result.status = {StatusCode::unavailable,
                     fmt::format("the process of gpulet {} ended while it held the batch: {}",
                                 gpulet.id().value, why.to_string())};
    links_.send_to(held.from, std::move(result), turn);
  }
  gpulet.held.clear();
}

void GpuletProcesses::on_event(ProxyEnded& event, Turn turn) {
  auto* gpulet = gpulets_.find(event.gpulet);
  if (gpulet == nullptr || !has_process(gpulet->phase())) return;
  if (event.device == partition::DeviceHealth::not_ready) gpulet->device_at_fault = true;
  const bool killed = !gpulet->terminating.ok();
  if (!killed) {
    const bool was_started = gpulet->phase() != GpuletPhase::starting && !is_from_outside(event);
    gpulet->cause = gpulet->device_at_fault                ? FailureCause::device
                    : event.cause != FailureCause::unknown ? event.cause
                    : was_started                          ? FailureCause::model_crash
                                                           : FailureCause::unknown;
    gpulet->failed_model.clear();
  }
  const auto why =
      gpulet->terminating.ok() ? event.reason : std::exchange(gpulet->terminating, Status());
  record_shared_end(*gpulet);
  fail_batches(*gpulet, why, cause_for_batches(*gpulet, killed, event), event.end, turn);
  gpulet->held_at_end = 0;
  if (gpulet->phase() == GpuletPhase::retiring) return enter_gone(*gpulet, turn);
  fail_or_restart(*gpulet, why, turn);
}

void GpuletProcesses::record_shared_end(const HostedGpulet& gpulet) {
  const auto& device = devices_.offer(gpulet.device());
  if (device.traits.change != partition::ChangeOfSize::in_place || gpulet.held_at_end > 0) return;
  const auto& neighbours = gpulets_.on_device(gpulet.device());
  const auto ends_with_it = [](const HostedGpulet* one) {
    return !one->held.empty() && one->terminating.ok();
  };
  const auto count =
      static_cast<std::size_t>(std::count_if(neighbours.begin(), neighbours.end(), ends_with_it));
  for (HostedGpulet* one : neighbours) {
    if (ends_with_it(one)) one->held_at_end = count;
  }
}

FailureCause GpuletProcesses::cause_for_batches(const HostedGpulet& gpulet, bool killed,
                                                const ProxyEnded& event) {
  if (killed) return gpulet.cause;
  if (is_from_outside(event) || gpulet.phase() == GpuletPhase::retiring)
    return FailureCause::unknown;
  // With batches of several gpulets in the process, the one at fault is unknown.
  if (gpulet.held_at_end > 0)
    return gpulet.held_at_end == 1 ? FailureCause::model_crash : FailureCause::unknown;
  return gpulet.device_at_fault ? FailureCause::device : FailureCause::model_crash;
}

void GpuletProcesses::fail_or_restart(HostedGpulet& gpulet, const Status& why, Turn turn) {
  const bool was_ready = gpulet.phase() == GpuletPhase::ready;
  if (was_ready && turn.time - gpulet.phase_since() >= options_.healthy_after) gpulet.restarts = 0;
  const bool device_at_fault = std::exchange(gpulet.device_at_fault, false);
  if (!was_ready && !device_at_fault) ++gpulet.load_failures;
  gpulet.status = why.ok() ? Status(StatusCode::unavailable, "the process ended") : why;

  // An invalid model file or share stays invalid, and what hung while loading would hang again.
  const bool permanent = why.code() == StatusCode::invalid || gpulet.cause == FailureCause::hung ||
                         gpulet.load_failures >= options_.load_attempts;
  if (!was_ready && !device_at_fault && permanent) {
    gpulet.enter(GpuletPhase::failed, turn.time);
  } else {
    // The device was not ready, and no process was started: try again soon.
    const bool was_refused = device_at_fault && gpulet.phase() == GpuletPhase::starting;
    const Duration longest =
        was_refused ? options_.longest_device_retry_delay : options_.longest_restart_delay;
    gpulet.enter(GpuletPhase::restarting, turn.time);
    gpulet.restart_at =
        turn.time + backoff_after(++gpulet.restarts, options_.first_restart_delay, longest);
    checks_.schedule(gpulet);
  }
  if (!std::exchange(gpulet.reported_restarting, false)) links_.send_report(gpulet.report(), turn);
}

void GpuletProcesses::check(HostedGpulet& gpulet, Turn turn) {
  if (checks_.next_check(gpulet) > turn.time) return;
  if (gpulet.phase() == GpuletPhase::restarting) {
    start(gpulet, turn);
  } else if (gpulet.held.empty()) {
    kill(gpulet, FailureCause::hung,
         {StatusCode::timeout,
          fmt::format("{} did not load its models within {:.0f} s (load_timeout_s of the backend, "
                      "and the time for their files)",
                      name_of(gpulet.id()), to_seconds(checks_.load_bound_of(gpulet)))},
         turn);
  } else if (turn.time - checks_.hung_at(gpulet) >= kStalled) {
    gpulet.last_progress = turn.time;
  } else {
    const Duration silent = turn.time - gpulet.last_progress;
    kill_and_fail_batches(
        gpulet, FailureCause::hung,
        {StatusCode::timeout,
         fmt::format("{} hung in a batch of '{}': no result for {:f} s", name_of(gpulet.id()),
                     gpulet.held.front().model, to_seconds(silent))},
        turn);
  }
}

void GpuletProcesses::fail(HostedGpulet& gpulet, Status why, FailureCause cause,
                           const std::string& model, Turn turn) {
  gpulet.status = std::move(why);
  gpulet.cause = cause;
  gpulet.failed_model = model;
  gpulet.enter(GpuletPhase::failed, turn.time);
  links_.send_report(gpulet.report(), turn);
}

void GpuletProcesses::lose_device(const HostedGpulet& witness, const Status& why, Turn turn) {
  const auto device = witness.device();
  const bool all = devices_.offer(device).traits.fault == partition::FaultReach::device;
  const Status reason(StatusCode::unavailable, fmt::format("device {} failed under {}: {}", device,
                                                           name_of(witness.id()), why.to_string()));
  for (HostedGpulet* gpulet : gpulets_.on_device(device)) {
    if (!all && gpulet != &witness) continue;
    if (!has_process(gpulet->phase()) || !gpulet->terminating.ok()) continue;
    gpulet->device_at_fault = all;
    kill_and_fail_batches(*gpulet, FailureCause::device, reason, turn);
  }
}

void GpuletProcesses::on_event(DeviceHealthReported& event, Turn turn) {
  if (!devices_.report(event)) return;
  const Status& fault = devices_.fault_of(event.device);
  links_.send_to_all(DeviceReport{event.device, fault}, turn);
  for (HostedGpulet* gpulet : gpulets_.on_device(event.device)) {
    if (fault.ok()) {
      if (gpulet->phase() != GpuletPhase::restarting) continue;
      gpulet->restart_at = turn.time;
      checks_.schedule(*gpulet);
    } else if (gpulet->phase() == GpuletPhase::fetching) {
      fail(*gpulet, fault, FailureCause::device, {}, turn);
    } else if (has_process(gpulet->phase()) && gpulet->terminating.ok()) {
      gpulet->device_at_fault = true;
      kill_and_fail_batches(*gpulet, FailureCause::device, fault, turn);
    }
  }
}

}  // namespace gpulet::node
