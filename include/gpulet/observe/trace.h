// Records of single requests, and the documents that show them to other programs: the trace event
// format, which Perfetto and chrome://tracing open, and the two per-request logs that the analysis
// scripts of the original gpulet system read (docs/tracing.md). Pure; any thread.
//
// A busy frontend holds a hundred thousand records, and their document has tens of megabytes.
// Therefore records are passed in immutable chunks, and documents are written part by part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "gpulet/core/request.h"

namespace gpulet::observe {

struct RequestTraceRecord {
  RequestId id;
  std::string model;         // the model or the application
  bool application = false;  // an application as a whole; its model calls have their own records
  ClientId client;           // kEngine: an application's call of a model
  std::uint64_t tag = 0;     // the client's number for the request
  RequestTrace trace;
  Time due{};  // a later response counts as late
  StatusCode outcome = StatusCode::ok;
  // The gpulet of the last batch that held the request. `node` is empty if the request was in no
  // batch, or if the gpulet no longer exists.
  std::string node;
  std::uint32_t device = 0;
  Share share;

  [[nodiscard]] bool late() const { return trace.answered > due; }
};

// The consecutive stages of a request that got a result. Between the dispatch of a batch and its
// result only totals are known: the time that was neither wait nor execution is divided equally
// between the two directions of transfer.
struct RequestStages {
  Duration queue{};      // in the frontend's queue
  Duration transfer{};   // to the gpulet
  Duration wait{};       // at the gpulet, for earlier batches
  Duration execution{};  // of the batch
  Duration answer{};     // from the gpulet to the response

  [[nodiscard]] Duration all() const { return queue + transfer + wait + execution + answer; }
};
// The stages add up to the time from arrival to response, whatever the trace holds.
[[nodiscard]] RequestStages stages_of(const RequestTrace& trace);

using TraceChunk = std::shared_ptr<const std::vector<RequestTraceRecord>>;  // never null
using TraceRecords = std::vector<TraceChunk>;

// A document that is produced part by part. One thread at a time.
class TraceDocument {
 public:
  TraceDocument() = default;
  virtual ~TraceDocument() = default;
  TraceDocument(const TraceDocument&) = delete;
  TraceDocument& operator=(const TraceDocument&) = delete;

  // The next part, at least kTracePartBytes long except for the last one. Empty at the end.
  [[nodiscard]] virtual std::string next() = 0;
};
inline constexpr std::size_t kTracePartBytes = 128U << 10U;

// A trace event document with one process for the frontend and one for each gpulet, each with one
// track per model. A request appears in the process of its gpulet and contains its stages; batch
// executions are slices of the track. Time 0 is the first arrival. `records` may be in any order.
[[nodiscard]] std::unique_ptr<TraceDocument> chrome_trace(TraceRecords records);

// The wall-clock time `since_epoch` (1970, UTC) at the engine's time `engine`.
struct WallClock {
  Time engine{};
  Duration since_epoch{};
};

// CSV rows by time of response, durations in milliseconds; a request without a result has -1 as its
// ids.
//   timestamp,task,BatchID,ReqID,deviceID,QUEUEING_DELAY,WAIT_EXEC,BATCH_LAT,EXEC,TO
//   CMPQ,CMPQ_WRITE
[[nodiscard]] std::unique_ptr<TraceDocument> model_log(TraceRecords records, const WallClock& wall);
//   timestamp,task,TaskID,REQ_TO_EXEC,EXEC
[[nodiscard]] std::unique_ptr<TraceDocument> application_log(TraceRecords records,
                                                             const WallClock& wall);

}  // namespace gpulet::observe
