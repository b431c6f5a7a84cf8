// The input and the output of a policy: the cluster, the demands, and a plan, which says
// which gpulets exist on which devices and which models share each of them. The mathematics of a
// plan: docs/scheduling.md. Plain values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gpulet/core/ids.h"
#include "gpulet/partition/gpulet.h"
#include "gpulet/partition/mig_geometry.h"

namespace gpulet::schedule {

using partition::Assignment;
using partition::Device;
using partition::DeviceKey;
using partition::is_cpu;
using partition::kMostGpuletsOfNode;
using partition::kMostModelsOfGpulet;
using partition::PolicyChoice;
using partition::Service;
using partition::to_string;

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

// The size that a plan gives to a controlled instance. It only has to be enough to start with.
inline constexpr Share kControlledShare{1};

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

// A smaller part of a rate is due to rounding.
inline constexpr double kNegligiblePart = 1e-6;

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
  [[nodiscard]] double unserved_rate() const;  // requests per second, of all models

  friend bool operator==(const Plan&, const Plan&) = default;
};

// Whether a change of plan pays for its cost: the new plan serves a higher rate, or the same rate
// on fewer devices.
[[nodiscard]] bool serves_better(const Plan& made, const Plan& in_force);

}  // namespace gpulet::schedule
