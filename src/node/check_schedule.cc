#include "node/check_schedule.h"

#include <algorithm>

#include "gpulet/protocol/messages.h"

namespace gpulet::node {

HostedGpulet* CheckSchedule::take_due(Time now) {
  while (!checks_.empty() && checks_.top().first <= now) {
    const auto [time, id] = checks_.top();
    checks_.pop();
    HostedGpulet* const gpulet = gpulets_.find(id);
    if (gpulet == nullptr || gpulet->check_at != time) continue;  // an earlier check replaced it
    gpulet->check_at = kNever;
    return gpulet;
  }
  return nullptr;
}

Time CheckSchedule::next_check(const HostedGpulet& gpulet) const {
  if (!gpulet.terminating.ok()) return kNever;  // its ProxyEnded is pending
  switch (gpulet.phase()) {
    case GpuletPhase::restarting:
      return devices_.fault_of(gpulet.device()).ok() ? gpulet.restart_at : kNever;
    case GpuletPhase::starting:
    case GpuletPhase::loading:
      return gpulet.phase_since() + load_bound_of(gpulet);
    case GpuletPhase::ready:
    case GpuletPhase::retiring:
      return gpulet.held.empty() ? kNever : hung_at(gpulet);
    case GpuletPhase::fetching:
    case GpuletPhase::failed:
    case GpuletPhase::gone:
      return kNever;
  }
  return kNever;
}

Duration CheckSchedule::load_bound_of(const HostedGpulet& gpulet) const {
  return load_bound(options_.load_timeout, gpulet.models().size(), files_.bytes_of(gpulet));
}

Time CheckSchedule::hung_at(const HostedGpulet& gpulet) const {
  const double expected_s = to_seconds(gpulet.held.front().expected);
  return gpulet.last_progress +
         std::max(options_.hang_timeout, from_seconds(options_.hang_factor * expected_s));
}

void CheckSchedule::schedule(HostedGpulet& gpulet) {
  const auto time = next_check(gpulet);
  if (time >= gpulet.check_at) return;  // drop_stale() postpones the earlier check
  gpulet.check_at = time;
  checks_.emplace(time, gpulet.id());
}

void CheckSchedule::drop_stale() {
  while (!checks_.empty()) {
    const auto [time, id] = checks_.top();
    auto* gpulet = gpulets_.find(id);
    const bool is_due =
        gpulet != nullptr && gpulet->check_at == time && next_check(*gpulet) == time;
    if (is_due) return;
    checks_.pop();
    if (gpulet == nullptr || gpulet->check_at != time) continue;
    gpulet->check_at = kNever;
    schedule(*gpulet);
  }
}

}  // namespace gpulet::node
