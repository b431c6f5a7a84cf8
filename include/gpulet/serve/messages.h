// The vocabulary between the processes, as plain values. net/codec puts them on the wire
// (proto/README.md) and the engine's cores consume and produce them. Durations are relative: clocks
// of two machines are not compared.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gpulet/core/bytes.h"
#include "gpulet/core/ids.h"
#include "gpulet/core/request.h"
#include "gpulet/core/share.h"
#include "gpulet/core/status.h"
#include "gpulet/core/tensor.h"
#include "gpulet/core/time.h"
#include "gpulet/schedule/cluster.h"
#include "gpulet/schedule/reconcile.h"

namespace gpulet::serve {

// ---- client <-> frontend

struct InferRequest {
  std::uint64_t tag = 0;  // the client's own number, unique among its requests in flight
  std::string model;
  Duration timeout{};              // zero: the model's SLO
  std::vector<TensorSpec> inputs;  // in the model's order; an empty name matches any
  Bytes payload;                   // the inputs one after another
};

struct InferReply {
  std::uint64_t tag = 0;
  Status status;
  std::vector<TensorSpec> outputs;  // empty unless ok
  std::vector<Bytes> payload;       // one per output
  Duration queued{};                // at the frontend and the backend, before execution
  Duration executed{};
  std::uint32_t batch_size = 0;
};

struct ModelsRequest {};
struct ModelInfo {
  std::string name;
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  double slo_ms = 0;
  std::uint32_t max_batch = 0;
};
struct ModelsReply {
  std::vector<ModelInfo> models;
};

struct StatusRequest {};
struct StatusReply {
  std::string json;  // docs/status.md
};

using ClientMessage = std::variant<InferRequest, ModelsRequest, StatusRequest>;
using FrontendReply = std::variant<InferReply, ModelsReply, StatusReply>;

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

struct GpuletReport {
  GpuletId id;
  std::uint32_t device = 0;
  Share size;
  std::vector<schedule::LoadedModel> models;
  GpuletState state = GpuletState::preparing;
  Status status;  // why failed or restarting
};

struct DeviceOffer {
  schedule::Device device;
  std::string mechanism;  // what holds its shares
};

// First message on a connection. A backend whose frontend came back tells of the gpulets that still
// run.
struct Hello {
  std::string node;
  std::vector<DeviceOffer> devices;
  std::vector<GpuletReport> gpulets;
};

struct ModelWanted {   // the backend lacks this file
  std::string sha256;  // lower-case hex
};

struct Heartbeat {};

using BackendMessage = std::variant<Hello, GpuletReport, BatchResult, ModelWanted, Heartbeat>;

// ---- frontend -> backend

struct Welcome {
  Duration heartbeat_every{};  // both sides; a peer silent for four of them is gone
};

struct ModelToServe {
  std::string name;
  std::string sha256;  // of the model file
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  std::uint32_t max_batch = 1;
};

struct CreateGpulet {
  GpuletId id;
  std::uint32_t device = 0;
  Share size;
  std::vector<ModelToServe> models;
};

struct RetireGpulet {  // finish what it holds, then end it
  GpuletId id;
};

// A piece of a model file; pieces of one file come in order. total_bytes 0: the frontend does not
// have it.
struct ModelPiece {
  std::string sha256;
  std::uint64_t offset = 0;
  std::uint64_t total_bytes = 0;
  Bytes data;
};

using BackendCommand =
    std::variant<Welcome, CreateGpulet, RetireGpulet, Batch, ModelPiece, Heartbeat>;

// ---- backend <-> proxy (Unix socket; tensors are in shared memory)

struct LoadModel {
  std::string name;
  std::string file;
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  std::uint32_t max_batch = 1;
};

struct LoadModels {  // first message to a proxy
  std::vector<LoadModel> models;
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

struct ProxyReady {
  Status status;                   // of loading everything
  std::uint64_t memory_bytes = 0;  // resident, once loaded
};

struct BatchRan {
  BatchId id;
  Status status;
  std::uint64_t output_bytes = 0;
  Duration queued{};  // in the proxy
  Duration executed{};
};

using ProxyMessage = std::variant<ProxyReady, BatchRan>;

}  // namespace gpulet::serve
