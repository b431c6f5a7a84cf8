// BackendCore: all that a backend decides. Gpulets live (gpulet_phase.h), fetch their models,
// restart with a growing delay when their process dies and are given up when they cannot load;
// batches go to proxies, and every batch that arrived gets exactly one answer on the connection it
// came by, unless that is gone: then none. Losing the frontend changes nothing for the gpulets; the
// next one is told of them.
//
// A gpulet whose cores are controlled (schedule::Service) has those that it was last told to have,
// from when its share is in force, in every process that it gets. A driver that refuses is told to
// the frontend, with what was in force still in force.
//
// A device that cannot be used any more (DeviceSeen) takes its gpulets' processes with it; they are
// started again once it is back, and new ones are refused until then.
//
// A fatal fault of a device whose gpulets share their fate (partition::Traits) ends the processes
// of all of them; what they held is answered as for a process that died, and each is started anew
// with its growing delay for as long as the device takes none.
//
// Pure: events and the time come in, effects go out, in the order in which they must be carried
// out. One thread at a time. Failures are effects (reports and refusals); only bugs throw.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/core/failure.h"
#include "gpulet/core/ids.h"
#include "gpulet/core/time.h"
#include "gpulet/profile/profile.h"
#include "gpulet/serve/backend_events.h"
#include "gpulet/serve/hosted_gpulet.h"
#include "gpulet/serve/simulated_device.h"

namespace gpulet::serve {

struct BackendCoreOptions {
  std::string node;
  std::vector<DeviceOffer> devices;                     // each at the index that its key says
  std::shared_ptr<const profile::ProfileSet> profiles;  // for simulated devices; may be null
  // Their measured pairs, where several cores share them (SimulatedDevice); may be null.
  std::shared_ptr<const profile::InterferenceSet> measured;
  bool all_simulated = false;  // whatever the devices' partitioning
  Duration first_restart_delay = std::chrono::milliseconds(100);  // doubles with every restart
  Duration longest_restart_delay = std::chrono::seconds(10);
  // Between asking a device that is not ready yet for what needs no process to be refused.
  Duration longest_asking_delay = std::chrono::milliseconds(400);
  Duration healthy_after = std::chrono::seconds(30);  // so long ready: its restarts are forgotten
  std::uint32_t load_attempts = 3;
  // A big model beside busy neighbours takes minutes.
  Duration load_timeout = std::chrono::minutes(10);
  // A proxy that holds batches and answers none of them for so long, and for so many times what the
  // one that it runs is expected to take, hangs. How long a batch may wait before it starts does
  // not count: the one that runs has started, and a client's long timeout must not hide a hung
  // process.
  Duration hang_timeout = std::chrono::seconds(3);
  double hang_factor = 5;
  Duration welcome_timeout = std::chrono::seconds(5);  // from connecting
  // To a frontend, for moving elsewhere what is served here, before a stopping backend ends it.
  Duration leave_timeout = std::chrono::seconds(10);
};

class BackendCore {
 public:
  // REQUIRES: devices[i].device.key.device == i.
  explicit BackendCore(BackendCoreOptions options);
  BackendCore(const BackendCore&) = delete;
  BackendCore& operator=(const BackendCore&) = delete;

  void on(BackendEvent event, Time now, BackendEffects& effects);

  // When the core wants to hear TimePassed, if nothing else happens before. kNever: not at all.
  [[nodiscard]] Time next_wakeup() const;
  // ShutDown was heard and everything has ended.
  [[nodiscard]] bool finished() const { return shutting_down_ && gpulets_.empty(); }

  // Whether a batch for it should be received into its proxy's memory.
  [[nodiscard]] bool takes_batches(GpuletId gpulet) const;
  // Models' files, by SHA-256, that gpulets serve, load, or wait for.
  [[nodiscard]] std::set<std::string, std::less<>> files_in_use() const;
  // Empty for a gpulet that never was or is gone.
  [[nodiscard]] std::optional<GpuletPhase> phase_of(GpuletId gpulet) const;

 private:
  // Everything one call of on() needs; spares passing it along by three arguments.
  struct Now {
    Time time;
    BackendEffects& effects;
  };

  // The frontend (backend_core.cc).
  void on_event(FrontendConnected& event, Now now);
  void on_event(FrontendLost& event, Now now);
  void on_event(Welcome& event, Now now);
  void on_event(Heartbeat& event, Now now);
  void on_event(TimePassed& event, Now now);
  void on_event(ShutDown& event, Now now);
  void retire_all(Now now);
  [[nodiscard]] Heartbeat heartbeat() const;
  void tell(BackendMessage message, Now now);
  void look_at_frontend(Now now);

  // The gpulets' life (backend_gpulets.cc).
  void on_event(GpuletAsked& event, Now now);
  void on_event(AssignGpulet& event, Now now);
  void on_event(RetireGpulet& event, Now now);
  void on_event(ModelStored& event, Now now);
  void on_event(ModelProgress& event, Now now);
  // The file is here, or never comes: the next one may.
  void file_done(const std::string& sha256, Now now);
  void on_event(ModelFailed& event, Now now);
  void on_event(ProxyStarted& event, Now now);
  void on_event(ProxyLoaded& event, Now now);
  void on_event(ShareActive& event, Now now);
  void on_event(ProxyEnded& event, Now now);
  void on_event(DeviceSeen& event, Now now);
  void report_refused(const CreateGpulet& asked, FailureCause cause, const Status& why, Now now);
  [[nodiscard]] Status check_device(const CreateGpulet& asked) const;
  [[nodiscard]] bool is_simulated(std::uint32_t device) const;
  [[nodiscard]] bool lacks_files(const HostedGpulet& gpulet) const;
  void want_missing_files(const HostedGpulet& gpulet, Now now);
  [[nodiscard]] LoadModels loading_order(const HostedGpulet& gpulet) const;
  void remember_forms(const HostedGpulet& gpulet, const std::vector<std::uint32_t>& forms);
  void start(HostedGpulet& gpulet, Now now);
  void kill(HostedGpulet& gpulet, FailureCause cause, Status why, Now now);
  void lose_device(const HostedGpulet& witness, const Status& why, Now now);
  // Its process ends for the device's sake, and what it holds goes back.
  void end_for_device(HostedGpulet& gpulet, const Status& why, Now now) {
    end_at_once(gpulet, FailureCause::device, why, now);
  }
  void end_at_once(HostedGpulet& gpulet, FailureCause cause, const Status& why, Now now);
  // What the end of its process counts against, for the batches that it held.
  [[nodiscard]] FailureCause cause_for_batches(const HostedGpulet& gpulet, bool killed,
                                               const ProxyEnded& event) const;
  // The process that serves all gpulets of its device has ended: which of them had batches there.
  void remember_fellows(const HostedGpulet& gpulet);
  [[nodiscard]] Time hung_at(const HostedGpulet& gpulet) const;
  void retire(HostedGpulet& gpulet, Now now);
  void give_up_or_restart(HostedGpulet& gpulet, const Status& why, Now now);
  void look_at(HostedGpulet& gpulet, Now now);
  [[nodiscard]] Time next_look(const HostedGpulet& gpulet) const;
  [[nodiscard]] Duration restart_delay(std::uint32_t restarts, Duration longest) const;
  void let_go(HostedGpulet& gpulet, Now now);
  void erase_gone();
  // Has the gpulet looked at when it wants to be; keeps the earliest look in looks_ true.
  void plan_look(HostedGpulet& gpulet);
  void settle_looks();
  [[nodiscard]] HostedGpulet* find(GpuletId gpulet);

  // Controlled cores (backend_cores.cc).
  void on_event(SetCores& event, Now now);
  void on_event(CoresSet& event, Now now);
  [[nodiscard]] Status check_controlled(const CreateGpulet& asked) const;
  [[nodiscard]] double device_cores(std::uint32_t device) const;
  void report_cores_refused(const HostedGpulet& gpulet, Status why, Now now);
  // Of a batch on so many cores of a simulated device.
  [[nodiscard]] Result<Duration> latency_on(const HostedGpulet& gpulet, double cores,
                                            const std::string& model, std::uint32_t count) const;
  // Its own, or what its size is worth.
  [[nodiscard]] double cores_of(const HostedGpulet& gpulet) const;
  [[nodiscard]] double stretch(const HostedGpulet& gpulet, double cores_before) const;

  // Batches (backend_batches.cc).
  void on_event(BatchArrived& event, Now now);
  void on_event(ProxyRan& event, Now now);
  [[nodiscard]] Status refusal(const BatchArrived& event, Time now) const;
  [[nodiscard]] Result<Duration> simulated_latency(const HostedGpulet& gpulet, const Batch& batch);
  void answer(const HeldBatch& batch, BatchResult result, Now now);
  void answer_all_unavailable(HostedGpulet& gpulet, const Status& why, FailureCause cause,
                              const ProcessEnd& end, Now now);

  const BackendCoreOptions options_;
  std::vector<SimulatedDevice> simulated_;  // beside options_.devices
  std::map<GpuletId, HostedGpulet> gpulets_;
  std::map<std::uint32_t, DevicePower> power_{};       // by device, as it was seen last
  std::vector<Status> device_faults_;                  // beside options_.devices
  std::vector<std::vector<HostedGpulet*>> on_device_;  // of gpulets_, by id; beside devices
  bool some_gone_ = false;                             // to be erased
  using Look = std::pair<Time, GpuletId>;
  std::priority_queue<Look, std::vector<Look>, std::greater<>> looks_;
  std::map<std::string, std::string> files_;  // stored, by SHA-256
  // Files asked of the present frontend, and up to where.
  std::map<std::string, std::uint64_t> asked_for_;
  // How models were loaded last, by device type and version: LoadModel::form.
  std::map<std::pair<std::string, std::string>, std::uint32_t> forms_;

  bool connected_ = false;
  bool dropping_ = false;  // told the shell to close the connection
  bool shutting_down_ = false;
  Time leave_by_ = kNever;  // shutting down, and the frontend may retire the gpulets until then
  Time connected_at_{};
  Time last_heard_{};
  Time next_heartbeat_ = kNever;
  std::optional<Duration> heartbeat_every_;  // from the frontend's Welcome
};

}  // namespace gpulet::serve
