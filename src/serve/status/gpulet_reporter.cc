#include "serve/status/gpulet_reporter.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace gpulet::serve {

void GpuletReporter::tick(Duration since_last) {
  const ServingPlan::Serving& serving = deployment_.in_force().serving();
  std::erase_if(busy_, [&serving](const auto& entry) { return !serving.contains(entry.first); });
  for (const auto& [id, planned] : serving) {
    Busy& busy = busy_[id];
    const Duration executed = statistics_of(id).executed;
    busy.fraction =
        std::min(1.0, to_seconds(executed - busy.executed_at_tick) / to_seconds(since_last));
    busy.executed_at_tick = executed;
  }
}

GpuletStatistics GpuletReporter::statistics_of(GpuletId id) const {
  return sum_of(gpulets_.statistics(id), figures_.statistics(id));
}

GpuletStatus GpuletReporter::status_of(GpuletId id, const GpuletRecord& gpulet, Time now) const {
  GpuletStatus one{
      id, gpulet,           std::nullopt, gpulets_.in_flight(id) + figures_.in_flight(id),
      0,  statistics_of(id)};
  if (const auto planned = deployment_.in_force().serving().find(id);
      planned != deployment_.in_force().serving().end())
    one.planned = planned->second;
  if (const auto busy = busy_.find(id); busy != busy_.end()) one.busy = busy->second.fraction;
  one.cores = adaptation_.cores_of(id);
  one.pace = gpulets_.pace(id, now);
  return one;
}

double GpuletReporter::fraction_of_device(GpuletId id, const GpuletRecord& gpulet) const {
  const std::optional<control::Cores> cores = adaptation_.cores_of(id);
  const DeviceOffer* const offer = fleet_.backends().offer_of(gpulet.device);
  return cores && offer != nullptr ? cores->granted / offer->device.cores : gpulet.size.fraction();
}

void GpuletReporter::add_to_device(DeviceStatus& device, GpuletId id,
                                   const GpuletRecord& gpulet) const {
  if (deployment_.in_force().serving().contains(id)) {
    const double part = fraction_of_device(id, gpulet);
    device.used.percent += static_cast<int>(std::lround(100 * part));
    if (const auto busy = busy_.find(id); busy != busy_.end())
      device.busy += busy->second.fraction * part;
  }
  const profile::Profile* const profile = fleet_.profile_of(device.type);
  if (profile == nullptr) return;
  for (const schedule::RunningModel& loaded : gpulet.models) {
    const profile::ModelProfile* const measured = profile->find(loaded.name);
    if (measured != nullptr) device.planned_memory_mb += measured->memory_mb.value_or(0);
  }
}

DeviceStatus GpuletReporter::status_of(const BackendRecord& backend,
                                       const DeviceOffer& offer) const {
  DeviceStatus device;
  device.key = offer.device.key;
  device.type = offer.device.type;
  device.memory_mb = offer.device.memory_mb;
  const auto power = backend.power.find(offer.device.key.device);
  if (power != backend.power.end()) device.power = power->second;
  device.slowness = adaptation_.slowness_of(device.key);
  return device;
}

}  // namespace gpulet::serve
