// FailureHandler: decides the consequences of failed gpulets and crashed processes. A failure of
// the machine excludes the node or the device; one of the file refuses the version; if neither is
// known to be the cause, the model is tried on another node before it is blamed. Processes that
// crash under one model lead to its quarantine. Pure; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "serve/deploy/fleet.h"
#include "serve/models/model_registry.h"

namespace gpulet::serve {

class FailureHandler {
 public:
  // All outlive it.
  FailureHandler(const FrontendOptions& options, const Fleet& fleet, ModelRegistry& models,
                 Exclusions& exclusions, Deployment& deployment, Journal& journal)
      : options_(options),
        fleet_(fleet),
        models_(models),
        exclusions_(exclusions),
        deployment_(deployment),
        journal_(journal),
        node_faults_(options.exclusions) {}

  // The gpulet failed. `in_rollout`: a rollout was bringing it into force.
  void gpulet_failed(const GpuletRecord& gpulet, const GpuletReport& report, bool in_rollout,
                     Time now, FrontendEffects& effects);
  // A process crashed or hung while it held batches.
  void process_lost(const ProcessLost& lost, Time now, FrontendEffects& effects);
  // A batch failed for no fault of its requests, or was computed.
  void batch_failed(GpuletId gpulet, ModelIndex model, const Status& why, Time now,
                    FrontendEffects& effects);
  void batch_ran(GpuletId gpulet, ModelIndex model);
  // The gpulet does not answer its batches.
  void gpulet_silent(const GpuletRecord& gpulet, Time now, FrontendEffects& effects);
  // MakePlan::not_on: models that fail on a node, where the cluster has another one for them.
  [[nodiscard]] std::set<NodeFaults::Pair> not_on(const schedule::Cluster& cluster) const;

  // Gpulets that take longer than allowed to load, with what to say of each.
  struct Overdue {
    GpuletId gpulet;
    Status why;
  };
  // Also excludes devices that gpulets do not leave, and has models that load together for long
  // tried one by one. Call it at every tick.
  [[nodiscard]] std::vector<Overdue> watch(Time now, FrontendEffects& effects);
  // Excludes the device or its node for a while.
  void exclude(const schedule::DeviceKey& device, GpuletId gpulet, FailureCause cause,
               const Status& why, Time now, FrontendEffects& effects);
  // The device takes new gpulets, as far as failures are concerned.
  [[nodiscard]] bool allows(const schedule::DeviceKey& device) const {
    return exclusions_.allows(device);
  }
  // The gpulet on that device is ready.
  void gpulet_ready(const schedule::DeviceKey& device, GpuletId gpulet) {
    exclusions_.ready(device, gpulet);
  }
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
  // Unproven models that a process did not load in its time.
  void did_not_load(const std::vector<std::string>& names, const GpuletRecord& gpulet,
                    const Status& why, Time now, FrontendEffects& effects);
  void refuse_slow(const std::string& name, const Status& why, Time now, FrontendEffects& effects);
  // The models that the gpulet loads for the first time.
  [[nodiscard]] std::vector<std::string> unproven_in(const GpuletRecord& gpulet) const;
  [[nodiscard]] Duration bound_of(const GpuletRecord& gpulet) const;
  void try_apart(const GpuletRecord& gpulet, Time now, FrontendEffects& effects);
  // The model failed on that node again and again, so it leaves.
  void leave_node(const std::string& name, const std::string& node, const std::string& why,
                  Time now, FrontendEffects& effects);
  // Nodes besides this one with a device that the model has a profile for and that takes gpulets.
  [[nodiscard]] std::set<std::string> other_nodes(const std::string& name,
                                                  const std::string& node) const;
  // The model failed on every node. `turn`: the number of such models that are tried before it.
  void give_up(const std::string& name, NamedModel& known, const Status& why, std::size_t turn,
               Time now, FrontendEffects& effects);
  // Another node has a device for the model, and the version did not fail there.
  [[nodiscard]] bool has_other_node(const std::string& name, const ModelVersion& version) const;
  // Some gpulet in force holds the model beside others.
  [[nodiscard]] bool shares_a_gpulet(const std::string& name) const;

  const FrontendOptions& options_;
  const Fleet& fleet_;
  ModelRegistry& models_;
  Exclusions& exclusions_;
  Deployment& deployment_;
  Journal& journal_;

  std::map<FailureCause, std::uint64_t> counts_;
  NodeFaults node_faults_;
  // Since when a gpulet is not ready, or is to end.
  std::map<GpuletId, Time> unready_since_;
  std::map<GpuletId, Time> ending_since_;
};

}  // namespace gpulet::serve
