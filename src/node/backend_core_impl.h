// The state and functions of BackendCore: it passes events and commands to the components, and
// handles controlled cores itself.
#pragma once

#include <optional>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/node/backend_core.h"
#include "node/check_schedule.h"
#include "node/frontend_links.h"
#include "node/gpulet_batches.h"
#include "node/gpulet_processes.h"
#include "node/hosted_gpulets.h"
#include "node/node_devices.h"
#include "node/node_files.h"
#include "node/turn.h"

namespace gpulet::node {

class BackendCore::Impl {
 public:
  explicit Impl(BackendCoreOptions options);

  void on(BackendEvent event, Time now, BackendEffects& effects);
  [[nodiscard]] Time next_wakeup() const;
  [[nodiscard]] bool finished() const {
    return shutting_down_ && gpulets_.empty() && batches_.none_awaited();
  }
  [[nodiscard]] const HostedGpulets& gpulets() const { return gpulets_; }
  [[nodiscard]] std::optional<GpuletPhase> phase_of(GpuletId gpulet) const;
  [[nodiscard]] const FrontendLinks& links() const { return links_; }
  [[nodiscard]] bool is_owner(FrontendId frontend, GpuletId gpulet) const;
  [[nodiscard]] const GpuletBatches& batches() const { return batches_; }

 private:
  // The frontends.
  void on_event(FrontendConnected& event, Turn turn);
  void on_event(FrontendDisconnected& event, Turn turn);
  void on_event(CommandReceived& event, Turn turn);
  void on_command(FrontendId from, Welcome& command, Turn turn);
  void on_command(FrontendId from, Heartbeat& command, Turn turn);
  void on_command(FrontendId from, TakeLeadership& command, Turn turn);
  void on_command(FrontendId from, SetOwner& command, Turn turn);
  void on_event(TimePassed& event, Turn turn);
  void on_event(ShutDown& event, Turn turn);
  void retire_all(Turn turn);

  // Batches.
  void on_command(FrontendId from, BatchArrived& command, Turn turn) {
    batches_.on_arrived(from, command, turn);
  }
  void on_command(FrontendId from, const Rows& command, Turn turn) {
    batches_.on_rows(from, command, turn);
  }
  void on_event(BatchCompleted& event, Turn turn) { batches_.on_completed(event, turn); }

  // Controlled cores.
  void on_command(FrontendId from, SetCores& command, Turn turn);
  void on_event(CoresSet& event, Turn turn);
  void report_cores_refused(const HostedGpulet& gpulet, Status why, Turn turn);

  // Gpulets.
  void on_command(FrontendId from, GpuletRequested& command, Turn turn);
  void on_command(FrontendId from, AssignGpulet& command, Turn turn);
  void on_command(FrontendId from, RetireGpulet& command, Turn turn);
  void refuse(const CreateGpulet& request, FailureCause cause, const Status& why, Turn turn);
  // Of a process or a device.
  template <typename Event>
  void on_event(Event& event, Turn turn) {
    processes_.on_event(event, turn);
  }

  // Model files.
  void on_event(ModelStored& event, Turn turn);
  void on_event(ModelProgress& event, Turn turn);
  void on_event(ModelFailed& event, Turn turn);

  const BackendCoreOptions options_;
  FrontendLinks links_;
  NodeDevices devices_;
  HostedGpulets gpulets_;
  NodeFiles files_;
  CheckSchedule checks_;
  GpuletProcesses processes_;
  GpuletBatches batches_;
  bool shutting_down_ = false;
  Time drain_until_ = kNever;  // shutting down: when to retire the gpulets that are left
};

}  // namespace gpulet::node
