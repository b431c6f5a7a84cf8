#include "gpulet/serve/fleet.h"

#include <algorithm>
#include <utility>

namespace gpulet::serve {

void Fleet::heard(BackendId backend, Time now) { backends_[backend].last_heard = now; }

Status Fleet::join(BackendId backend, const Hello& hello, Time now) {
  for (const auto& [id, other] : backends_) {
    if (id != backend && other.node == hello.node) {
      return {StatusCode::invalid,
              "a backend with the node name " + hello.node +
                  " is connected already; give each backend a \"node\" of its own"};
    }
  }
  backends_[backend] = {hello.node, hello.devices, now};
  std::erase_if(places_, [backend](const auto& entry) { return entry.second.backend == backend; });
  for (std::size_t i = 0; i < hello.devices.size(); ++i) {
    if (hello.devices[i].device.key.node != hello.node) continue;  // not its own to offer
    places_.insert_or_assign(hello.devices[i].device.key, Place{backend, i});
  }
  for (const GpuletReport& told : hello.gpulets) {
    if (told.state == GpuletState::gone) continue;  // on its way out, for the frontend before
    gpulets_[told.id] = {backend,    {hello.node, told.device},
                         told.size,  told.models,
                         told.state, told.status,
                         false,      told.part,
                         told.found, told.instance};
  }
  return {};
}

std::optional<schedule::DeviceKey> Fleet::device_seen(BackendId backend,
                                                      const DeviceReport& report) {
  const auto found = backends_.find(backend);
  if (found == backends_.end()) return std::nullopt;
  for (DeviceOffer& offer : found->second.devices) {
    if (offer.device.key != schedule::DeviceKey{found->second.node, report.device}) continue;
    offer.fault = report.fault;
    return offer.device.key;
  }
  return std::nullopt;
}

void Fleet::leaving(BackendId backend) {
  const auto found = backends_.find(backend);
  if (found != backends_.end()) found->second.leaving = true;
}

bool Fleet::takes_gpulets(const schedule::DeviceKey& device) const {
  const auto backend = backend_of(device);
  return backend && !backends_.at(*backend).leaving && offer_of(device)->fault.ok();
}

bool Fleet::has_backend() const {
  return std::any_of(backends_.begin(), backends_.end(),
                     [](const auto& entry) { return !entry.second.node.empty(); });
}

bool Fleet::has_usable_device() const {
  return std::any_of(backends_.begin(), backends_.end(), [](const auto& entry) {
    const std::vector<DeviceOffer>& devices = entry.second.devices;
    return std::any_of(devices.begin(), devices.end(),
                       [](const DeviceOffer& offer) { return offer.fault.ok(); });
  });
}

std::vector<GpuletId> Fleet::leave(BackendId backend) {
  backends_.erase(backend);
  std::erase_if(places_, [backend](const auto& entry) { return entry.second.backend == backend; });
  std::vector<GpuletId> lost;
  for (const auto& [id, gpulet] : gpulets_) {
    if (gpulet.backend == backend) lost.push_back(id);
  }
  for (const GpuletId id : lost) gpulets_.erase(id);
  return lost;
}

std::vector<BackendId> Fleet::silent_since(Time time) const {
  std::vector<BackendId> silent;
  for (const auto& [id, backend] : backends_) {
    if (backend.last_heard < time) silent.push_back(id);
  }
  return silent;
}

void Fleet::created(const CreateGpulet& asked, const schedule::DeviceKey& device,
                    std::vector<schedule::LoadedModel> models) {
  gpulets_[asked.id] = {backend_of(device).value(),
                        device,
                        asked.size,
                        std::move(models),
                        GpuletState::preparing,
                        {},
                        false,
                        asked.part,
                        {},
                        asked.instance};
}

void Fleet::assigned(GpuletId id, PlanPart part) {
  const auto found = gpulets_.find(id);
  if (found != gpulets_.end()) found->second.part = std::move(part);
}

void Fleet::retiring(GpuletId id) {
  const auto found = gpulets_.find(id);
  if (found != gpulets_.end()) found->second.retiring = true;
}

bool Fleet::report(BackendId backend, const GpuletReport& report) {
  const auto found = gpulets_.find(report.id);
  if (found == gpulets_.end() || found->second.backend != backend) return false;
  if (report.state == GpuletState::gone) {
    gpulets_.erase(found);
    return true;
  }
  found->second.state = report.state;
  found->second.status = report.status;
  found->second.found = report.found;
  return true;
}

const FleetGpulet* Fleet::find(GpuletId id) const {
  const auto found = gpulets_.find(id);
  return found == gpulets_.end() ? nullptr : &found->second;
}

std::optional<BackendId> Fleet::backend_of(const schedule::DeviceKey& device) const {
  const auto found = places_.find(device);
  return found == places_.end() ? std::nullopt : std::optional(found->second.backend);
}

const DeviceOffer* Fleet::offer_of(const schedule::DeviceKey& device) const {
  const auto found = places_.find(device);
  if (found == places_.end()) return nullptr;
  return &backends_.at(found->second.backend).devices[found->second.offer];
}

schedule::Cluster Fleet::cluster() const {
  schedule::Cluster cluster;
  for (const auto& [id, backend] : backends_) {
    if (backend.leaving) continue;
    for (const DeviceOffer& offer : backend.devices) {
      if (offer.fault.ok()) cluster.devices.push_back(offer.device);
    }
  }
  std::sort(cluster.devices.begin(), cluster.devices.end(),
            [](const schedule::Device& a, const schedule::Device& b) { return a.key < b.key; });
  return cluster;
}

schedule::RunningGpulet as_running(GpuletId id, const FleetGpulet& gpulet) {
  return {id,
          gpulet.device,
          gpulet.size,
          gpulet.models,
          gpulet.instance,
          gpulet.part.service == schedule::Service::controlled};
}

std::vector<schedule::RunningGpulet> Fleet::running() const {
  std::vector<schedule::RunningGpulet> running;
  for (const auto& [id, gpulet] : gpulets_) {
    const bool serves = gpulet.state != GpuletState::failed && gpulet.state != GpuletState::gone;
    if (serves && !gpulet.retiring) running.push_back(as_running(id, gpulet));
  }
  return running;
}

}  // namespace gpulet::serve
