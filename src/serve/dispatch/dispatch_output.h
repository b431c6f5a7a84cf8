// DispatchOutput: what leaves the queues: batches for backends, answers for clients, and what
// became known of gpulets. Values.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "gpulet/base/bytes.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "gpulet/core/request.h"
#include "gpulet/protocol/messages.h"
#include "serve/dispatch/gpulet_route.h"

namespace gpulet::serve {

// The answer to one request.
struct Answer {
  Request request;
  ModelIndex model = 0;
  Status status;
  std::vector<Bytes> outputs;
};

// Requests of a batch whose payloads the frontend that forwarded them keeps.
struct KeptRows {
  ClientId client;
  std::vector<std::uint64_t> tags;  // in the order of the batch
};

struct BatchToSend {
  BackendId backend;
  Batch batch;                   // without Batch::entries
  std::vector<KeptRows> kept{};  // its last requests
};

// A request without its payload, which did not reach the node: the frontend that keeps it is to
// send it again, with the payload.
struct ReturnedRequest {
  ClientId client;
  std::uint64_t tag = 0;
  bool missing = false;  // the node lacked it (as in BatchResult); false: withdrawn
  Time time{};
};

// A batch that a gpulet with rounds executed.
struct BatchRun {
  GpuletId gpulet;
  ModelIndex model = 0;
  std::uint32_t count = 0;
  Duration executed{};
};

// A batch that failed for no fault of its requests and without the end of its process, or whose
// outputs have the wrong size.
struct BatchFailed {
  GpuletId gpulet;
  ModelIndex model = 0;
  Status why;
};

struct DispatchOutput {
  std::vector<BatchToSend> batches;
  std::vector<Answer> answers;
  std::vector<ReturnedRequest> returned{};
  std::vector<ProcessLost> lost{};  // FailureCause model_crash or hung
  std::optional<BatchRun> ran{};
  std::optional<BatchFailed> failed{};
};

}  // namespace gpulet::serve
