// The input and the output of a policy: the cluster, the demands, and a plan, which says
// which gpulets exist on which devices and which models share each of them. The mathematics of a
// plan: docs/scheduling.md. Plain values; any thread.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/core/ids.h"
#include "gpulet/partition/mig_geometry.h"

namespace gpulet::schedule {

// Devices are numbered from 0 within their node.
struct DeviceKey {
  std::string node;
  std::uint32_t device = 0;

  friend auto operator<=>(const DeviceKey&, const DeviceKey&) = default;
};

struct Device {
  DeviceKey key;
  std::string type;          // the name of a profile
  std::string partitioning;  // "mps", "mig", "green", "cpu_quota", "simulated"
  std::vector<Share> sizes;  // sizes that a gpulet may have, ascending
  std::uint32_t max_partitions = 2;
  double memory_mb = 0;  // 0: unlimited
  // Set where MIG divides the device. A gpulet is then a process in one of its instances, and
  // `sizes` are the shares of the geometry's profiles.
  std::optional<partition::MigGeometry> mig{};
  // The most processes of one model that share a MIG instance under MPS. Where the profile has the
  // latencies of several (Profile::knows_processes), a plan chooses their number. Otherwise an
  // instance has this many, and the profile describes one of them while all run.
  std::uint32_t processes_per_instance = 1;
  double cores = 0;  // CPU cores; 0 for other devices

  friend bool operator==(const Device&, const Device&) = default;
};

[[nodiscard]] inline bool is_cpu(const Device& device) { return device.cores > 0; }

struct Cluster {
  std::vector<Device> devices;  // sorted by key

  friend bool operator==(const Cluster&, const Cluster&) = default;
};

struct ModelDemand {
  std::string name;
  double rate = 0;  // requests per second
  double slo_ms = 0;
  std::uint32_t max_batch = 32;
  double queued{};     // requests in the queue when the plan is made
  bool alone = false;  // never shares a gpulet: its processes crash, or its batches block others

  friend bool operator==(const ModelDemand&, const ModelDemand&) = default;
};

// Limits of the messages between frontend and backend (protocol/limits.h). A plan beyond them
// cannot be sent.
inline constexpr std::size_t kMostModelsOfGpulet = 1024;
inline constexpr std::size_t kMostGpuletsOfNode = 4096;

struct Assignment {
  std::string model;
  double rate = 0;          // requests per second of the model that this gpulet serves
  std::uint32_t batch = 0;  // largest batch of a round
  double latency_ms = 0;    // of one batch, including slowdown and margin
  double slowdown = 1;      // caused by the other gpulets of the device
  double slo_ms = 0;

  friend bool operator==(const Assignment&, const Assignment&) = default;
};

// How a gpulet takes requests.
enum class Service : std::uint8_t {
  // Its models run one batch each per round, and the plan guarantees their rates.
  rounds = 0,
  // An instance of a whole GPU that holds every model. Whenever the GPU is free it runs one request
  // of the most urgent model (ROMA, algorithm 1). The plan guarantees nothing: rates and the duty
  // cycle are 0.
  by_need = 1,
  // An instance of one model on a CPU, which runs one request at a time. `size` is its initial
  // size; a controller then sets its cores. The plan guarantees nothing.
  controlled = 2,
};
// The enumerator's name.
[[nodiscard]] constexpr std::string_view to_string(Service service) {
  if (service == Service::rounds) return "rounds";
  return service == Service::by_need ? "by_need" : "controlled";
}

// The size that a plan gives to a controlled instance. It only has to be enough to start with.
inline constexpr Share kControlledShare{1};

// The size and the round that the policy chose for a gpulet, before spare share was divided
// (spare.h).
struct PolicyChoice {
  Share size;
  double duty_cycle_ms = 0;
  std::vector<Assignment> assignments;  // their rates do not count

  friend bool operator==(const PolicyChoice&, const PolicyChoice&) = default;
};

struct PlannedGpulet {
  DeviceKey device;
  Share size;
  double duty_cycle_ms = 0;  // the length of a round
  std::vector<Assignment> assignments;
  // The MIG instance that the gpulet runs in. Gpulets of the same instance are processes of one
  // model (Device::processes_per_instance).
  std::optional<partition::MigInstance> instance{};
  Service service = Service::rounds;
  // Set where spare share has changed the gpulet or a neighbour. Empty: the policy chose exactly
  // this.
  std::optional<PolicyChoice> policy_choice{};

  friend bool operator==(const PlannedGpulet&, const PlannedGpulet&) = default;
};

// The number of processes in the gpulet's MIG instance, including itself; 1 without MIG. `gpulets`:
// all of the device at least.
[[nodiscard]] std::uint32_t processes_beside(std::span<const PlannedGpulet> gpulets,
                                             const PlannedGpulet& gpulet);

// The size without spare share.
[[nodiscard]] inline Share policy_size(const PlannedGpulet& gpulet) {
  return gpulet.policy_choice ? gpulet.policy_choice->size : gpulet.size;
}

// The order of Plan::gpulets.
[[nodiscard]] inline bool in_plan_order(const PlannedGpulet& a, const PlannedGpulet& b) {
  return a.device != b.device ? a.device < b.device : policy_size(a) > policy_size(b);
}

struct Unserved {
  std::string model;
  double rate = 0;     // requests per second that the plan does not serve
  std::string reason;  // a sentence, with a fix where there is one

  friend bool operator==(const Unserved&, const Unserved&) = default;
};

struct Plan {
  std::string policy;
  std::vector<PlannedGpulet> gpulets;  // by device, then by descending policy_size()
  std::vector<Unserved> unserved;      // by model; empty where the plan serves the whole demand
  std::vector<std::string> notes;      // remarks of the policy
  // No plan that serves the whole demand uses fewer devices of these types. Set by some policies.
  std::optional<std::uint32_t> lower_bound;

  [[nodiscard]] bool schedulable() const { return unserved.empty(); }
  [[nodiscard]] std::uint32_t devices_used() const;

  friend bool operator==(const Plan&, const Plan&) = default;
};

}  // namespace gpulet::schedule
