#include "serve/deploy/backend_connections.h"

#include <algorithm>
#include <utility>

namespace gpulet::serve {

void BackendConnections::join(BackendId backend, const Hello& hello, Time now) {
  BackendRecord& joined = backends_[backend] = {hello.node, hello.devices, now};
  joined.level = hello.level;
  if (hello.level < kLevelOfKeptPayloads) ++without_rows_;
  joined.commanded = hello.level == 0;  // it obeys every frontend
  for (std::size_t i = 0; i < hello.devices.size(); ++i)
    devices_.insert_or_assign(hello.devices[i].device.key, DeviceSlot{backend, i});
}

void BackendConnections::on_message(BackendId backend, Time now) {
  const auto found = backends_.find(backend);
  if (found != backends_.end()) found->second.last_heard = now;
}

bool BackendConnections::commanded(BackendId backend) const {
  const auto found = backends_.find(backend);
  return found != backends_.end() && found->second.commanded;
}

void BackendConnections::set_commanded(BackendId backend, bool commanded) {
  const auto found = backends_.find(backend);
  if (found != backends_.end()) found->second.commanded = commanded;
}

void BackendConnections::set_commanded_by_none() {
  for (auto& [id, backend] : backends_) backend.commanded = false;
}

Term BackendConnections::term_for(BackendId backend) const {
  const auto found = backends_.find(backend);
  return found == backends_.end() ? term_ : std::max(term_, found->second.term);
}

void BackendConnections::set_term_for(BackendId backend, Term term) {
  const auto found = backends_.find(backend);
  if (found != backends_.end()) found->second.term = term;
}

void BackendConnections::set_taken_before(BackendId backend, GpuletId next) {
  const auto found = backends_.find(backend);
  if (found != backends_.end()) found->second.taken_before = next;
}

std::optional<schedule::DeviceKey> BackendConnections::report_device(BackendId backend,
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

void BackendConnections::report_power(BackendId backend, const std::vector<DevicePower>& power) {
  const auto found = backends_.find(backend);
  if (found == backends_.end()) return;
  found->second.power.clear();
  for (const DevicePower& one : power) found->second.power.insert_or_assign(one.device, one);
}

void BackendConnections::start_draining(BackendId backend) {
  const auto found = backends_.find(backend);
  if (found != backends_.end()) found->second.leaving = true;
}

bool BackendConnections::takes_gpulets(const schedule::DeviceKey& device) const {
  const auto backend = backend_of(device);
  return backend && commanded(*backend) && !backends_.at(*backend).leaving &&
         offer_of(device)->fault.ok();
}

bool BackendConnections::has_usable_device() const {
  return std::any_of(backends_.begin(), backends_.end(), [](const auto& entry) {
    const std::vector<DeviceOffer>& devices = entry.second.devices;
    return std::any_of(devices.begin(), devices.end(),
                       [](const DeviceOffer& offer) { return offer.fault.ok(); });
  });
}

std::string BackendConnections::why_nothing_serves() const {
  if (std::all_of(backends_.begin(), backends_.end(),
                  [](const auto& entry) { return entry.second.node.empty(); }))
    return "no backend is connected";
  if (!has_usable_device()) return "no device of the connected backends can be used";
  return {};
}

void BackendConnections::excuse_silence(Duration time, Time now) {
  for (auto& [id, backend] : backends_)
    backend.last_heard = std::min(now, backend.last_heard + time);
}

std::vector<BackendId> BackendConnections::silent_since(Time time) const {
  std::vector<BackendId> silent;
  for (const auto& [id, backend] : backends_) {
    if (backend.last_heard < time) silent.push_back(id);
  }
  return silent;
}

bool BackendConnections::offers(BackendId backend, std::uint32_t device) const {
  const auto found = backends_.find(backend);
  if (found == backends_.end()) return false;
  const auto slot = devices_.find({found->second.node, device});
  return slot != devices_.end() && slot->second.backend == backend;
}

std::optional<BackendId> BackendConnections::backend_of(const schedule::DeviceKey& device) const {
  const auto found = devices_.find(device);
  return found == devices_.end() ? std::nullopt : std::optional(found->second.backend);
}

const DeviceOffer* BackendConnections::offer_of(const schedule::DeviceKey& device) const {
  const auto found = devices_.find(device);
  if (found == devices_.end()) return nullptr;
  return &backends_.at(found->second.backend).devices[found->second.offer];
}

schedule::Cluster BackendConnections::cluster() const {
  schedule::Cluster cluster;
  for (const auto& [id, backend] : backends_) {
    if (backend.leaving || !backend.commanded) continue;
    for (const DeviceOffer& offer : backend.devices) {
      if (offer.fault.ok()) cluster.devices.push_back(offer.device);
    }
  }
  std::sort(cluster.devices.begin(), cluster.devices.end(),
            [](const schedule::Device& a, const schedule::Device& b) { return a.key < b.key; });
  return cluster;
}

BackendRecord* BackendConnections::record_of(BackendId backend) {
  const auto found = backends_.find(backend);
  return found == backends_.end() ? nullptr : &found->second;
}

std::optional<std::string> BackendConnections::leave(BackendId backend) {
  const auto left = backends_.find(backend);
  if (left == backends_.end()) return std::nullopt;
  std::string node = std::move(left->second.node);
  if (left->second.level < kLevelOfKeptPayloads) --without_rows_;
  backends_.erase(left);
  std::erase_if(devices_, [backend](const auto& entry) { return entry.second.backend == backend; });
  return node;
}

}  // namespace gpulet::serve
