// ApplicationRunner: runs requests for applications. It calls each model as soon as its inputs are
// available, joins the results, and gives one reply: all outputs, the first failure of a node, or
// none if the client disconnected.
//
// The runner returns the calls to make, and its caller reports their results. The deadline of a
// call is the part of the remaining time that the objective split gives its stage. Tensors are
// shared between nodes, not copied, and released after their last reader. The applications may be
// replaced at any time; runs in progress keep their graph. Pure; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gpulet/base/bytes.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "gpulet/core/request.h"
#include "gpulet/observe/histogram.h"
#include "gpulet/observe/trace.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/serve/values/application.h"
#include "gpulet/serve/values/frontend_status.h"
#include "serve/deploy/demands.h"
#include "serve/dispatch/deadlines.h"

namespace gpulet::serve {

// Call the model, then pass the result to ApplicationRunner::answered() with this id.
struct ModelToCall {
  std::uint64_t id = 0;
  std::string model;
  Time deadline{};
  Bytes input;
  std::uint32_t priority = 0;  // of the application request
};
// The result of this call is no longer needed; if it is still queued, it need not be made.
struct CallCancelled {
  std::uint64_t id = 0;
  std::string model;
};
struct ApplicationReply {
  ClientId client;
  InferReply reply;
  observe::RequestTraceRecord record;
};

struct ApplicationOutput {
  std::vector<ModelToCall> calls;
  std::vector<StepToRun> steps;
  std::vector<CallCancelled> cancelled;
  std::vector<ApplicationReply> answers;
};

class ApplicationRunner {
 public:
  // `max_runs`: the most runs of each application at a time. Others are refused with overloaded.
  explicit ApplicationRunner(std::size_t max_runs) : max_runs_(max_runs) {}

  // Replaces all applications. An application whose name stays keeps its counters.
  void replace(const ApplicationList& applications, Time now);
  // Another after each replace().
  [[nodiscard]] std::uint64_t revision() const { return revision_; }
  [[nodiscard]] std::vector<std::shared_ptr<const Application>> all() const;
  // Null if there is no application of that name.
  [[nodiscard]] std::shared_ptr<const Application> find(std::string_view name) const;

  struct Request {
    ClientId client;
    std::uint64_t tag = 0;
    Time deadline{};    // of all calls
    Time late_after{};  // a later reply counts as late; at most the deadline
    Bytes payload;
    RequestId id{};
    std::shared_ptr<const void> permit{};  // gpulet::Request::permit
    Time answer_by = kNever;               // reply with too_late then
    std::uint32_t priority = 0;            // of all calls
  };
  // REQUIRES (both): find(name) is not null; the payload has the size of its inputs.
  void start(const std::string& name, Request request, Time now, ApplicationOutput& out);
  // Replies at once with that status and counts it.
  void refuse(const std::string& name, Request request, Status status, Time now,
              ApplicationOutput& out);

  struct CallResult {
    Status status;
    std::vector<Bytes> outputs;  // in the model's order
    Duration executed{};
    std::uint32_t batch_size = 0;
  };
  // The results of calls and steps. The id of a run that ended is ignored.
  void answered(std::uint64_t id, CallResult result, Time now, ApplicationOutput& out);
  void step_done(std::uint64_t id, Result<std::vector<Tensor>> outputs, Time now,
                 ApplicationOutput& out);
  // Replies with too_late to the runs whose `answer_by` has passed, and cancels their calls.
  void answer_overdue(Time now, ApplicationOutput& out);
  // When to call answer_overdue() next, or kNever.
  [[nodiscard]] Time next_wake() const { return deadlines_.next(); }
  // Ends the runs of a client that disconnected, without replies.
  void client_gone(ClientId client, ApplicationOutput& out);

  // Closes an interval of the rate monitors.
  void tick(Time now);

  [[nodiscard]] bool idle() const { return runs_.empty(); }

  struct Row {
    std::shared_ptr<const Application> application;
    double rate_seen = 0;
    std::size_t runs = 0;
    ModelCounters counters;
    observe::Histogram latencies;  // of successful runs
    ModelStatistics statistics;
    RecentOutcomes outcomes;
  };
  // Up to `most` applications with names after `after`, by name.
  [[nodiscard]] std::vector<Row> rows(
      Time now, const std::string& after = {},
      std::size_t most = std::numeric_limits<std::size_t>::max()) const;
  // Empty if there is no application of that name.
  [[nodiscard]] std::optional<Row> row(const std::string& name, Time now) const;

 private:
  struct Served {
    std::shared_ptr<const Application> application;  // null: replaced, but runs are left
    RateMonitor rate{0, std::chrono::seconds(2)};
    ModelCounters counters;
    ModelStatistics statistics;
    RecentOutcomes outcomes;
    observe::RecentHistogram latency{std::chrono::seconds(10)};
    std::size_t runs = 0;
  };
  [[nodiscard]] static Row row_of(const Served& served, Time now);
  struct NodeState {
    std::size_t missing = 0;  // inputs from nodes that have not ended
    std::size_t readers = 0;  // edges that still need the outputs
    std::vector<Tensor> outputs;
    Duration executed{};  // by models, on the longest path to this node
  };
  struct Run {
    std::shared_ptr<const Application> application;
    Request request;
    Time arrived{};
    std::size_t request_readers = 0;
    std::vector<NodeState> nodes{};
    std::size_t left = 0;                // nodes that have not ended
    std::vector<std::uint64_t> calls{};  // in flight, of models and steps
    std::uint32_t largest_batch = 0;
  };
  struct NodeRef {
    std::uint64_t run = 0;
    std::size_t node = 0;
  };

  [[nodiscard]] Tensor read(Run& run, const config::TensorSource& source) const;
  void begin(std::uint64_t run_id, Run& run, std::size_t node, Time now, ApplicationOutput& out);
  // Ends a node: begins the nodes that lacked only its outputs, and replies after the last one.
  void complete(const NodeRef& node, std::vector<Tensor> outputs, Duration executed, Time now,
                ApplicationOutput& out);
  void fail(const NodeRef& node, const Status& why, Time now, ApplicationOutput& out);
  void succeed(std::uint64_t run_id, Time now, ApplicationOutput& out);
  void answer_overdue(std::uint64_t run_id, Time now, ApplicationOutput& out);
  // Erases the run and cancels its calls.
  void end(std::uint64_t run_id, ApplicationOutput& out);
  // Removes a call or step from those in flight. Returns false if it is not in flight.
  [[nodiscard]] bool take(std::uint64_t id, NodeRef& node);
  static void count(Served& served, const Status& failure, Duration after, Time now);
  // Answers with the failure and counts it.
  static void reply_with(Status failure, const Run& run, Served& served, Time now,
                         ApplicationOutput& out);
  [[nodiscard]] static observe::RequestTraceRecord record_of(const Run& run, StatusCode outcome,
                                                             Time now);

  std::size_t max_runs_;
  std::map<std::string, Served, std::less<>> served_;
  std::map<std::uint64_t, Run> runs_;
  Deadlines<std::uint64_t> deadlines_;                    // of runs_
  std::unordered_map<std::uint64_t, NodeRef> in_flight_;  // calls and steps by id
  std::uint64_t next_id_ = 1;                             // of calls, steps and runs
  std::uint64_t revision_ = 0;
};

}  // namespace gpulet::serve
