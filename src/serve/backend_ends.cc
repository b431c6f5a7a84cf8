// BackendCore: processes that have ended, and what follows for their gpulets and batches.
#include <algorithm>
#include <utility>

#include "gpulet/serve/backend_core.h"

namespace gpulet::serve {
namespace {

// By somebody outside, or for the node's want of memory: nothing that the process did. (SIGHUP,
// SIGINT, SIGKILL, SIGTERM)
bool is_from_outside(const ProxyEnded& event) {
  const auto& end = event.end;
  if (event.cause == FailureCause::model_crash) return false;
  return end.signal == 1 || end.signal == 2 || end.signal == 9 || end.signal == 15;
}

}  // namespace

void BackendCore::on_event(ProxyEnded& event, Now now) {
  auto* gpulet = find(event.gpulet);
  if (gpulet == nullptr || !has_process(gpulet->phase())) return;
  if (event.device == partition::DeviceHealth::not_ready) gpulet->blameless = true;
  const bool killed = !gpulet->doomed.ok();
  if (!killed) {
    const bool was_started = gpulet->phase() != GpuletPhase::starting && !is_from_outside(event);
    gpulet->cause = gpulet->blameless                      ? FailureCause::device
                    : event.cause != FailureCause::unknown ? event.cause
                    : was_started                          ? FailureCause::model_crash
                                                           : FailureCause::unknown;
    gpulet->failed_model.clear();
  }
  const auto why = gpulet->doomed.ok() ? event.reason : std::exchange(gpulet->doomed, Status());
  remember_fellows(*gpulet);
  answer_all_unavailable(*gpulet, why, cause_for_batches(*gpulet, killed, event), event.end, now);
  gpulet->held_at_end = 0;
  if (gpulet->phase() == GpuletPhase::retiring) {
    let_go(*gpulet, now);
    return;
  }
  give_up_or_restart(*gpulet, why, now);
}

void BackendCore::remember_fellows(const HostedGpulet& gpulet) {
  const auto& device = options_.devices[gpulet.device()];
  if (device.traits.change != partition::ChangeOfSize::in_place || gpulet.held_at_end > 0) return;
  const auto& neighbours = on_device_[gpulet.device()];
  const auto ends_with_it = [](const HostedGpulet* one) {
    return !one->held.empty() && one->doomed.ok();
  };
  const auto count =
      static_cast<std::size_t>(std::count_if(neighbours.begin(), neighbours.end(), ends_with_it));
  for (HostedGpulet* one : neighbours) {
    if (ends_with_it(one)) one->held_at_end = count;
  }
}

FailureCause BackendCore::cause_for_batches(const HostedGpulet& gpulet, bool killed,
                                            const ProxyEnded& event) const {
  if (killed) return gpulet.cause;
  if (is_from_outside(event) || gpulet.phase() == GpuletPhase::retiring)
    return FailureCause::unknown;
  // Of several whose batches were in the process, anyone may be to blame.
  if (gpulet.held_at_end > 0)
    return gpulet.held_at_end == 1 ? FailureCause::model_crash : FailureCause::unknown;
  return gpulet.blameless ? FailureCause::device : FailureCause::model_crash;
}

void BackendCore::give_up_or_restart(HostedGpulet& gpulet, const Status& why, Now now) {
  const bool was_ready = gpulet.phase() == GpuletPhase::ready;
  if (was_ready && now.time - gpulet.phase_since() >= options_.healthy_after) gpulet.restarts = 0;
  const bool blameless = std::exchange(gpulet.blameless, false);
  if (!was_ready && !blameless) ++gpulet.load_failures;
  gpulet.status = why.ok() ? Status(StatusCode::unavailable, "its process ended") : why;

  // What is invalid once (a file that is no model, a share the device cannot give) stays so.
  const bool hopeless =
      why.code() == StatusCode::invalid || gpulet.load_failures >= options_.load_attempts;
  if (!was_ready && !blameless && hopeless) {
    gpulet.enter(GpuletPhase::failed, now.time);
  } else {
    // A device that makes ready for it is not kept waiting, nor is it: no process was started.
    const bool was_refused = blameless && gpulet.phase() == GpuletPhase::starting;
    const Duration longest =
        was_refused ? options_.longest_asking_delay : options_.longest_restart_delay;
    gpulet.enter(GpuletPhase::restarting, now.time);
    gpulet.restart_at = now.time + restart_delay(gpulet.restarts++, longest);
    plan_look(gpulet);
  }
  if (!std::exchange(gpulet.told_restarting, false)) tell(gpulet.report(), now);
}

Duration BackendCore::restart_delay(std::uint32_t restarts, Duration longest) const {
  auto delay = options_.first_restart_delay;
  for (std::uint32_t i = 0; i < restarts && delay < longest; ++i) delay *= 2;
  return std::min(delay, longest);
}

}  // namespace gpulet::serve
