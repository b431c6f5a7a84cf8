// FailureHandler: decides the consequences of failed gpulets and crashed processes. A failure of
// the machine excludes the node or the device; one of the file refuses the version; if neither is
// known to be the cause, the model is tried on another node before it is blamed. Processes that
// crash under one model lead to its quarantine. Pure; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "serve/model_registry.h"

namespace gpulet::serve {

class FailureHandler {
 public:
  // All outlive it.
  struct Dependencies {
    const BackendRegistry& backends;
    const ProfilesInForce& profiles;
    ModelRegistry& models;
    Exclusions& exclusions;
    Deployment& deployment;
    PlanRequests& plan_requests;
    EventLog& log;
  };

  FailureHandler(const FrontendOptions& options, const Dependencies& dependencies)
      : options_(options), core_(dependencies) {}

  // The gpulet failed. `in_rollout`: a rollout was bringing it into force.
  void gpulet_failed(const GpuletRecord& gpulet, const GpuletReport& report, bool in_rollout,
                     Time now, FrontendEffects& effects);
  // A process crashed or hung while it held batches.
  void process_lost(const ProcessLost& lost, Time now, FrontendEffects& effects);
  // Excludes the device or its node for a while.
  void exclude(const schedule::DeviceKey& device, GpuletId gpulet, FailureCause cause,
               const Status& why, Time now, FrontendEffects& effects);
  // Ends the exclusions that are over and requests a plan for these nodes and devices.
  void expire_exclusions(Time now);
  // While no device takes new gpulets, models that failed wait until one does. Returns true if the
  // plan may use excluded devices for the others: not if a failed model serves there.
  bool park_failed(bool all_excluded);

  // Failed gpulets since the frontend's start.
  [[nodiscard]] const std::map<FailureCause, std::uint64_t>& counts() const { return counts_; }

 private:
  // The cause is unknown: one of these models, or the device.
  void blame(const std::vector<std::string>& names, const GpuletRecord& gpulet,
             const GpuletReport& report, Time now, FrontendEffects& effects);
  // The model failed on every node. `turn`: the number of such models that are tried before it.
  void give_up(const std::string& name, NamedModel& known, const Status& why, std::size_t turn,
               Time now, FrontendEffects& effects);
  // Another node has a device for the model, and the version did not fail there.
  [[nodiscard]] bool has_other_node(const std::string& name, const ModelVersion& version) const;
  // Some gpulet in force holds the model beside others.
  [[nodiscard]] bool shares_a_gpulet(const std::string& name) const;

  const FrontendOptions& options_;
  const Dependencies core_;

  std::map<FailureCause, std::uint64_t> counts_;
};

}  // namespace gpulet::serve
