// What the backend's core is told, and what it wants done. Plain values. The shell (backend room)
// turns sockets, processes and timers into events, and carries out effects in their order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "gpulet/core/bytes.h"
#include "gpulet/core/failure.h"
#include "gpulet/core/ids.h"
#include "gpulet/core/process_end.h"
#include "gpulet/core/request.h"
#include "gpulet/core/share.h"
#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/serve/messages.h"

namespace gpulet::serve {

// ---- events

struct FrontendConnected {};
struct FrontendLost {};

// The frontend asks for a gpulet. `stored`: the files, by SHA-256, of those of its models that the
// store has.
struct GpuletAsked {
  CreateGpulet create;
  std::map<std::string, std::string> stored;
};

// A whole batch is here. `placed`: its input lies in memory of the gpulet's proxy; where no piece
// of it was free, the input is elsewhere and the batch will be refused.
struct BatchArrived {
  Batch batch;
  Time arrived{};  // its first byte
  bool placed = false;
};

struct ModelStored {
  std::string sha256;
  std::string file;
};
// A file that is not whole yet is on the disk as far as this.
struct ModelProgress {
  std::string sha256;
  std::uint64_t stored_bytes = 0;
  std::uint64_t total_bytes = 0;
};
struct ModelFailed {  // the frontend does not have it, it could not be stored, or it was another
  std::string sha256;
  Status status;
  FailureCause cause = FailureCause::unknown;
};

// Answers of the shell to StartGpulet and to what follows. Every StartGpulet is answered by one
// ProxyEnded in the end, after which nothing more is heard of that process.
struct ProxyStarted {
  GpuletId gpulet;
};
struct ProxyLoaded {
  GpuletId gpulet;
  Status status;
  std::vector<std::uint32_t> forms{};  // of its models, in their order
  partition::FoundShare found{};
  partition::DeviceHealth device = partition::DeviceHealth::works;
  FailureCause cause = FailureCause::unknown;  // where the status is not ok
  std::string failed_model{};                  // as ProxyReady
};
struct ShareActive {
  GpuletId gpulet;
  Status status;
  FailureCause cause = FailureCause::unknown;  // where the status is not ok
};
struct CoresSet {  // the answer to AdjustCores
  GpuletId gpulet;
  Status status;
};
struct ProxyRan {
  GpuletId gpulet;
  BatchRan ran;
  Bytes outputs;
};
struct ProxyEnded {
  GpuletId gpulet;
  Status reason;  // how the process ended, or why it could not be made
  // not_ready: it could not be made for the device's sake.
  partition::DeviceHealth device = partition::DeviceHealth::works;
  // Where it could not be made, or more is known of its end than how: model_crash, it took more
  // memory than it may; node_memory, the node had none left.
  FailureCause cause = FailureCause::unknown;
  ProcessEnd end{};  // where it was made
};

// How a device is, as its machine sees it: ok, or why it cannot be used. Heard again and again.
struct DeviceSeen {
  std::uint32_t device = 0;
  Status fault;
  DevicePower power{};  // as it is now
};

struct TimePassed {};  // next_wakeup() has come
struct ShutDown {};    // take nothing more, finish, end

using BackendEvent =
    std::variant<FrontendConnected, FrontendLost, Welcome, Heartbeat, GpuletAsked, AssignGpulet,
                 SetCores, RetireGpulet, BatchArrived, ModelStored, ModelProgress, ModelFailed,
                 ProxyStarted, ProxyLoaded, ShareActive, CoresSet, ProxyRan, ProxyEnded, DeviceSeen,
                 TimePassed, ShutDown>;

// ---- effects

struct TellFrontend {
  BackendMessage message;
};
struct DropFrontend {  // close the connection; FrontendLost follows
  Status reason;
};

// Grant the share, start a process for it, let it load.
struct StartGpulet {
  GpuletId gpulet;
  std::uint32_t device = 0;
  Share size;
  LoadModels models;               // the shell fills in environment and memory
  std::size_t input_capacity = 0;  // of one batch
  std::size_t output_capacity = 0;
  double memory_mb = 0;  // as CreateGpulet
  std::optional<partition::MigInstance> instance{};
  bool adjustable = false;  // partition::Claim::adjustable
};
struct ActivateShare {
  GpuletId gpulet;
};
struct AdjustCores {  // of a gpulet whose share is in force
  GpuletId gpulet;
  double cores = 0;
  // On a simulated device: what the batch that it runs takes now, against before. Where processes
  // are told beforehand how long a batch takes, only the next one follows.
  double stretch = 1;
};
struct RunOnProxy {
  GpuletId gpulet;
  RunBatch batch;  // the shell fills in the places of input and output
  Bytes input;
};
struct FinishProxy {  // let it end once it has run what it was given
  GpuletId gpulet;
};
struct KillProxy {
  GpuletId gpulet;
  Status reason;
};

using BackendEffect = std::variant<TellFrontend, DropFrontend, StartGpulet, ActivateShare,
                                   AdjustCores, RunOnProxy, FinishProxy, KillProxy>;
using BackendEffects = std::vector<BackendEffect>;

}  // namespace gpulet::serve
