// The messages between backend and proxy, over a Unix socket, as plain values. Tensors are in
// memory that both share. protocol/codec.h converts them (wire format: proto/README.md).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/core/failure.h"
#include "gpulet/core/ids.h"
#include "gpulet/core/request.h"
#include "gpulet/core/tensor.h"
#include "gpulet/partition/traits.h"

namespace gpulet {

// The first message to a proxy. It binds a process of the warm pool to a gpulet.
struct LoadModels {
  std::vector<ModelToLoad> models;
  std::map<std::string, std::string> environment{};  // the share's, added to the process's own
  std::uint64_t memory_bytes = 0;                    // size of the memory shared with the backend
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
  bool synthetic = false;  // nothing was written to the input: the proxy fills it with zeros
};

// Lets the proxy finish the batches sent before, then exit with status 0.
struct StopProxy {};

using ProxyCommand = std::variant<LoadModels, RunBatch, StopProxy>;

// The process has started and waits for LoadModels.
struct ProxyIdle {};

struct ProxyReady {
  Status status;                          // of loading all models
  std::uint64_t memory_bytes = 0;         // resident, once loaded
  std::vector<std::uint32_t> variants{};  // beside the models, for ModelToLoad::variant
  partition::FoundShare found{};
  partition::DeviceHealth device = partition::DeviceHealth::works;  // where the status is not ok
  FailureCause cause = FailureCause::unknown;                       // where the status is not ok
  std::string failed_model{};  // the model that did not load; empty: none
  partition::LoadStages load_stages{};
  partition::ProcessCondition condition{};
};

struct BatchRan {
  BatchId id;
  Status status;
  std::uint64_t output_bytes = 0;
  Duration queued{};  // in the proxy
  Duration executed{};
  partition::DeviceHealth device = partition::DeviceHealth::works;  // where the status is not ok
  FailureCause cause = FailureCause::unknown;                       // input or unknown
  std::string detail{};                                             // as in BatchResult
  std::optional<partition::ProcessCondition> condition{};           // empty: the device knows none
  Duration decoded{};                                               // as in BatchResult
  std::vector<FailedRow> failed{};                                  // as in BatchResult
};

using ProxyMessage = std::variant<ProxyIdle, ProxyReady, BatchRan>;

}  // namespace gpulet
