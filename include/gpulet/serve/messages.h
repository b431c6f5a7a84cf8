// The vocabulary between the processes, as plain values. net/codec puts them on the wire
// (proto/README.md) and the engine's cores consume and produce them. Durations are relative: clocks
// of two machines are not compared.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gpulet/core/bytes.h"
#include "gpulet/core/failure.h"
#include "gpulet/core/ids.h"
#include "gpulet/core/numerics.h"
#include "gpulet/core/request.h"
#include "gpulet/core/share.h"
#include "gpulet/core/status.h"
#include "gpulet/core/tensor.h"
#include "gpulet/core/time.h"
#include "gpulet/partition/found_device.h"
#include "gpulet/partition/mig_geometry.h"
#include "gpulet/partition/traits.h"
#include "gpulet/schedule/cluster.h"
#include "gpulet/schedule/plan.h"
#include "gpulet/schedule/reconcile.h"

namespace gpulet::serve {

// ---- client <-> frontend

struct InferRequest {
  std::uint64_t tag = 0;  // the client's own number, unique among its requests in flight
  std::string model;
  Duration timeout{};              // zero: the model's SLO
  std::vector<TensorSpec> inputs;  // in the model's order; an empty name matches any
  Bytes payload;                   // the inputs one after another
  std::uint32_t priority = 0;      // 1 is the highest; 0: the model's default
};

struct InferReply {
  std::uint64_t tag = 0;
  Status status;
  std::vector<TensorSpec> outputs;  // empty unless ok
  std::vector<Bytes> payload;       // one per output
  Duration queued{};                // at the frontend and the backend, before execution
  Duration executed{};
  std::uint32_t batch_size = 0;
  Duration retry_after{};  // of a limited request: when to ask again; zero: not known
};

// Asks for one page of the list of models.
struct ModelsRequest {
  std::string after{};  // the page begins after this name
};
enum class ModelState : std::uint8_t {
  loading = 1,      // a gpulet for it is on its way
  ready = 2,        // a gpulet serves it
  idle = 3,         // had no request for long and holds no gpulet; the next request wakes it
  unavailable = 4,  // no gpulet serves it or will without a change; the reason says why
  leaving = 5,      // removed; its gpulets finish what they hold
};
// The state's name as written above.
[[nodiscard]] std::string_view to_string(ModelState state);

struct ModelInfo {
  std::string name;
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  double slo_ms = 0;
  std::uint32_t max_batch = 0;
  ModelState state = ModelState::loading;
  std::string version{};  // serve::version_of what serves
  std::string next{};     // another version that is being warmed, or was refused; empty: none
  std::string reason{};   // why unavailable, or what becomes of `next`
  bool next_refused = false;
  // A plan that may change what serves it is still to come into force.
  bool pending = false;
  // Which version of that name serves, counted since the frontend's start. Not on the wire.
  std::uint32_t number = 1;
};
struct ModelsReply {
  std::vector<ModelInfo> models;  // by name
  bool more = false;              // there are models after the last of these
  // What is wrong with the files behind the list, each with its place: what was read before counts.
  std::vector<std::string> problems{};
};

// Models of a running frontend come or go.
struct ModelsChange {
  enum class Kind : std::uint8_t { load = 1, unload = 2 };
  Kind kind = Kind::load;
  // Of an entry of the models file, which is read again; or of what is to be unloaded. Empty: all
  // that `text` holds are to be loaded.
  std::string name;
  std::string file;  // what `text` is called in errors, and its paths are relative to
  Bytes text;        // as a models file
  // What a load by name sets aside of the entry, as JSON: a model configuration of the standard
  // protocol (net/kserve/configuration.h). Until it is loaded again. Not on the wire.
  std::string configuration{};
};
struct ModelsChanged {
  Status status;                    // why nothing was changed
  std::vector<ModelInfo> models{};  // those that are meant, right after the change
};

struct StatusRequest {};
struct StatusReply {
  std::string json;  // docs/status.md
  Status status{};   // why there is none
};

// What a connection may ask for from here on. It gets no answer: a token that is not known shows in
// the answers to what needs one.
struct Authenticate {
  std::string token;
};

using ClientMessage =
    std::variant<InferRequest, ModelsRequest, ModelsChange, StatusRequest, Authenticate>;
using FrontendReply = std::variant<InferReply, ModelsReply, ModelsChanged, StatusReply>;

// ---- backend -> frontend

enum class GpuletState : std::uint8_t {
  preparing = 1,   // fetching models, starting the process, loading, warming
  ready = 2,       // takes batches
  restarting = 3,  // its process died; a new one is being prepared after a back-off
  failed = 4,      // gave up; the status says why
  gone = 5,        // retired and ended
};

// The state's name as written above, as the status document and the logs tell it.
[[nodiscard]] std::string_view to_string(GpuletState state);

// What a plan wants of a gpulet. A backend only keeps it, for a frontend that does not know it any
// more.
struct PlanPart {
  double duty_cycle_ms = 0;
  std::vector<schedule::Assignment> assignments;
  schedule::Service service = schedule::Service::rounds;

  friend bool operator==(const PlanPart&, const PlanPart&) = default;
};

struct GpuletReport {
  GpuletId id;
  std::uint32_t device = 0;
  Share size;
  std::vector<schedule::LoadedModel> models;
  GpuletState state = GpuletState::preparing;
  Status status;  // why failed or restarting, or why it was not given the cores that it was to have
  PlanPart part{};  // as it was last told
  // What its process was given; empty where the device does not tell, or it has not loaded.
  partition::FoundShare found{};
  std::optional<partition::MigInstance> instance{};  // as CreateGpulet
  FailureCause cause = FailureCause::unknown;        // where it failed or restarts
  std::string failed_model{};  // the model at fault; empty: not known, or none of them
};

struct DeviceOffer {
  schedule::Device device;
  std::string mechanism;  // what holds its shares
  partition::Traits traits{};
  Status fault{};  // why it cannot be used now; ok: it can
};

// First message on a connection. A backend whose frontend came back tells of the gpulets that still
// run.
struct Hello {
  std::string node;
  std::vector<DeviceOffer> devices;
  std::vector<GpuletReport> gpulets;
};

// The backend lacks this part of a file. It asks for as many parts at once as it has room for, so
// that a long file neither fills its memory nor holds up batches.
struct ModelWanted {
  std::string sha256;  // lower-case hex
  std::uint64_t offset = 0;
};

// A device of the Hello cannot be used any more, or (fault ok) can be again. Its gpulets stay where
// they are, restarting, until it is back or they are retired.
struct DeviceReport {
  std::uint32_t device = 0;
  Status fault;
};

// What a device draws, of those that tell. Each value is empty where the device does not tell it.
struct DevicePower {
  std::uint32_t device = 0;
  std::optional<double> usage_w{};
  std::optional<double> limit_w{};
  std::optional<double> energy_j{};  // since its driver was loaded

  friend bool operator==(const DevicePower&, const DevicePower&) = default;
};

// The frontend's has no power.
struct Heartbeat {
  std::vector<DevicePower> power{};
};

// The backend was told to stop: it takes no new gpulets, and serves with those that it has until
// the frontend has made others elsewhere and retires them.
struct Leaving {};

using BackendMessage =
    std::variant<Hello, GpuletReport, BatchResult, ModelWanted, Heartbeat, Leaving, DeviceReport>;

// ---- frontend -> backend

struct Welcome {
  Duration heartbeat_every{};  // both sides; a peer silent for four of them is gone
};

// Why the frontend ends the connection, as its last message.
struct Refused {
  Status why;
};

struct ModelToServe {
  std::string name;
  std::string sha256;  // of the model file
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  std::uint32_t max_batch = 1;
  Numerics numerics{};
};

struct CreateGpulet {
  GpuletId id;
  std::uint32_t device = 0;
  Share size;
  std::vector<ModelToServe> models;
  PlanPart part{};
  double memory_mb = 0;  // that its models need of the device; 0: not known of all of them
  // Where it runs, exactly on a device that is divided by MIG.
  std::optional<partition::MigInstance> instance{};
};

struct AssignGpulet {  // it serves on, for another part of a plan
  GpuletId id;
  PlanPart part;
};

// So many cores of its device from now on, while it runs (PlanPart::service: controlled).
struct SetCores {
  GpuletId id;
  double cores = 0;
};

struct RetireGpulet {  // finish what it holds, then end it
  GpuletId id;
};

// The answer to a ModelWanted: the piece of the file that begins there, kModelPieceBytes long or up
// to the file's end. total_bytes 0: the frontend does not have it.
inline constexpr std::uint64_t kModelPieceBytes = 1U << 20U;

struct ModelPiece {
  std::string sha256;
  std::uint64_t offset = 0;
  std::uint64_t total_bytes = 0;
  Bytes data;
  // With total_bytes 0: the file changed after the frontend hashed it, so it may be there again.
  bool changed = false;
};

using BackendCommand = std::variant<Welcome, CreateGpulet, AssignGpulet, SetCores, RetireGpulet,
                                    Batch, ModelPiece, Heartbeat, Refused>;

// ---- backend <-> proxy (Unix socket; tensors are in shared memory)

struct LoadModel {
  std::string name;
  std::string file;
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  std::uint32_t max_batch = 1;
  std::uint32_t form = 0;  // as told by a proxy that loaded it before; 0: not known
  Numerics numerics{};
};

// First message to a proxy: what makes it a gpulet's. Until then it is anybody's.
struct LoadModels {
  std::vector<LoadModel> models;
  std::map<std::string, std::string> environment{};  // of the share, on top of its own
  std::uint64_t memory_bytes = 0;                    // of the memory shared with the backend
};

struct RunBatch {
  BatchId id;
  std::string model;
  std::uint32_t count = 0;
  std::uint64_t input_offset = 0;  // into the shared memory
  std::uint64_t input_bytes = 0;
  std::uint64_t output_offset = 0;
  std::uint64_t output_capacity = 0;
  Duration start_within{};  // from sending
  Duration simulated_latency{};
};

struct StopProxy {};  // finish what was sent before, then exit 0

using ProxyCommand = std::variant<LoadModels, RunBatch, StopProxy>;

struct ProxyIdle {};  // started, with all done that needs no model; waits for LoadModels

struct ProxyReady {
  Status status;                       // of loading everything
  std::uint64_t memory_bytes = 0;      // resident, once loaded
  std::vector<std::uint32_t> forms{};  // of the models, in their order: what LoadModel::form is for
  partition::FoundShare found{};
  partition::DeviceHealth device = partition::DeviceHealth::works;  // where the status is not ok
  FailureCause cause = FailureCause::unknown;                       // where the status is not ok
  std::string failed_model{};  // the one that did not load; empty: none
};

struct BatchRan {
  BatchId id;
  Status status;
  std::uint64_t output_bytes = 0;
  Duration queued{};  // in the proxy
  Duration executed{};
  partition::DeviceHealth device = partition::DeviceHealth::works;  // where the status is not ok
  FailureCause cause = FailureCause::unknown;                       // input, or unknown
};

using ProxyMessage = std::variant<ProxyIdle, ProxyReady, BatchRan>;

}  // namespace gpulet::serve
