// TraceSampler chooses the requests that are traced. ResponseWriter turns the Dispatcher's output
// into effects: batches for backends, replies for clients, traces; and it keeps the answers to
// applications' calls for the ApplicationGateway. Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "gpulet/observe/trace.h"
#include "gpulet/serve/values/frontend_events.h"
#include "serve/deploy/backend_registry.h"
#include "serve/deploy/entries.h"
#include "serve/dispatch/dispatch_output.h"
#include "serve/dispatch/model_queues.h"
#include "serve/dispatch/owner_figures.h"

namespace gpulet::serve {

// Samples every Nth request, and all requests of a time window.
class TraceSampler {
 public:
  explicit TraceSampler(std::uint32_t every) : every_(every) {}  // 0: off

  void sample_every(std::uint32_t every) { every_ = every; }
  // Samples all requests that arrive in [from, until). Replaces the previous window.
  void sample_window(Time from, Time until) {
    from_ = from;
    until_ = until;
  }
  // The next request's number, from 1 on.
  [[nodiscard]] RequestId next_id() { return RequestId{++last_}; }
  [[nodiscard]] bool samples(RequestId id, Time arrived) const {
    return (every_ > 0 && id.value % every_ == 0) || (arrived >= from_ && arrived < until_);
  }

 private:
  std::uint32_t every_;
  std::uint64_t last_ = 0;
  Time from_{};
  Time until_{};
};

// Fails with internal unless the reply of another frontend is what a model with these outputs can
// answer: their number, names, types, shapes and sizes, and the elements of BYTES tensors. The
// receiver reads a reply by its own description of the model, which the other one may not share.
[[nodiscard]] Status check_forwarded(const InferReply& reply,
                                     const std::vector<TensorSpec>& outputs);

class ResponseWriter {
 public:
  // All outlive it.
  ResponseWriter(const ModelQueues& queues, const BackendRegistry& backends,
                 const TraceSampler& traces, OwnerFigures& figures, Entries& entries)
      : queues_(queues),
        backends_(backends),
        traces_(traces),
        figures_(figures),
        entries_(entries) {}

  void write(DispatchOutput&& output, FrontendEffects& effects);

  // The reply of another frontend to a request that was forwarded to it.
  // REQUIRES: check_forwarded() accepts it.
  void write_forwarded(Request&& request, InferReply&& reply, FrontendEffects& effects);

  // Answers to calls of applications (client kEngine), oldest first.
  [[nodiscard]] std::deque<Answer>& call_answers() { return call_answers_; }

 private:
  [[nodiscard]] observe::RequestTraceRecord record_of(const Answer& answer) const;
  void write_batch(BatchToSend&& sent, FrontendEffects& effects);

  const ModelQueues& queues_;
  const BackendRegistry& backends_;
  const TraceSampler& traces_;
  OwnerFigures& figures_;
  Entries& entries_;
  std::deque<Answer> call_answers_;
};

}  // namespace gpulet::serve
