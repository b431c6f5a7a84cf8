// NodeDevices: the devices of the node, their faults and power, and how long batches take on those
// that are simulated. Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/node/backend_core.h"
#include "gpulet/profile/latency_simulator.h"
#include "node/hosted_gpulet.h"

namespace gpulet::node {

class NodeDevices {
 public:
  // `options` outlives it.
  explicit NodeDevices(const BackendCoreOptions& options);

  // ---- what is known

  [[nodiscard]] const DeviceOffer& offer(std::uint32_t device) const {
    return options_.devices[device];
  }
  [[nodiscard]] bool is_simulated(std::uint32_t device) const;
  // ok: the device has none. REQUIRES: the device exists.
  [[nodiscard]] const Status& fault_of(std::uint32_t device) const { return faults_[device]; }
  // The device exists and has a fault.
  [[nodiscard]] bool is_faulty(std::uint32_t device) const {
    return device < faults_.size() && !faults_[device].ok();
  }
  // The devices as Hello and Heartbeat list them, with their present faults.
  [[nodiscard]] std::vector<DeviceOffer> offers() const;
  [[nodiscard]] Heartbeat heartbeat() const;
  // Returns whether the device has a fault since now, or none any more. Ignores unknown devices.
  bool report(DeviceHealthReported& event);
  // Whether such a gpulet can be created. Fails (invalid), or with the fault of the device.
  [[nodiscard]] Status check(const CreateGpulet& request) const;

  // ---- simulated devices

  // The duration of the batch. `there`: the gpulets of the device. 0: the device is no simulated
  // one.
  [[nodiscard]] Result<Duration> latency(const HostedGpulet& gpulet, const Batch& batch,
                                         const std::vector<HostedGpulet*>& there);

  // ---- controlled cores

  [[nodiscard]] double cores(std::uint32_t device) const {
    return options_.devices[device].device.cores;
  }
  // Its requested cores, or initially the equivalent of its size.
  [[nodiscard]] double cores_of(const HostedGpulet& gpulet) const;
  // How much longer the batch that a simulated gpulet runs takes since the change from
  // `cores_before`.
  [[nodiscard]] double stretch(const HostedGpulet& gpulet, double cores_before) const;

 private:
  [[nodiscard]] Status check_controlled(const CreateGpulet& request) const;
  // The duration of a batch on that number of cores of a simulated device.
  [[nodiscard]] Result<Duration> latency_on(const HostedGpulet& gpulet, double cores,
                                            const std::string& model, std::uint32_t count) const;

  const BackendCoreOptions& options_;
  std::vector<profile::LatencySimulator> simulators_;  // by device
  std::map<std::uint32_t, DevicePower> power_;         // by device
  std::vector<Status> faults_;                         // by device
};

}  // namespace gpulet::node
