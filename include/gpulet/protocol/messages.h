// The messages between client, frontend and backend, as plain values. protocol/codec.h
// converts them to frames and back (wire format: proto/README.md); the engine's cores consume and
// produce them. Durations are relative: the clocks of two machines are never compared.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
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
#include "gpulet/core/tensor.h"
#include "gpulet/partition/gpulet.h"
#include "gpulet/partition/mig_geometry.h"
#include "gpulet/partition/traits.h"

namespace gpulet {

// ---- client <-> frontend

struct InferRequest {
  std::uint64_t tag = 0;  // chosen by the client; unique among its requests in flight
  std::string model;
  Duration timeout{};              // zero: the model's SLO
  std::vector<TensorSpec> inputs;  // in the model's order; an empty name matches any input
  Bytes payload;                   // the inputs, concatenated
  std::uint32_t priority = 0;      // 1 is the highest; 0: the model's default
  // The shapes count and the payload is empty: the model's process makes the inputs. Only where the
  // frontend allows it, for experiments.
  bool synthetic = false;
};

struct InferReply {
  std::uint64_t tag = 0;
  Status status;
  std::vector<TensorSpec> outputs;  // empty unless ok
  std::vector<Bytes> payload;       // one element per output
  Duration queued{};                // at the frontend and the backend, before execution
  Duration executed{};
  std::uint32_t batch_size = 0;
  Duration retry_after{};  // status limited: when to retry; zero: unknown
  // The frontend stops: further requests should go to another connection.
  bool leaving = false;
  // Where the request was forwarded to, as HOST:PORT for clients: further requests for the model
  // are faster there. Empty: the sender served it. Inside the core, the name of the member.
  std::string served_by{};
};

// Requests one page of the model list.
struct ModelsRequest {
  std::string after{};  // the page starts after this name
};
enum class ModelState : std::uint8_t {
  loading = 1,      // a gpulet for the model is being prepared
  ready = 2,        // a gpulet serves the model
  idle = 3,         // holds no gpulet for want of requests; the next request wakes it
  unavailable = 4,  // no gpulet serves the model, and none will without a change; see `reason`
  leaving = 5,      // removed; its gpulets finish the requests that they hold
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
  std::string version{};  // serve::version_of the version that serves; empty: its file is awaited
  std::string next{};     // another version that is being prepared or was refused; empty: none
  std::string reason{};   // why the model is unavailable, or the progress of `next`
  bool next_refused = false;
  // A plan that may change how the model is served is not in force yet.
  bool pending = false;
  // Of a model with dynamic dimensions (core/bucket.h), whose shapes have -1 there: those of its
  // buckets, ascending. `pads`: shorter requests are padded; otherwise requests have these lengths.
  std::vector<std::uint32_t> lengths{};
  bool pads = false;
  // Counts the versions of this name since the frontend's start. Not on the wire.
  std::uint32_t number = 1;
};
struct ModelsReply {
  std::vector<ModelInfo> models;  // by name
  bool more = false;              // further models follow after the last one
  // Errors in the files behind the list, with their locations. The old contents stay in force.
  std::vector<std::string> problems{};
};

// Loads or unloads models of a running frontend.
struct ModelsChange {
  enum class Kind : std::uint8_t { load = 1, unload = 2 };
  Kind kind = Kind::load;
  // The model to unload, or the models file's entry to load. Empty: load all entries of `text`.
  std::string name;
  std::string file;  // the name of `text` in errors; paths in `text` are relative to it
  Bytes text;        // the contents of a models file
  // A model configuration of the standard protocol (net/kserve/host.h), as JSON, that overrides
  // the entry until the model is loaded again.
  std::string configuration{};
};
struct ModelsChanged {
  Status status;                    // why nothing was changed
  std::vector<ModelInfo> models{};  // the models concerned, right after the change
};

struct StatusRequest {
  bool local = false;  // of the frontend that is asked, not of the one that leads its cluster
};
struct StatusReply {
  std::string json;  // docs/status.md
  Status status{};   // why there is no document
};

// Sets the token of a connection. No reply: an unknown token makes later requests fail.
struct Authenticate {
  std::string token;
};

using ClientMessage =
    std::variant<InferRequest, ModelsRequest, ModelsChange, StatusRequest, Authenticate>;
using FrontendReply = std::variant<InferReply, ModelsReply, ModelsChanged, StatusReply>;

// ---- backend -> frontend

enum class GpuletState : std::uint8_t {
  preparing = 1,   // fetches models, starts the process, loads, warms up
  ready = 2,       // takes batches
  restarting = 3,  // its process died; a new one starts after the backoff
  failed = 4,      // gave up; the status says why
  gone = 5,        // retired and ended
};

// The state's name as written above; the status document and the logs use it.
[[nodiscard]] std::string_view to_string(GpuletState state);

// A gpulet's part of a plan. The backend only stores it, for a frontend that restarts.
struct PlanPart {
  double duty_cycle_ms = 0;
  std::vector<partition::Assignment> assignments;
  partition::Service service = partition::Service::rounds;
  std::optional<partition::PolicyChoice> policy_choice{};

  friend bool operator==(const PlanPart&, const PlanPart&) = default;
};

struct GpuletReport {
  GpuletId id;
  std::uint32_t device = 0;
  Share size;
  std::vector<partition::RunningModel> models;
  GpuletState state = GpuletState::preparing;
  Status status;    // why the gpulet failed, restarts, or did not get the requested cores
  PlanPart part{};  // as last assigned
  // The share that the process received; empty where the device cannot tell or nothing is loaded.
  partition::FoundShare found{};
  std::optional<partition::MigInstance> instance{};  // as in CreateGpulet
  FailureCause cause = FailureCause::unknown;        // of a failure or restart
  std::string failed_model{};               // the model at fault; empty: unknown, or none of them
  std::string owner{};                      // as last set by SetOwner
  partition::LoadStages load_stages{};      // of the process that loaded last
  partition::ProcessCondition condition{};  // of the process, as of a recent batch
};

// What a backend or a frontend understands. It is sent no message of a higher level.
//   0: one frontend, which commands every backend that connects
//   1: terms: TakeLeadership, BackendState, Superseded
//   2: owners: SetOwner, SetRoutes, OwnerReport
//   3: frontends request model files and statistics of each other: ModelPieceRequest,
//      StatisticsRequest
//   4: payloads that stay at their entry: Forward::kept_bytes, RowsWanted, Batch::entries, Rows
inline constexpr std::uint32_t kProtocolLevel = 4;
// The least level of a peer with owners.
inline constexpr std::uint32_t kLevelOfOwners = 2;
// The least level of a frontend that answers such requests.
inline constexpr std::uint32_t kLevelOfPeerRequests = 3;
// The least level of owners and backends of requests whose payloads stay at their entry.
inline constexpr std::uint32_t kLevelOfKeptPayloads = 4;

struct DeviceOffer {
  partition::Device device;
  std::string mechanism;  // enforces the device's shares
  partition::Traits traits{};
  Status fault{};  // why the device is unusable now; ok: usable
};

// The first message of a backend. A backend that reconnects includes the gpulets that still run.
struct Hello {
  std::string node;
  std::vector<DeviceOffer> devices;
  std::vector<GpuletReport> gpulets;
  std::uint32_t level = 0;  // kProtocolLevel of the backend
  Term term{};              // the highest term that it accepted
};

// The reply to an accepted TakeLeadership: no command of a lower term is executed after it. The
// gpulets are those that run, retiring ones included.
struct BackendState {
  Term term;
  std::vector<GpuletReport> gpulets;
};

// A frontend of this term, which is not the receiver's, leads the backend. Sent to the former
// leader when the leadership changes, and for every command that the backend refuses because of it.
struct Superseded {
  Term term;
};

// Requests a missing piece of a model file, from a frontend. A backend has a bounded number of
// requests in flight, so that a long file neither fills its memory nor delays batches; a frontend
// has one.
struct ModelPieceRequest {
  std::string sha256;  // lower-case hex
  std::uint64_t offset = 0;
};

// A device of the Hello became unusable, or usable again (fault ok). Its gpulets stay, restarting,
// until the device is back or they are retired.
struct DeviceReport {
  std::uint32_t device = 0;
  Status fault;
};

// The power draw of a device. Values that the device does not report are empty.
struct DevicePower {
  std::uint32_t device = 0;
  std::optional<double> usage_w{};
  std::optional<double> limit_w{};
  std::optional<double> energy_j{};  // since the driver was loaded

  friend bool operator==(const DevicePower&, const DevicePower&) = default;
};

// Sent by both sides. `power` is empty in the frontend's.
struct Heartbeat {
  std::vector<DevicePower> power{};
};

// The backend is shutting down: it takes no new gpulets and serves until it has been replaced.
struct Draining {};

using BackendMessage = std::variant<Hello, GpuletReport, BatchResult, ModelPieceRequest, Heartbeat,
                                    Draining, DeviceReport, BackendState, Superseded>;

// ---- frontend -> backend

// Where a backend of the same machine may go on instead of over TCP (docs/architecture.md, "One
// machine").
struct LocalOffer {
  std::string name;        // of the frontend's abstract Unix socket
  std::string secret;      // that the backend shows there
  std::uint32_t user = 0;  // of the frontend's process
};

// The first message on a connection, and sent once.
struct Welcome {
  Duration heartbeat_every{};         // for both sides; a peer silent for four periods is gone
  std::uint32_t level = 0;            // kProtocolLevel of the frontend
  std::string member{};               // of its cluster; empty: it is alone
  std::optional<LocalOffer> local{};  // of the connection, not of the engine; empty: TCP only
};

// The sender leads from now on. Refused (Superseded) unless the term is above every term that the
// backend accepted, or the same and its leader is not connected. Only the leader's commands are
// executed, and only with its term: CreateGpulet, AssignGpulet, SetCores, SetOwner, RetireGpulet.
// The same holds for a Batch, unless the gpulet has another owner.
struct TakeLeadership {
  Term term;
};

// The last message before the frontend closes the connection.
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
  // The batch sizes for which the gpulet must be ready, each in 1..max_batch; it prepares others
  // later. Empty: unknown.
  std::vector<std::uint32_t> planned_batches{};
};

struct CreateGpulet {
  GpuletId id;
  std::uint32_t device = 0;
  Share size;
  std::vector<ModelToServe> models;
  PlanPart part{};
  double memory_mb = 0;  // device memory that the models need; 0: unknown for at least one
  // The MIG instance to run in. Set exactly on devices that MIG divides.
  std::optional<partition::MigInstance> instance{};
  Term term{};
};

// Assigns another part of a plan to a running gpulet.
struct AssignGpulet {
  GpuletId id;
  PlanPart part;
  Term term{};
};

// Sets the number of cores of a running gpulet (PlanPart::service: controlled).
struct SetCores {
  GpuletId id;
  double cores = 0;
  Term term{};
};

// From now on, only the frontend of that member sends the gpulet's batches; empty: the one that
// leads. The backend reports the gpulet to the former and to the new owner.
struct SetOwner {
  GpuletId id;
  std::string owner;
  Term term{};
};

// Lets the gpulet finish the batches that it holds, then ends it.
struct RetireGpulet {
  GpuletId id;
  Term term{};
};

// The reply to a ModelPieceRequest: the bytes from `offset` on, kModelPieceBytes or up to the end
// of the file. total_bytes 0: the frontend does not have the file.
inline constexpr std::uint64_t kModelPieceBytes = 1U << 20U;

struct ModelPiece {
  std::string sha256;
  std::uint64_t offset = 0;
  std::uint64_t total_bytes = 0;
  Bytes data;
  // With total_bytes 0: the file changed after the frontend hashed it; a retry may succeed.
  bool changed = false;
};

// The inputs of the sender's requests of a batch (Batch::entries). Sent once for a batch, on
// RowsWanted; it may arrive before the Batch.
struct Rows {
  std::string owner;  // the member that sends the batch
  BatchId batch;
  // Which of the sender's requests of the batch are here, numbered from 0 on, ascending. The sender
  // has withdrawn the others.
  std::vector<std::uint32_t> present;
  std::vector<Bytes> inputs;  // of those, one whole request after another
};

using BackendCommand =
    std::variant<Welcome, TakeLeadership, CreateGpulet, AssignGpulet, SetCores, SetOwner,
                 RetireGpulet, Batch, Rows, ModelPiece, Heartbeat, Refused>;

// ---- frontend <-> frontend of one cluster
//
// A frontend connects to each of the others and forwards to them the requests of its clients that
// they serve. So two frontends have two connections, one for the requests of each.

// The first message on such a connection, from the frontend that connected.
struct PeerHello {
  std::string cluster;
  std::string member;       // the sender
  std::uint32_t level = 0;  // kProtocolLevel
  std::string secret{};     // cluster::Member::secret of the sender
};

// The reply to an accepted PeerHello.
struct PeerWelcome {
  std::string cluster;
  std::string member;          // the sender
  Duration heartbeat_every{};  // for both sides; a peer silent for four periods is gone
  std::uint32_t level = 0;
  std::string secret{};  // cluster::Member::secret of the sender
};

// A request of a client of the sender. Its tag is the sender's, not the client's.
struct Forward {
  InferRequest request;
  Duration age{};  // since the client's request arrived at the sender
  // It waited for a frontend that serves it: its objective has passed through no fault of its own.
  bool delayed = false;
  // Not 0: the request comes without its payload, which has that many bytes and stays at the
  // sender, the entry, until RowsWanted asks for it.
  std::uint64_t kept_bytes = 0;
};

// The outcome of a Forward with that tag.
struct ForwardReply {
  InferReply reply;
  bool elsewhere = false;       // the receiver of the Forward does not serve the model (any more)
  bool payload_needed = false;  // it serves the request only with its payload (kept_bytes)
};

// A batch has these requests of the receiver, which keeps their payloads: it sends them to the node
// (Rows). Sent together with the Batch.
struct RowsWanted {
  BatchId batch;
  std::string node;
  std::vector<std::uint64_t> tags;  // of the Forwards, in the order of the batch
};

// The client is gone or has an answer. There is no reply.
struct CancelForward {
  std::uint64_t tag = 0;
  std::string model;
};

// The part of a model's requests that a member serves.
struct OwnerShare {
  std::string member;
  double weight = 0;  // compared with the other owners' of the model

  friend bool operator==(const OwnerShare&, const OwnerShare&) = default;
};

// How the sender serves, for the receiver's clients. Sent after PeerWelcome and after changes.
struct ServedModelState {
  std::string name;
  ModelState state = ModelState::loading;
  // As in ModelInfo.
  std::string reason{};
  std::uint32_t number = 1;
  std::string version{};
  std::string next{};
  bool next_refused = false;
  bool pending = false;
  std::string owner{};  // the member that serves its requests; empty: the sender
  // Of a model whose requests several members serve; `owner` is the first of them. Otherwise empty.
  std::vector<OwnerShare> owners{};

  friend bool operator==(const ServedModelState&, const ServedModelState&) = default;
};
struct ServedModels {
  bool serving = false;  // the sender accepts requests
  std::vector<ServedModelState> models;

  friend bool operator==(const ServedModels&, const ServedModels&) = default;
};

// A file that an entry of the models file names.
struct NamedFile {
  std::string path;    // as in the entry
  std::string sha256;  // of its content

  friend bool operator==(const NamedFile&, const NamedFile&) = default;
};

// A client's change of models for the frontend that leads. The tag returns with the result.
struct ChangeModels {
  std::uint64_t tag = 0;
  ModelsChange change;
  std::vector<NamedFile> files{};  // of the change's entries; the sender has them
};
struct ChangeResult {
  std::uint64_t tag = 0;
  ModelsChanged changed;
};

// All changes that clients made, as the sender knows them. A frontend adopts those with the highest
// stamp. Sent after PeerWelcome and after every change.
struct CatalogueStamp {
  Term term{};               // of the leader that made the last change
  std::uint64_t number = 0;  // of the change; 0: none was made

  friend auto operator<=>(const CatalogueStamp&, const CatalogueStamp&) = default;
};
struct CatalogueState {
  CatalogueStamp stamp;
  Bytes text;  // src/frontend/catalogue/catalogue.h
};
// The sender has these changes, or later ones.
struct CatalogueAdopted {
  CatalogueStamp stamp;
};

// The gpulets to which the receiver sends batches, as the leader decided: those of each named node
// from now on. It sends none before the backend has reported that the receiver owns the gpulet.
struct RouteSlot {
  std::string model;
  std::string version;              // serve::version_of
  std::vector<Duration> execution;  // [n-1]: the expected duration of a batch of n
  double rate = 0;                  // planned requests per second

  friend bool operator==(const RouteSlot&, const RouteSlot&) = default;
};
struct Route {
  GpuletId gpulet;
  Duration duty_cycle{};
  std::vector<RouteSlot> slots;

  friend bool operator==(const Route&, const Route&) = default;
};
struct NodeRoutes {
  std::string node;
  std::vector<Route> routes;

  friend bool operator==(const NodeRoutes&, const NodeRoutes&) = default;
};
struct SetRoutes {
  Term term;  // ignored if it is below that of an earlier one
  std::vector<NodeRoutes> nodes;
};

// What a frontend tells the leader about the requests and gpulets that it owns, twice a second. A
// frontend that has sent one can become an owner.
struct ModelFigures {
  std::string model;
  // Since the last report.
  std::uint64_t arrived = 0;
  std::uint64_t served = 0;
  std::uint64_t late = 0;  // of the served
  std::uint64_t dropped = 0;
  std::uint64_t failed = 0;
  std::uint64_t queued = 0;         // now
  std::vector<Duration> latencies;  // of served requests, or of some of them

  friend bool operator==(const ModelFigures&, const ModelFigures&) = default;
};
struct GpuletFigures {
  GpuletId id;
  // Since the sender owns it.
  std::uint64_t batches = 0;
  std::uint64_t requests = 0;
  Duration executed{};
  std::uint64_t planned = 0;    // sum of these batches' planned sizes
  std::uint64_t in_flight = 0;  // now

  friend bool operator==(const GpuletFigures&, const GpuletFigures&) = default;
};
struct BatchFigures {  // one executed batch
  GpuletId gpulet;
  std::string model;
  std::uint32_t count = 1;
  Duration executed{};

  friend bool operator==(const BatchFigures&, const BatchFigures&) = default;
};
struct ProcessLost {  // a process that ended while it held batches
  GpuletId gpulet;
  std::vector<std::string> models;
  std::uint64_t requests = 0;
  FailureCause cause = FailureCause::unknown;
  ProcessEnd end{};

  friend bool operator==(const ProcessLost&, const ProcessLost&) = default;
};
struct OwnerReport {
  bool draining = false;           // it is about to stop: its gpulets need another owner
  std::vector<std::string> nodes;  // whose backends are connected to it
  std::vector<ModelFigures> models;
  std::vector<GpuletFigures> gpulets;
  std::vector<BatchFigures> batches;
  std::vector<ProcessLost> lost;
};

// What the statistics extension of the standard protocol counts, since the frontend's start.
struct DurationCount {
  std::uint64_t count = 0;
  std::uint64_t ns = 0;  // total

  friend bool operator==(const DurationCount&, const DurationCount&) = default;
};
struct BatchCount {  // executions of one batch size
  std::uint32_t batch_size = 1;
  DurationCount compute_input{};
  DurationCount compute_infer{};
  DurationCount compute_output{};

  friend bool operator==(const BatchCount&, const BatchCount&) = default;
};
struct InferenceStatistics {
  std::string name;
  std::string version;
  std::uint64_t last_inference_ms = 0;  // Unix time; 0: none yet
  std::uint64_t inference_count = 0;    // requests; each row of a call counts
  std::uint64_t execution_count = 0;    // batches
  DurationCount success;
  DurationCount fail;
  DurationCount queue;
  DurationCount compute_input{};
  DurationCount compute_infer{};
  DurationCount compute_output{};
  std::vector<BatchCount> batches{};  // by ascending size

  friend bool operator==(const InferenceStatistics&, const InferenceStatistics&) = default;
};

// Asks for the receiver's own statistics of a model; an empty name: of all.
struct StatisticsRequest {
  std::uint64_t tag = 0;  // returns with the reply
  std::string model;
};
struct StatisticsReply {
  std::uint64_t tag = 0;
  std::vector<InferenceStatistics> models;
};

// From the frontend that connected, and to it.
using PeerRequest =
    std::variant<PeerHello, Forward, CancelForward, StatusRequest, ChangeModels, CatalogueAdopted,
                 SetRoutes, OwnerReport, ModelPieceRequest, StatisticsRequest, Heartbeat>;
using PeerReply =
    std::variant<PeerWelcome, ForwardReply, RowsWanted, ServedModels, StatusReply, ChangeResult,
                 CatalogueState, ModelPiece, StatisticsReply, Heartbeat, Refused>;

// ---- model version
//
// The version of a model, for frontend and backends alike: what file it has, and how the file is
// read. Pure; any thread.

// Identifies a version: its file's hash, then a digest of its tensors and numerics.
[[nodiscard]] std::string version_of(const std::string& sha256,
                                     const std::vector<TensorSpec>& inputs,
                                     const std::vector<TensorSpec>& outputs,
                                     const Numerics& numerics);
[[nodiscard]] std::string version_of(const ModelToServe& model);
// The SHA-256 of the version's file.
[[nodiscard]] std::string_view file_of_version(std::string_view version);
// For display: the first 12 digits of the file's hash.
[[nodiscard]] std::string short_version(const std::string& version);

// ---- load bound
//
// How long loading may take, for frontend and backend alike. Pure; any thread.

// The time in which a process must have loaded so many models, whose files have so many bytes
// together, and ended their first runs. `timeout`: for one small model.
[[nodiscard]] inline Duration load_bound(Duration timeout, std::size_t models,
                                         std::uint64_t file_bytes) {
  constexpr double kLeastBytesPerSecond = 20e6;
  // Bounds the time, whatever size a peer sends.
  constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 40U;
  // Models of one process load one after the other, and most load fast.
  constexpr std::int64_t kPartOfFurther = 6;
  const auto further = static_cast<std::int64_t>(models > 0 ? models - 1 : 0);
  const double bytes = static_cast<double>(file_bytes < kMostBytes ? file_bytes : kMostBytes);
  return timeout + further * (timeout / kPartOfFurther) +
         from_seconds(bytes / kLeastBytesPerSecond);
}

}  // namespace gpulet
