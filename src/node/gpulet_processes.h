// GpuletProcesses: the life of gpulets: their processes start, load, serve, end, and are restarted
// or given up. Pure; one thread at a time.
#pragma once

#include <string>

#include "node/check_schedule.h"

namespace gpulet::node {

class GpuletProcesses {
 public:
  // All outlive it.
  GpuletProcesses(const BackendCoreOptions& options, FrontendLinks& links, NodeDevices& devices,
                  NodeFiles& files, HostedGpulets& gpulets, CheckSchedule& checks)
      : options_(options),
        links_(links),
        devices_(devices),
        files_(files),
        gpulets_(gpulets),
        checks_(checks) {}

  void on_event(ProxyStarted& event, Turn turn);
  void on_event(ProxyLoaded& event, Turn turn);
  void on_event(ShareActive& event, Turn turn);
  void on_event(ProxyEnded& event, Turn turn);
  void on_event(DeviceHealthReported& event, Turn turn);

  // Starts a process, with the files that are there.
  void start(HostedGpulet& gpulet, Turn turn);
  void retire(HostedGpulet& gpulet, Turn turn);
  void kill(HostedGpulet& gpulet, FailureCause cause, Status why, Turn turn);
  // Ends a gpulet that has no process. `model`: the one at fault; empty: none.
  void fail(HostedGpulet& gpulet, Status why, FailureCause cause, const std::string& model,
            Turn turn);
  // A process found that its device is lost. Nothing on the device continues, and later results
  // from it cannot be trusted.
  void lose_device(const HostedGpulet& witness, const Status& why, Turn turn);
  // Restarts, or kills, the gpulets whose time has come.
  void check_due(Turn turn);

 private:
  void check(HostedGpulet& gpulet, Turn turn);
  // Kills the process and fails its batches without waiting for its end.
  void kill_and_fail_batches(HostedGpulet& gpulet, FailureCause cause, const Status& why,
                             Turn turn);
  void fail_batches(HostedGpulet& gpulet, const Status& why, FailureCause cause,
                    const ProcessEnd& end, Turn turn);
  // The cause that the end of a process counts as for the batches that it held.
  [[nodiscard]] static FailureCause cause_for_batches(const HostedGpulet& gpulet, bool killed,
                                                      const ProxyEnded& event);
  // If the gpulets of the device share a process: sets held_at_end of those that held batches.
  void record_shared_end(const HostedGpulet& gpulet);
  void fail_or_restart(HostedGpulet& gpulet, const Status& why, Turn turn);
  void enter_gone(HostedGpulet& gpulet, Turn turn);

  const BackendCoreOptions& options_;
  FrontendLinks& links_;
  NodeDevices& devices_;
  NodeFiles& files_;
  HostedGpulets& gpulets_;
  CheckSchedule& checks_;
};

}  // namespace gpulet::node
