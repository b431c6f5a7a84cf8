// BackendCore: gpulets whose cores are controlled.
#include <algorithm>
#include <utility>

#include "gpulet/serve/backend_core.h"

namespace gpulet::serve {
namespace {

// A sum of cores that were scaled to be all of the device's may be above them by rounding.
constexpr double kRounding = 1 + 1e-9;
constexpr double kPercent = 100;

}  // namespace

double BackendCore::device_cores(std::uint32_t device) const {
  return options_.devices[device].device.cores;
}

double BackendCore::cores_of(const HostedGpulet& gpulet) const {
  return gpulet.cores.value_or(gpulet.size().fraction() * device_cores(gpulet.device()));
}

Status BackendCore::check_controlled(const CreateGpulet& asked) const {
  if (!(device_cores(asked.device) > 0)) {
    return {StatusCode::invalid, "device " + std::to_string(asked.device) + " of node '" +
                                     options_.node +
                                     "' has no cores that a gpulet could be given more or less of"};
  }
  if (!is_simulated(asked.device)) return {};
  for (const ModelToServe& model : asked.models) {
    const auto possible = simulated_[asked.device].latency_under_quota(
        model.name, 1, static_cast<double>(asked.size.percent));
    if (!possible.ok()) return possible.status();
  }
  return {};
}

void BackendCore::on_event(SetCores& event, Now now) {
  last_heard_ = now.time;
  HostedGpulet* const gpulet = find(event.id);
  if (gpulet == nullptr || !gpulet->controlled()) return;
  const double most = device_cores(gpulet->device());
  if (!(event.cores > 0 && event.cores <= most * kRounding)) {
    report_cores_refused(
        *gpulet,
        {StatusCode::invalid, "a gpulet has above 0 and at most " + std::to_string(most) +
                                  " cores there; was " + std::to_string(event.cores)},
        now);
    return;
  }
  const double before = cores_of(*gpulet);
  gpulet->cores = std::min(event.cores, most);
  if (gpulet->phase() != GpuletPhase::ready || !gpulet->doomed.ok()) return;
  now.effects.push_back(AdjustCores{event.id, *gpulet->cores, stretch(*gpulet, before)});
}

void BackendCore::on_event(CoresSet& event, Now now) {
  const HostedGpulet* const gpulet = find(event.gpulet);
  if (event.status.ok() || gpulet == nullptr || gpulet->phase() != GpuletPhase::ready) return;
  report_cores_refused(*gpulet, std::move(event.status), now);
}

void BackendCore::report_cores_refused(const HostedGpulet& gpulet, Status why, Now now) {
  GpuletReport report = gpulet.report();
  report.status = std::move(why);
  tell(std::move(report), now);
}

Result<Duration> BackendCore::latency_on(const HostedGpulet& gpulet, double cores,
                                         const std::string& model, std::uint32_t count) const {
  return simulated_[gpulet.device()].latency_under_quota(
      model, count, kPercent * cores / device_cores(gpulet.device()));
}

double BackendCore::stretch(const HostedGpulet& gpulet, double cores_before) const {
  if (!is_simulated(gpulet.device()) || gpulet.held.empty()) return 1;
  const HeldBatch& running = gpulet.held.front();
  const auto before = latency_on(gpulet, cores_before, running.model, running.count);
  const auto after = latency_on(gpulet, cores_of(gpulet), running.model, running.count);
  if (!before.ok() || !after.ok()) return 1;
  return to_seconds(after.value()) / to_seconds(before.value());
}

}  // namespace gpulet::serve
