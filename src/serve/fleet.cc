#include "gpulet/serve/fleet.h"

#include <algorithm>
#include <utility>

#include "gpulet/serve/served_model.h"

namespace gpulet::serve {

namespace {

// Of gpulets that were lost with their nodes: the oldest are forgotten first.
constexpr std::size_t kMostAbsent = 1U << 16U;
// Beyond it, a backend keeps the right to the files of the gpulets that it has.
constexpr std::size_t kMostFiles = 4096;

bool holds_file(const std::vector<schedule::LoadedModel>& models, std::string_view sha256) {
  return std::any_of(models.begin(), models.end(), [sha256](const schedule::LoadedModel& model) {
    return file_of_version(model.version) == sha256;
  });
}

}  // namespace

void Fleet::heard(BackendId backend, Time now) {
  const auto found = backends_.find(backend);
  if (found != backends_.end()) found->second.last_heard = now;
}

std::vector<GpuletId> Fleet::join(BackendId backend, const Hello& hello, Time now) {
  FleetBackend& joined = backends_[backend] = {hello.node, hello.devices, now};
  for (std::size_t i = 0; i < hello.devices.size(); ++i)
    places_.insert_or_assign(hello.devices[i].device.key, Place{backend, i});
  std::vector<GpuletId> disowned;
  for (const GpuletReport& told : hello.gpulets) {
    if (told.state == GpuletState::gone) continue;  // on its way out, for the frontend before
    const auto known = gpulets_.find(told.id);
    if (known != gpulets_.end() && known->second.backend != backend) {
      disowned.push_back(told.id);
      joined.disowned.insert(told.id);
      continue;
    }
    const auto absent = absent_.find(told.id);
    const bool issued = absent != absent_.end();
    if (issued) tell_files(joined, absent->second.models);
    gpulets_.insert_or_assign(told.id, FleetGpulet{backend,
                                                   {hello.node, told.device},
                                                   told.size,
                                                   told.models,
                                                   told.state,
                                                   told.status,
                                                   false,
                                                   told.part,
                                                   told.found,
                                                   told.instance,
                                                   issued,
                                                   now});
  }
  std::erase_if(absent_, [&hello](const auto& one) { return one.second.node == hello.node; });
  return disowned;
}

void Fleet::tell_files(FleetBackend& backend,
                       const std::vector<schedule::LoadedModel>& models) const {
  if (backend.files.size() >= kMostFiles) {
    std::erase_if(backend.files, [this, &backend](const std::string& file) {
      return std::none_of(gpulets_.begin(), gpulets_.end(), [&](const auto& one) {
        return backends_.at(one.second.backend).node == backend.node &&
               holds_file(one.second.models, file);
      });
    });
  }
  for (const schedule::LoadedModel& model : models)
    backend.files.emplace(file_of_version(model.version));
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

void Fleet::power_told(BackendId backend, const std::vector<DevicePower>& power) {
  const auto found = backends_.find(backend);
  if (found == backends_.end()) return;
  found->second.power.clear();
  for (const DevicePower& one : power) found->second.power.insert_or_assign(one.device, one);
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
  const auto left = backends_.find(backend);
  if (left == backends_.end()) return {};
  const std::string node = left->second.node;
  backends_.erase(left);
  std::erase_if(places_, [backend](const auto& entry) { return entry.second.backend == backend; });
  std::vector<GpuletId> lost;
  for (const auto& [id, gpulet] : gpulets_) {
    if (gpulet.backend == backend) lost.push_back(id);
  }
  for (const GpuletId id : lost) {
    FleetGpulet& gpulet = gpulets_.at(id);
    if (gpulet.issued) absent_.insert_or_assign(id, Absent{node, std::move(gpulet.models)});
    gpulets_.erase(id);
  }
  while (absent_.size() > kMostAbsent) absent_.erase(absent_.begin());
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
                    std::vector<schedule::LoadedModel> models, Time now) {
  const BackendId backend = backend_of(device).value();
  tell_files(backends_.at(backend), models);
  gpulets_[asked.id] = {backend,
                        device,
                        asked.size,
                        std::move(models),
                        GpuletState::preparing,
                        {},
                        false,
                        asked.part,
                        {},
                        asked.instance,
                        true,
                        now};
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
  if (found == gpulets_.end() || found->second.backend != backend) {
    const auto sender = backends_.find(backend);
    if (sender != backends_.end() && report.state == GpuletState::gone)
      sender->second.disowned.erase(report.id);
    return false;
  }
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

std::optional<std::string> Fleet::issued_to(GpuletId id) const {
  if (const FleetGpulet* const gpulet = find(id)) {
    if (!gpulet->issued) return std::nullopt;
    return gpulet->device.node;
  }
  const auto absent = absent_.find(id);
  return absent == absent_.end() ? std::nullopt : std::optional(absent->second.node);
}

bool Fleet::disowned(BackendId backend, GpuletId id) const {
  const auto found = backends_.find(backend);
  return found != backends_.end() && found->second.disowned.contains(id);
}

bool Fleet::offers(BackendId backend, std::uint32_t device) const {
  const auto found = backends_.find(backend);
  if (found == backends_.end()) return false;
  const auto place = places_.find({found->second.node, device});
  return place != places_.end() && place->second.backend == backend;
}

FileRight Fleet::right_to_file(BackendId backend, std::string_view sha256) const {
  const auto found = backends_.find(backend);
  if (found == backends_.end()) return FileRight::none;
  if (found->second.files.contains(sha256)) return FileRight::told;
  const bool claimed = std::any_of(gpulets_.begin(), gpulets_.end(), [&](const auto& one) {
    return one.second.backend == backend && holds_file(one.second.models, sha256);
  });
  return claimed ? FileRight::claimed : FileRight::none;
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
