// BackendCore: every decision of a backend, as a function of events and time.
//
// A gpulet fetches the files of its models, starts a process, restarts it with a growing delay when
// it dies, and fails for good if it cannot load (GpuletPhase). Every batch gets exactly one result,
// on the connection on which it arrived; no result if that connection is gone. Losing the frontend
// does not affect the gpulets: the next Hello lists them. A batch may be announced before its
// inputs have come from other frontends (node/awaited_batches.h): it runs when they are here, or
// without those that do not come.
//
// Several frontends may be connected. One of them leads (TakeLeadership), and only its commands are
// executed (node/fence.h). Reports on gpulets go to the leader, or to all frontends while none
// leads.
//
// Failures of a device (DeviceHealthReported, or a fault found by a process) end the processes on
// it: all of them where its gpulets share their fate (partition::Traits), otherwise the one that
// found the fault. They restart when the device is usable again. Until then it accepts no gpulets.
//
// A gpulet with controlled cores (schedule::Service) keeps its last requested number of cores in
// every process that it gets. If the driver refuses a change, the core reports that, and the cores
// before the change stay in force.
//
// The backend module turns sockets, processes and timers into events and carries out the effects in
// their order. Pure; one thread at a time. Failures are effects; only bugs throw.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gpulet/base/bytes.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/core/failure.h"
#include "gpulet/core/ids.h"
#include "gpulet/core/request.h"
#include "gpulet/profile/interference.h"
#include "gpulet/profile/profile.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/protocol/proxy_messages.h"

namespace gpulet::node {

// ---- events

struct FrontendConnected {
  FrontendId frontend{};
};
struct FrontendDisconnected {
  FrontendId frontend{};
};

// `stored`: the files in the model store, by SHA-256, of those of its models that are there, and
// their sizes.
struct GpuletRequested {
  CreateGpulet create;
  std::map<std::string, std::string> stored;
  std::map<std::string, std::uint64_t> file_bytes{};
};

// A batch arrived completely, except for inputs that other frontends send (Batch::entries).
// `placed`: its input is in the shared memory of the gpulet's process, or has its place there where
// it is synthetic; false if no slot was free there, and the core will refuse the batch. Unused
// where it has entries.
struct BatchArrived {
  Batch batch;
  Time arrived{};  // of its first byte
  bool placed = false;
  // Of a batch with entries: such memory for all of its inputs (BackendCore::input_bytes), the
  // first of which may be there. Empty: none was free, or they do not come in their order.
  MutableBytes memory{};
};

using FrontendCommand =
    std::variant<Welcome, Heartbeat, TakeLeadership, GpuletRequested, AssignGpulet, SetCores,
                 SetOwner, RetireGpulet, BatchArrived, Rows>;
struct CommandReceived {
  FrontendId frontend;
  FrontendCommand command;
};

struct ModelStored {
  std::string sha256;
  std::string file;
  std::uint64_t file_bytes = 0;
};
struct ModelProgress {  // part of a file is on the disk
  std::string sha256;
  std::uint64_t stored_bytes = 0;
  std::uint64_t total_bytes = 0;
};
struct ModelFailed {  // missing at the frontend, not storable, or with another hash
  std::string sha256;
  Status status;
  FailureCause cause = FailureCause::unknown;
};

// Responses to StartGpulet and later effects. Every StartGpulet has one ProxyEnded as its last
// event.
struct ProxyStarted {
  GpuletId gpulet;
};
struct ProxyLoaded {
  GpuletId gpulet;
  Status status;
  std::vector<std::uint32_t> variants{};  // loaded variant of each model, in the models' order
  partition::FoundShare found{};
  // The rest is set if the status is not ok.
  partition::DeviceHealth device = partition::DeviceHealth::works;
  FailureCause cause = FailureCause::unknown;
  std::string failed_model{};  // empty: unknown, or none
  // Set if the status is ok.
  partition::LoadStages load_stages{};
  partition::ProcessCondition condition{};
};
struct ShareActive {
  GpuletId gpulet;
  Status status;
  FailureCause cause = FailureCause::unknown;  // if the status is not ok
};
struct CoresSet {  // the response to AdjustCores
  GpuletId gpulet;
  Status status;
};
struct BatchCompleted {
  GpuletId gpulet;
  BatchRan ran;
  Bytes outputs;
};
struct ProxyEnded {
  GpuletId gpulet;
  Status reason;  // how the process ended, or why it could not be started
  // not_ready: it could not be started because the device was not ready.
  partition::DeviceHealth device = partition::DeviceHealth::works;
  // Why it could not be started; model_crash or node_memory if it exceeded a memory limit.
  FailureCause cause = FailureCause::unknown;
  ProcessEnd end{};  // if it was started
};

// The present health of a device; repeated.
struct DeviceHealthReported {
  std::uint32_t device = 0;
  Status fault;  // ok, or why the device cannot be used
  DevicePower power{};
};

struct TimePassed {};  // next_wakeup() has come
struct ShutDown {};    // accept no gpulets, drain, end

using BackendEvent =
    std::variant<FrontendConnected, FrontendDisconnected, CommandReceived, ModelStored,
                 ModelProgress, ModelFailed, ProxyStarted, ProxyLoaded, ShareActive, CoresSet,
                 BatchCompleted, ProxyEnded, DeviceHealthReported, TimePassed, ShutDown>;

// ---- effects

struct SendToFrontend {
  FrontendId frontend;
  BackendMessage message;
};
struct DisconnectFrontend {  // FrontendDisconnected follows
  FrontendId frontend;
  Status reason;
};
// Forget the pieces of files that are not complete: they are requested anew.
struct DropUnfinishedFiles {};

// Grant the share, start a process for it, and let it load.
struct StartGpulet {
  GpuletId gpulet;
  std::uint32_t device = 0;
  Share size;
  LoadModels models;               // without environment and memory, which the backend module adds
  std::size_t input_capacity = 0;  // bytes of the largest batch
  std::size_t output_capacity = 0;
  double memory_mb = 0;  // as CreateGpulet::memory_mb
  std::optional<partition::MigInstance> instance{};
  bool adjustable = false;  // partition::Claim::adjustable
};
struct ActivateShare {
  GpuletId gpulet;
};
struct AdjustCores {  // the share of the gpulet is in force
  GpuletId gpulet;
  double cores = 0;
  // On a simulated device: the new duration of the executing batch divided by the old one. A
  // process that receives durations in advance applies it from its next batch on.
  double stretch = 1;
};
struct RunOnProxy {
  GpuletId gpulet;
  RunBatch batch;  // without the places of input and output, which the backend module adds
  Bytes input;
  // Not empty: the input in pieces, which the backend module is to put into that memory, one after
  // another. The same holds for an input that is in the memory of an earlier process. If none is
  // free, it answers with BatchCompleted, whose status is `overloaded`.
  std::vector<Bytes> pieces{};
};
struct FinishProxy {  // end the process once it has completed its batches
  GpuletId gpulet;
};
struct KillProxy {
  GpuletId gpulet;
  Status reason;
};

using BackendEffect =
    std::variant<SendToFrontend, DisconnectFrontend, DropUnfinishedFiles, StartGpulet,
                 ActivateShare, AdjustCores, RunOnProxy, FinishProxy, KillProxy>;
using BackendEffects = std::vector<BackendEffect>;

// ---- the core

// The life of a gpulet at its backend:
//
//   fetching --> starting --> loading --> ready --> retiring --> gone
//      |            |            |          |
//      |            +------------+----------+--> restarting --> starting (after a backoff)
//      +------------+------------+--> failed --> gone
//
// fetching: model files are missing; starting: the process is being started; loading: it loads and
// warms up the models under a loose limit; ready: the share is in force and batches are accepted;
// restarting: the process ended, and the next one waits for the backoff; failed: not tried again;
// retiring: the process completes its batches, or is killed if it was not ready. A gpulet without a
// process (fetching, restarting, failed) that is retired is gone at once.
enum class GpuletPhase : std::uint8_t {
  fetching,
  starting,
  loading,
  ready,
  restarting,
  failed,
  retiring,
  gone,
};
[[nodiscard]] std::string_view to_string(GpuletPhase phase);
// In these phases a process exists or is being started, and its ProxyEnded is pending.
[[nodiscard]] bool has_process(GpuletPhase phase);

struct BackendCoreOptions {
  std::string node;
  std::vector<DeviceOffer> devices;                     // in the order of their numbers, from 0
  std::shared_ptr<const profile::ProfileSet> profiles;  // of simulated devices; may be null
  // The interference of simulated devices (combined), if several cores share it; null: computed
  // here.
  std::shared_ptr<const profile::InterferenceSet> interference;
  // The coefficient of variation of the batches of simulated devices; empty: that of the profile.
  // They are log-normal around the profile's latency.
  std::optional<double> simulated_cv;
  std::uint64_t simulation_seed = 1;
  bool all_simulated = false;  // whatever the partitioning of the devices
  Duration first_restart_delay = std::chrono::milliseconds(100);  // doubles with every restart
  Duration longest_restart_delay = std::chrono::seconds(10);
  // Limits the delay between (cheap) attempts to start on a device that is not ready.
  Duration longest_device_retry_delay = std::chrono::milliseconds(400);
  Duration healthy_after = std::chrono::seconds(30);  // time in `ready` that resets the delay
  std::uint32_t load_attempts = 3;
  // For one small model; more models and larger files get more (protocol/messages.h). A process
  // that takes longer is killed, and its gpulet fails at once: another attempt would take as long.
  Duration load_timeout = std::chrono::seconds(60);
  // A process hangs if it completes none of its batches for hang_timeout and for hang_factor times
  // the expected duration of the oldest one. The time that a batch may wait before it starts does
  // not count, so a client's long timeout cannot hide a hung process.
  Duration hang_timeout = std::chrono::seconds(3);
  double hang_factor = 5;
  Duration welcome_timeout = std::chrono::seconds(5);  // from connecting
  // The time a frontend gets to move models elsewhere before a stopping backend retires them.
  Duration drain_timeout = std::chrono::seconds(10);
};

class BackendCore {
 public:
  // REQUIRES: devices[i].device.key.device == i.
  explicit BackendCore(BackendCoreOptions options);
  ~BackendCore();
  BackendCore(const BackendCore&) = delete;
  BackendCore& operator=(const BackendCore&) = delete;

  // Appends to `effects`.
  void on(BackendEvent event, Time now, BackendEffects& effects);

  // When the core needs TimePassed unless another event comes first; kNever: it does not.
  [[nodiscard]] Time next_wakeup() const;
  // True after ShutDown, once every gpulet is gone.
  [[nodiscard]] bool finished() const;

  // Whether a batch of that frontend for the gpulet should be received into the memory of its
  // process.
  [[nodiscard]] bool takes_batches(FrontendId frontend, GpuletId gpulet) const;
  // Whether that frontend sends the gpulet's batches (SetOwner): others' batches are not received.
  [[nodiscard]] bool is_owner(FrontendId frontend, GpuletId gpulet) const;
  // Bytes of all inputs of a batch that is synthetic, or that has entries and whose requests'
  // inputs come one after another as the process reads them; 0: they do not, or the gpulet cannot
  // run it.
  [[nodiscard]] std::size_t input_bytes(const Batch& batch) const;
  // Whether to receive these inputs for an announced batch: they may belong to none.
  [[nodiscard]] bool takes_rows(FrontendId frontend, const Rows& rows, std::size_t bytes) const;
  // Where to receive them: their place in the batch's memory. Empty: anywhere.
  // REQUIRES: takes_rows().
  [[nodiscard]] MutableBytes rows_memory(FrontendId frontend, const Rows& rows) const;
  // Whether that frontend leads: others' pieces of model files are not received.
  [[nodiscard]] bool obeys(FrontendId frontend) const;
  // Commands that were refused because another frontend leads.
  [[nodiscard]] std::uint64_t commands_refused() const;
  // SHA-256 of the model files that gpulets serve, load, or wait for.
  [[nodiscard]] std::set<std::string, std::less<>> files_in_use() const;
  // Empty for an unknown gpulet.
  [[nodiscard]] std::optional<GpuletPhase> phase_of(GpuletId gpulet) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpulet::node
