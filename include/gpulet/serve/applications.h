// Applications: the runs of application graphs that are under way. A run calls models as soon as
// their inputs are there, joins what they answer and is answered once itself: with all outputs, or
// with the first failure of any of its nodes, or not at all where its client went away.
//
// It does no call itself: it says which to make, and is told what came of them. Each call gets a
// deadline of its own: of the time that the run has left, the part that the division of the
// objective (application_objective.h) gives the stage. Tensors are shared, not copied, where one
// model's output is another's input; what no node will read any more is let go of. The applications
// may be replaced at any time: runs end with the graph they began with. Pure: time comes in, calls
// and answers go out. One thread at a time.
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
#include <variant>
#include <vector>

#include "gpulet/core/ids.h"
#include "gpulet/core/request.h"
#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/observe/histogram.h"
#include "gpulet/observe/trace.h"
#include "gpulet/serve/application.h"
#include "gpulet/serve/application_steps.h"
#include "gpulet/serve/deadlines.h"
#include "gpulet/serve/dispatcher.h"
#include "gpulet/serve/messages.h"
#include "gpulet/serve/rate_monitor.h"
#include "gpulet/serve/statistics.h"

namespace gpulet::serve {

// A model is to be asked; the answer goes to Applications::answered under the same id.
struct ModelToCall {
  std::uint64_t id = 0;
  std::string model;
  Time deadline{};
  Bytes input;
  std::uint32_t priority = 0;  // of whoever asked for the application
};
// A step is to be run (run_step); its outputs go to Applications::step_done under the same id.
struct StepToRun {
  std::uint64_t id = 0;
  config::Step step;
  std::vector<Tensor> inputs;
};
// A call that nobody waits for any more: where it is still queued it need not be made.
struct CallWithdrawn {
  std::uint64_t id = 0;
  std::string model;
};
struct ApplicationAnswer {
  ClientId client;
  InferReply reply;
  observe::RequestTraceRecord record;
};

struct ApplicationOutput {
  std::vector<ModelToCall> calls;
  std::vector<StepToRun> steps;
  std::vector<CallWithdrawn> withdrawn;
  std::vector<ApplicationAnswer> answers;
};

class Applications {
 public:
  // `max_runs` of each application at a time; more are answered with overloaded.
  explicit Applications(std::size_t max_runs) : max_runs_(max_runs) {}

  // The applications there are from now on. Counters of one whose name stays go on.
  void replace(const ApplicationList& applications, Time now);
  // nullptr: there is none of that name.
  [[nodiscard]] std::shared_ptr<const Application> find(std::string_view name) const;

  struct Asked {
    ClientId client;
    std::uint64_t tag = 0;
    Time deadline{};    // of all calls
    Time late_after{};  // an answer behind it counts as late; at most the deadline
    Bytes payload;
    RequestId id{};
    std::shared_ptr<const void> place{};  // as Request's
    Time answer_by = kNever;     // the last moment for an answer: then it is answered too_late
    std::uint32_t priority = 0;  // of all calls
  };
  // REQUIRES (both): find(name) is one, the payload has the size of its inputs.
  void start(const std::string& name, Asked asked, Time now, ApplicationOutput& out);
  // Answers at once with that status, counted as the application's.
  void refuse(const std::string& name, const Asked& asked, Status status, Time now,
              ApplicationOutput& out);

  struct Called {
    Status status;
    std::vector<Bytes> outputs;  // of the model, in its order
    Duration executed{};
    std::uint32_t batch_size = 0;
  };
  // What came of a call or a step. Ids of runs that have ended are ignored.
  void answered(std::uint64_t id, Called called, Time now, ApplicationOutput& out);
  void step_done(std::uint64_t id, Result<std::vector<Tensor>> outputs, Time now,
                 ApplicationOutput& out);
  // Answers the runs whose last moment for an answer has passed with too_late, and withdraws their
  // calls.
  void answer_overdue(Time now, ApplicationOutput& out);
  // When answer_overdue() has something to do; kNever: nothing.
  [[nodiscard]] Time next_wake() const { return deadlines_.next(); }
  // Ends the runs of a client that went away, without an answer.
  void client_gone(ClientId client, ApplicationOutput& out);

  // Closes an interval of the request monitors.
  void tick(Time now);

  [[nodiscard]] bool idle() const { return runs_.empty(); }

  struct Row {
    std::shared_ptr<const Application> application;
    double rate_seen = 0;
    std::size_t runs = 0;
    ModelCounters counters;
    observe::Histogram latencies;  // of the whole, of those that were answered
    ModelStatistics statistics;
    RecentOutcomes outcomes;
  };
  // By name: those behind the name `after`, so many at most.
  [[nodiscard]] std::vector<Row> rows(
      Time now, const std::string& after = {},
      std::size_t most = std::numeric_limits<std::size_t>::max()) const;
  // Nothing where there is none of that name.
  [[nodiscard]] std::optional<Row> row(const std::string& name, Time now) const;

 private:
  struct Served {
    std::shared_ptr<const Application> application;  // nullptr: replaced, with runs that go on
    RateMonitor rate{0, std::chrono::seconds(2)};
    ModelCounters counters;
    ModelStatistics statistics;
    RecentOutcomes outcomes;
    observe::RecentHistogram latency{std::chrono::seconds(10)};
    std::size_t runs = 0;
  };
  [[nodiscard]] static Row row_of(const Served& served, Time now);
  struct NodeState {
    std::size_t missing = 0;  // inputs whose node has not ended
    std::size_t readers = 0;  // who will ask for its outputs
    std::vector<Tensor> outputs;
    Duration executed{};  // on the longest way to here, by models
  };
  struct Run {
    std::shared_ptr<const Application> application;
    RequestId id;
    ClientId client;
    std::uint64_t tag = 0;
    Time arrived{};
    Time deadline{};
    Time late_after{};
    Time answer_by = kNever;
    Bytes request;
    std::size_t request_readers = 0;
    std::vector<NodeState> nodes;
    std::size_t left = 0;              // nodes that have not ended
    std::vector<std::uint64_t> calls;  // under way, of models and steps
    std::uint32_t largest_batch = 0;
    std::uint32_t priority = 0;
    std::shared_ptr<const void> place;  // as Request's
  };
  struct Place {
    std::uint64_t run = 0;
    std::size_t node = 0;
  };

  [[nodiscard]] Tensor read(Run& run, const config::TensorSource& source) const;
  void begin(std::uint64_t run_id, Run& run, std::size_t node, Time now, ApplicationOutput& out);
  // Ends a node: starts those that waited for it alone, and answers where it was the last.
  void complete(const Place& place, std::vector<Tensor> outputs, Duration executed, Time now,
                ApplicationOutput& out);
  void fail(const Place& place, const Status& why, Time now, ApplicationOutput& out);
  void succeed(std::uint64_t run_id, Time now, ApplicationOutput& out);
  void answer_overdue(std::uint64_t run_id, Time now, ApplicationOutput& out);
  // Forgets the run and withdraws its calls.
  void end(std::uint64_t run_id, ApplicationOutput& out);
  // The place that the id stands for, taken out of what is under way; its run's, too.
  [[nodiscard]] bool take(std::uint64_t id, Place& place);
  static void count(Served& served, const Status& failure, Duration after, Time now);
  // One that has not begun.
  [[nodiscard]] static Run run_of(std::shared_ptr<const Application> application,
                                  const Asked& asked, Time now);
  // Of a run that is answered now.
  [[nodiscard]] static observe::RequestTraceRecord record_of(const Run& run, StatusCode outcome,
                                                             Time now);

  std::size_t max_runs_;
  std::map<std::string, Served, std::less<>> served_;
  std::map<std::uint64_t, Run> runs_;
  Deadlines<std::uint64_t> deadlines_;                  // of runs_
  std::unordered_map<std::uint64_t, Place> under_way_;  // calls and steps by id
  std::uint64_t next_id_ = 1;                           // of calls, steps and runs
};

}  // namespace gpulet::serve
