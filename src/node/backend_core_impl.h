// The state and functions of BackendCore. backend_core.cc holds the connections to frontends,
// batches and controlled cores; backend_gpulets.cc the life of gpulets, their files and devices.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/node/backend_core.h"
#include "gpulet/profile/latency_simulator.h"
#include "node/fence.h"
#include "node/hosted_gpulet.h"

namespace gpulet::node {

class BackendCore::Impl {
 public:
  explicit Impl(BackendCoreOptions options);

  void on(BackendEvent event, Time now, BackendEffects& effects);
  [[nodiscard]] Time next_wakeup() const;
  [[nodiscard]] bool finished() const { return shutting_down_ && gpulets_.empty(); }
  [[nodiscard]] std::set<std::string, std::less<>> files_in_use() const;
  [[nodiscard]] std::optional<GpuletPhase> phase_of(GpuletId gpulet) const;
  [[nodiscard]] const Fence& fence() const { return fence_; }
  [[nodiscard]] bool is_owner(FrontendId frontend, GpuletId gpulet) const;
  [[nodiscard]] std::uint64_t commands_refused() const { return commands_refused_; }

 private:
  // The arguments of one call of on().
  struct Turn {
    Time time;
    BackendEffects& effects;
  };

  // The frontends.
  struct Frontend {
    std::uint32_t level = 0;
    std::string member{};        // of its cluster
    bool disconnecting = false;  // DisconnectFrontend was sent
    Time connected_at{};
    Time last_message{};  // from it
    Time next_heartbeat = kNever;
    std::optional<Duration> heartbeat_every{};  // set by Welcome

    // When it counts as gone without a further message.
    [[nodiscard]] Time silent_at(Duration welcome_timeout) const;
  };
  void on_event(FrontendConnected& event, Turn turn);
  void on_event(FrontendDisconnected& event, Turn turn);
  void on_event(CommandReceived& event, Turn turn);
  void on_command(FrontendId from, Welcome& command, Turn turn);
  void on_command(FrontendId from, Heartbeat& command, Turn turn);
  void on_command(FrontendId from, TakeLeadership& command, Turn turn);
  // The leader changed: the files that gpulets lack are requested from the new one.
  void follow_leader(Turn turn);
  // Whether the command may be executed. If not, answers it with Superseded.
  bool admits(FrontendId from, Term term, Turn turn);

  // Owners of gpulets. The frontend of that member; empty: it is not connected.
  [[nodiscard]] std::optional<FrontendId> frontend_of(const std::string& member) const;
  bool admits_batch(FrontendId from, const Batch& batch, Turn turn);
  void on_command(FrontendId from, SetOwner& command, Turn turn);
  // To the frontend that leads and to the gpulet's owner.
  void send_report(GpuletReport report, Turn turn);
  void on_event(TimePassed& event, Turn turn);
  void on_event(ShutDown& event, Turn turn);
  void retire_all(Turn turn);
  [[nodiscard]] Heartbeat heartbeat() const;
  void send_to(FrontendId frontend, BackendMessage message, Turn turn);
  // To the frontend that leads; to all of them while none does.
  void send(BackendMessage message, Turn turn);
  void send_to_all(const BackendMessage& message, Turn turn);
  void excuse_silence(Duration late, Time now);
  void check_frontends(Turn turn);

  // Batches.
  void on_command(FrontendId from, BatchArrived& command, Turn turn);
  void on_event(BatchCompleted& event, Turn turn);
  [[nodiscard]] Status refusal(const BatchArrived& event, Time now) const;
  // The gpulet takes batches, now or soon.
  [[nodiscard]] bool may_run(GpuletId gpulet) const;
  [[nodiscard]] Result<Duration> simulated_latency(const HostedGpulet& gpulet, const Batch& batch);
  void respond(const HeldBatch& batch, BatchResult result, Turn turn);
  // Reports a changed condition of the gpulet's process, at most once a second.
  void update_condition(HostedGpulet& gpulet, const BatchRan& ran, Turn turn);
  void fail_batches(HostedGpulet& gpulet, const Status& why, FailureCause cause,
                    const ProcessEnd& end, Turn turn);

  // Controlled cores.
  void on_command(FrontendId from, SetCores& command, Turn turn);
  void on_event(CoresSet& event, Turn turn);
  [[nodiscard]] Status check_controlled(const CreateGpulet& request) const;
  [[nodiscard]] double device_cores(std::uint32_t device) const;
  void report_cores_refused(const HostedGpulet& gpulet, Status why, Turn turn);
  // The duration of a batch on that number of cores of a simulated device.
  [[nodiscard]] Result<Duration> latency_on(const HostedGpulet& gpulet, double cores,
                                            const std::string& model, std::uint32_t count) const;
  // Its requested cores, or initially the equivalent of its size.
  [[nodiscard]] double cores_of(const HostedGpulet& gpulet) const;
  [[nodiscard]] double stretch(const HostedGpulet& gpulet, double cores_before) const;

  // The life of gpulets.
  void on_command(FrontendId from, GpuletRequested& command, Turn turn);
  void on_command(FrontendId from, AssignGpulet& command, Turn turn);
  void on_command(FrontendId from, RetireGpulet& command, Turn turn);
  void on_event(ProxyStarted& event, Turn turn);
  void on_event(ProxyLoaded& event, Turn turn);
  void on_event(ShareActive& event, Turn turn);
  void on_event(ProxyEnded& event, Turn turn);
  void refuse(const CreateGpulet& request, FailureCause cause, const Status& why, Turn turn);
  [[nodiscard]] Status check_device(const CreateGpulet& request) const;
  [[nodiscard]] bool is_simulated(std::uint32_t device) const;
  void start(HostedGpulet& gpulet, Turn turn);
  void kill(HostedGpulet& gpulet, FailureCause cause, Status why, Turn turn);
  // Kills the process and fails its batches without waiting for its end.
  void kill_and_fail_batches(HostedGpulet& gpulet, FailureCause cause, const Status& why,
                             Turn turn);
  // The cause that the end of a process counts as for the batches that it held.
  [[nodiscard]] FailureCause cause_for_batches(const HostedGpulet& gpulet, bool killed,
                                               const ProxyEnded& event) const;
  // If the gpulets of the device share a process: sets held_at_end of those that held batches.
  void record_shared_end(const HostedGpulet& gpulet);
  void retire(HostedGpulet& gpulet, Turn turn);
  void fail_or_restart(HostedGpulet& gpulet, const Status& why, Turn turn);
  void enter_gone(HostedGpulet& gpulet, Turn turn);
  void erase_gone();
  [[nodiscard]] LoadModels load_request(const HostedGpulet& gpulet) const;
  void remember_variants(const HostedGpulet& gpulet, const std::vector<std::uint32_t>& variants);
  [[nodiscard]] HostedGpulet* find(GpuletId gpulet);

  // Checks of gpulets at a time: restarts and timeouts.
  [[nodiscard]] Time next_check(const HostedGpulet& gpulet) const;
  [[nodiscard]] Duration load_bound_of(const HostedGpulet& gpulet) const;
  [[nodiscard]] Time hung_at(const HostedGpulet& gpulet) const;
  void check(HostedGpulet& gpulet, Turn turn);
  // Call it whenever next_check() may have become earlier.
  void schedule_check(HostedGpulet& gpulet);
  // Makes the top of checks_ a check that is still due, by postponing others.
  void drop_stale_checks();

  // Model files.
  void on_event(ModelStored& event, Turn turn);
  void on_event(ModelProgress& event, Turn turn);
  void on_event(ModelFailed& event, Turn turn);
  [[nodiscard]] bool lacks_files(const HostedGpulet& gpulet) const;
  void request_files(const HostedGpulet& gpulet, Turn turn);
  // Ends a gpulet that has no process. `model`: the one at fault; empty: none.
  void fail(HostedGpulet& gpulet, Status why, FailureCause cause, const std::string& model,
            Turn turn);
  // The file is stored or failed: requests further files.
  void file_done(const std::string& sha256, Turn turn);

  // Devices.
  void on_event(DeviceHealthReported& event, Turn turn);
  void lose_device(const HostedGpulet& witness, const Status& why, Turn turn);

  const BackendCoreOptions options_;
  std::vector<profile::LatencySimulator> simulators_;  // by device
  std::map<GpuletId, HostedGpulet> gpulets_;
  std::vector<std::vector<HostedGpulet*>> on_device_;  // by device; in the order of their ids
  std::map<std::uint32_t, DevicePower> power_{};       // by device
  std::vector<Status> device_faults_;                  // by device
  bool some_gone_ = false;                             // gpulets_ holds gpulets to erase
  using Check = std::pair<Time, GpuletId>;
  std::priority_queue<Check, std::vector<Check>, std::greater<>> checks_;
  std::map<std::string, std::string> files_;         // stored files by SHA-256
  std::map<std::string, std::uint64_t> file_bytes_;  // their sizes, of those that are known
  // Files requested from the frontend that leads, and the offset up to which they are.
  std::map<std::string, std::uint64_t> requested_files_;
  // The last loaded variant by device type and model version.
  std::map<std::pair<std::string, std::string>, std::uint32_t> variants_;

  std::map<FrontendId, Frontend> frontends_;  // those that are connected
  Fence fence_;
  std::uint64_t commands_refused_ = 0;
  bool shutting_down_ = false;
  Time drain_until_ = kNever;  // shutting down: when to retire the gpulets that are left
};

}  // namespace gpulet::node
