// What became of single requests, and when, as files that others read: a document of the trace
// event format, which Perfetto and chrome://tracing open, and the two per-request logs that the
// analysis scripts of the original gpulet system read (docs/tracing.md). Pure; any thread.
//
// A busy frontend has a hundred thousand records, whose document has tens of megabytes. So records
// are handed over in chunks that nobody changes any more, and documents are written part by part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gpulet/core/ids.h"
#include "gpulet/core/request.h"
#include "gpulet/core/share.h"
#include "gpulet/core/status.h"
#include "gpulet/core/time.h"

namespace gpulet::observe {

struct RequestTraceRecord {
  RequestId id;
  std::string model;         // or application
  bool application = false;  // the whole of one; its calls have records of their own
  ClientId client;           // kEngine: a call of an application
  std::uint64_t tag = 0;     // the client's number
  RequestTrace trace;
  Time due{};  // an answer behind it is late
  StatusCode outcome = StatusCode::ok;
  // Of the gpulet that it was last sent to; no node: it was sent to none, or that one is gone.
  std::string node;
  std::uint32_t device = 0;
  Share share;

  [[nodiscard]] bool late() const { return trace.answered > due; }
};

// The stages of a request that was answered with a result, one after another. Only sums are known
// of what happens between sending a batch and its result: what was neither waiting nor execution is
// taken for the ways there and back, in equal parts.
struct RequestStages {
  Duration queue{};      // at the frontend
  Duration transfer{};   // to the gpulet
  Duration wait{};       // there, for the batches before
  Duration execution{};  // of its batch
  Duration answer{};     // back, until the answer was given

  [[nodiscard]] Duration all() const { return queue + transfer + wait + execution + answer; }
};
// They add up to the time from arrival to answer, whatever the trace holds.
[[nodiscard]] RequestStages stages_of(const RequestTrace& trace);

using TraceChunk = std::shared_ptr<const std::vector<RequestTraceRecord>>;  // never null
using TraceRecords = std::vector<TraceChunk>;

// A document that is written part by part. One thread at a time.
class TraceText {
 public:
  TraceText() = default;
  virtual ~TraceText() = default;
  TraceText(const TraceText&) = delete;
  TraceText& operator=(const TraceText&) = delete;

  // The next part, kTracePartBytes long or somewhat longer; the last one may be shorter. Empty: it
  // is over.
  [[nodiscard]] virtual std::string next() = 0;
};
inline constexpr std::size_t kTracePartBytes = 128U << 10U;

// One process for the frontend and one for each gpulet, in them one track per model. A request lies
// with the gpulet that served it, with its stages in it; the executions of batches are slices of
// the track itself. Time 0 is the first arrival. `records` may be in any order.
[[nodiscard]] std::unique_ptr<TraceText> chrome_trace(TraceRecords records);

// What the clock on the wall showed, since 1970 (UTC), when the engine's showed `engine`.
struct WallClock {
  Time engine{};
  Duration since_epoch{};
};

// Rows by time of answer, durations in milliseconds; a request without a result has -1 for its ids.
//   timestamp,task,BatchID,ReqID,deviceID,QUEUEING_DELAY,WAIT_EXEC,BATCH_LAT,EXEC,TO
//   CMPQ,CMPQ_WRITE
[[nodiscard]] std::unique_ptr<TraceText> model_log(TraceRecords records, const WallClock& wall);
//   timestamp,task,TaskID,REQ_TO_EXEC,EXEC
[[nodiscard]] std::unique_ptr<TraceText> application_log(TraceRecords records,
                                                         const WallClock& wall);

}  // namespace gpulet::observe
