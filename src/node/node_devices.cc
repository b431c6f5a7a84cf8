#include "node/node_devices.h"

#include <fmt/format.h>

#include <utility>

namespace gpulet::node {
namespace {

constexpr double kPercent = 100;

}  // namespace

NodeDevices::NodeDevices(const BackendCoreOptions& options) : options_(options) {
  for (const auto& offer : options_.devices) {
    profile::LatencySimulator& simulator =
        simulators_.emplace_back(offer.device.type, options_.profiles, options_.interference);
    simulator.vary(
        options_.simulated_cv,
        stream_seed(options_.simulation_seed, fmt::format("device {}", simulators_.size() - 1)));
  }
  faults_.resize(options_.devices.size());
}

std::vector<DeviceOffer> NodeDevices::offers() const {
  std::vector<DeviceOffer> offers = options_.devices;
  for (std::size_t i = 0; i < offers.size(); ++i) offers[i].fault = faults_[i];
  return offers;
}

bool NodeDevices::report(DeviceHealthReported& event) {
  if (event.device >= faults_.size()) return false;
  power_[event.device] = event.power;
  Status& fault = faults_[event.device];
  if (fault.ok() == event.fault.ok()) return false;
  fault = std::move(event.fault);
  return true;
}

bool NodeDevices::is_simulated(std::uint32_t device) const {
  return options_.all_simulated || options_.devices[device].device.partitioning == "simulated";
}

Heartbeat NodeDevices::heartbeat() const {
  Heartbeat beat;
  for (const auto& [device, power] : power_) {
    if (!power.usage_w && !power.limit_w && !power.energy_j) continue;
    beat.power.push_back(power);
    beat.power.back().device = device;
  }
  return beat;
}

Status NodeDevices::check(const CreateGpulet& request) const {
  if (request.device >= options_.devices.size()) {
    return {StatusCode::invalid,
            fmt::format("node '{}' has {} devices; requested number {}", options_.node,
                        options_.devices.size(), request.device)};
  }
  if (options_.devices[request.device].device.mig.has_value() != request.instance.has_value()) {
    return {StatusCode::invalid,
            fmt::format("device {} of node '{}' {}", request.device, options_.node,
                        request.instance
                            ? "is not divided by MIG; requested an instance"
                            : "is divided by MIG; requested a gpulet without an instance")};
  }
  if (const auto& fault = faults_[request.device]; !fault.ok()) return fault;
  if (request.part.service == partition::Service::controlled) return check_controlled(request);
  if (is_simulated(request.device)) {
    for (const auto& model : request.models) {
      auto possible = simulators_[request.device].can_run(model.name, 1, request.size);
      if (!possible.ok()) return possible;
    }
  }
  return {};
}

// The neighbours are the oldest batches of the other gpulets of the device.
Result<Duration> NodeDevices::latency(const HostedGpulet& gpulet, const Batch& batch,
                                      const std::vector<HostedGpulet*>& there) {
  if (!is_simulated(gpulet.device())) return Duration{};
  if (gpulet.controlled()) return latency_on(gpulet, cores_of(gpulet), batch.model, batch.count);
  std::vector<profile::SimulatedBatch> beside;
  std::uint32_t processes = 1;
  for (const HostedGpulet* other : there) {
    if (other == &gpulet) continue;
    if (gpulet.instance() && other->instance() == gpulet.instance()) ++processes;
    if (other->held.empty() || other->controlled()) continue;
    beside.push_back({other->held.front().model, other->held.front().count, other->size()});
  }
  return simulators_[gpulet.device()].latency({batch.model, batch.count, gpulet.size(), processes},
                                              beside);
}

double NodeDevices::cores_of(const HostedGpulet& gpulet) const {
  return gpulet.cores.value_or(gpulet.size().fraction() * cores(gpulet.device()));
}

Status NodeDevices::check_controlled(const CreateGpulet& request) const {
  if (!(cores(request.device) > 0)) {
    return {StatusCode::invalid, fmt::format("device {} of node '{}' has no cores to control",
                                             request.device, options_.node)};
  }
  if (!is_simulated(request.device)) return {};
  for (const ModelToServe& model : request.models) {
    const auto possible = simulators_[request.device].latency_under_quota(
        model.name, 1, static_cast<double>(request.size.percent));
    if (!possible.ok()) return possible.status();
  }
  return {};
}

Result<Duration> NodeDevices::latency_on(const HostedGpulet& gpulet, double cores_given,
                                         const std::string& model, std::uint32_t count) const {
  return simulators_[gpulet.device()].latency_under_quota(
      model, count, kPercent * cores_given / cores(gpulet.device()));
}

double NodeDevices::stretch(const HostedGpulet& gpulet, double cores_before) const {
  if (!is_simulated(gpulet.device()) || gpulet.held.empty()) return 1;
  const HeldBatch& running = gpulet.held.front();
  const auto before = latency_on(gpulet, cores_before, running.model, running.count);
  const auto after = latency_on(gpulet, cores_of(gpulet), running.model, running.count);
  if (!before.ok() || !after.ok()) return 1;
  return to_seconds(after.value()) / to_seconds(before.value());
}

}  // namespace gpulet::node
