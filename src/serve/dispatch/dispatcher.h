// Dispatcher: the queues of requests, the gpulets that serve them, and the batches in flight. It
// decides when each batch leaves, and gives every request exactly one answer whatever happens to
// gpulets.
//
// A model with a gpulet of its own gathers its batches (batching/dispatch_policy.h); models that
// share a gpulet take turns. Instances (schedule/policy.h) take one request at a time: those of a
// GPU from the neediest model, those of a CPU from a random one. Beside gpulets with rounds, they
// take only what those cannot serve in time.
//
// Each version of a model is a model of its own here, with an index that is reused after forget().
//
// A request whose deadline passes while its batch runs is answered at once; its result is discarded
// later. Requests under which a process crashed or hung run again one by one, each on a gpulet that
// holds nothing else meanwhile. A gpulet that lost its process takes nothing until set_ready().
//
// Dispatch is pull-based: a gpulet has room for kBatchesInFlight batches (one runs while the next
// is transferred), and each result makes room again. A request or a batch costs time in proportion
// to the number of gpulets of its model and to the logarithm of the number of models of its gpulet.
// Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpulet/base/random.h"
#include "gpulet/batching/dispatch_policy.h"
#include "gpulet/batching/request_queue.h"
#include "gpulet/control/node_control.h"
#include "gpulet/core/ids.h"
#include "gpulet/core/request.h"
#include "gpulet/observe/histogram.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/schedule/plan.h"
#include "gpulet/serve/values/frontend_status.h"
#include "gpulet/serve/values/served_model.h"
#include "serve/dispatch/batches_in_flight.h"
#include "serve/dispatch/deadlines.h"
#include "serve/dispatch/slot_order.h"

namespace gpulet::serve {

inline constexpr std::size_t kBatchesInFlight = 2;
inline constexpr Duration kLatencyWindow = std::chrono::seconds(10);  // of percentiles, at least
// A request is not tried again after this many failed batches: it may be the cause.
inline constexpr std::uint32_t kMaxAttempts = 3;
// Nor after this many crashed or hung processes: under the second one it ran alone.
inline constexpr std::uint32_t kMostCrashes = 2;

// One model's place on a gpulet. execution[n-1]: the expected duration of a batch of n.
struct SlotSpec {
  ModelIndex model = 0;
  std::vector<Duration> execution;
  double rate = 0;  // planned requests per second

  friend bool operator==(const SlotSpec&, const SlotSpec&) = default;
};

struct GpuletRoute {
  GpuletId gpulet;
  BackendId backend;
  Duration duty_cycle{};
  std::vector<SlotSpec> slots;
  schedule::Service service = schedule::Service::rounds;
  // Processes of one model in a MIG instance, whose batches start in turns: how many, and a number
  // that only they have.
  std::uint32_t processes = 1;
  std::uint64_t instance = 0;

  friend bool operator==(const GpuletRoute&, const GpuletRoute&) = default;
};

// The answer to one request.
struct Answer {
  Request request;
  ModelIndex model = 0;
  Status status;
  std::vector<Bytes> outputs;
};

struct BatchToSend {
  BackendId backend;
  Batch batch;
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
  std::vector<ProcessLost> lost{};  // FailureCause model_crash or hung
  std::optional<BatchRun> ran{};
  std::optional<BatchFailed> failed{};
};

class Dispatcher {
 public:
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;
  // Batches are numbered from `first_batch` on, beyond those of earlier runs of the frontend.
  Dispatcher(std::vector<ServedModel> models, std::uint32_t max_queue_per_model,
             BatchId first_batch, const control::Options& control = {});

  // ---- models

  // The models of the constructor have the indices 0, 1, ...
  ModelIndex add(ServedModel model);
  // The SLO, rate, largest batch, queue rules or description of the version changed.
  void change(ModelIndex model, ServedModel changed);
  // `heir`, a new version of the model, takes over the counters and, if both have the same tensors,
  // the waiting requests. Otherwise these are answered, now or when they come back.
  void succeed(ModelIndex model, ModelIndex heir, Time now, DispatchOutput& out);
  // No gpulet will serve it any more: answers its requests with `why`, now or when they come back.
  void close(ModelIndex model, const Status& why, Time now, DispatchOutput& out);
  // Sends waiting requests to its gpulets at once, as far as they have room.
  void flush(ModelIndex model, Time now, DispatchOutput& out);
  // No gpulet has a slot for it, and no request waits or is in flight.
  [[nodiscard]] bool unused(ModelIndex model) const;
  // Frees its index. REQUIRES: unused.
  void forget(ModelIndex model);

  // ---- gpulets

  // Puts the routes in force in one step. Gpulets without a route take no new batch and finish what
  // they hold. Gpulets stay ready or not ready; new ones are ready.
  void set_routes(const std::vector<GpuletRoute>& routes, Time now);
  // Whether a gpulet takes batches (its proxy may be restarting).
  void set_ready(GpuletId gpulet, bool ready, Time now);
  // The gpulet is gone. Its requests go back to the queues, or are answered if they cannot.
  void remove(GpuletId gpulet, Time now, DispatchOutput& out);

  // The expected duration of one request on the instance from now on.
  void set_expected(GpuletId instance, Duration expected);

  // Some gpulet has a slot for it; some gpulet that takes batches now has one.
  [[nodiscard]] bool has_slot(ModelIndex model) const {
    return !queue_of(model).candidates.empty();
  }
  [[nodiscard]] bool has_ready_slot(ModelIndex model) const;
  // Only instances have slots for it, and at least one has.
  [[nodiscard]] bool only_instances(ModelIndex model) const;
  [[nodiscard]] std::size_t in_flight(GpuletId gpulet) const;
  // The expected durations of the gpulet's slot for the model; empty where it has none.
  [[nodiscard]] std::vector<Duration> execution(GpuletId gpulet, ModelIndex model) const;

  // ---- requests

  // Queues the request, or answers it at once with overloaded.
  void enqueue(ModelIndex model, Request&& request, Time now, DispatchOutput& out);
  // Answers the request at once with that status, and counts it.
  void refuse(ModelIndex model, Request&& request, Status status, DispatchOutput& out);
  void completed(const BatchResult& result, Time now, DispatchOutput& out);
  // The number of a batch that carries no request (serve/adapt/probes.h).
  [[nodiscard]] BatchId take_batch_id() { return batches_.take_id(); }
  [[nodiscard]] const BatchesInFlight& batches() const { return batches_; }
  // The name of the model of a batch in flight. Empty: it is not in flight.
  [[nodiscard]] std::string_view model_of(BatchId batch) const;
  // The backend that holds the batch. Empty: none does.
  [[nodiscard]] std::optional<BackendId> holder_of(BatchId batch) const;
  // Forgets the waiting requests of a client that disconnected.
  void client_gone(ClientId client);
  // Forgets one request if it still waits.
  void withdraw(ModelIndex model, ClientId client, std::uint64_t tag);
  // Answers all waiting requests of the model with that status.
  void refuse_waiting(ModelIndex model, const Status& status, Time now, DispatchOutput& out);

  // Removes and returns the waiting requests of models that fulfil the predicate, each with its
  // model, without an answer: another frontend serves them.
  [[nodiscard]] std::vector<std::pair<ModelIndex, Request>> take_waiting(
      const std::function<bool(ModelIndex)>& of);

  // Why no gpulet can become available, to answer requests at their deadline. ok: one may.
  void set_absence(Status why) { absence_ = std::move(why); }

  // Sends due batches and drops hopeless requests. Call it after events and at next_wake().
  void pump(Time now, DispatchOutput& out);
  // When pump() is due without a further event.
  [[nodiscard]] Time next_wake() const;

  // ---- statistics

  [[nodiscard]] const std::vector<ServedModel>& models() const { return models_; }
  [[nodiscard]] std::size_t queued(ModelIndex model) const {
    return queue_of(model).requests.size() + queue_of(model).suspects.size();
  }
  // These four include the previous versions.
  [[nodiscard]] const ModelCounters& counters(ModelIndex model) const {
    return queue_of(model).counters;
  }
  [[nodiscard]] const ModelStatistics& statistics(ModelIndex model) const {
    return queue_of(model).statistics;
  }
  [[nodiscard]] observe::Histogram latencies(ModelIndex model, Time now) const {
    return queue_of(model).latency.recent(now);
  }
  [[nodiscard]] const RecentOutcomes& outcomes(ModelIndex model) const {
    return queue_of(model).outcomes;
  }
  // RecentPace of the batches of the model's rounds.
  [[nodiscard]] double pace(ModelIndex model, Time now) const {
    return queue_of(model).pace.pace(now);
  }
  // The same for all batches of a gpulet.
  [[nodiscard]] double pace(GpuletId gpulet, Time now) const;
  // The response times since the last call, of a model with instances. A dropped request counts
  // with at least twice the objective.
  [[nodiscard]] Responses::Period take_period(ModelIndex model);
  // The mean age of the requests that wait or are in flight; zero without any.
  [[nodiscard]] Duration mean_age(ModelIndex model, Time now) const;
  // No request waits or is in flight.
  [[nodiscard]] bool idle() const;

  [[nodiscard]] GpuletStatistics statistics(GpuletId gpulet) const;

 private:
  struct ModelSlot;
  struct Gpulet;
  struct Candidate {  // a gpulet with a slot for the model; both are in gpulets_
    GpuletId id;
    Gpulet* gpulet = nullptr;
    ModelSlot* slot = nullptr;
  };
  struct ModelQueue {
    batching::PendingRequests requests;
    batching::DeadlineQueue suspects;   // each runs alone
    std::string lost;                   // why the last of them became a suspect
    std::vector<Candidate> candidates;  // sorted by the gpulet's id, or in_turn
    std::size_t room = 0;               // sum of the largest batches of the ready ones
    bool in_turn = false;               // some are processes of one MIG instance
    batching::RateSplit split;          // over the ready ones with rounds
    std::size_t in_flight = 0;          // batches
    ModelIndex counted_as = 0;          // itself, or the version that replaced it
    std::vector<ModelIndex> before;     // versions that are counted as this one
    std::optional<ModelIndex> heir;     // takes requests that come back
    Status closed;                      // why none does; ok: its own gpulets may
    ModelCounters counters;
    ModelStatistics statistics;
    observe::RecentHistogram latency{kLatencyWindow};
    RecentOutcomes outcomes;
    RecentPace pace;
    std::optional<Responses> responses;  // since it first had an instance
    bool touched = false;  // a request arrived or a gpulet made room since the last pump
    bool listed = false;   // in waiting_
  };
  struct ModelSlot {
    ModelIndex model = 0;
    std::vector<Duration> execution;
    Time turn{};
    batching::RateSplit::Slot part;
  };
  struct Gpulet {
    BackendId backend;
    Duration duty_cycle{};
    std::vector<ModelSlot> slots;  // empty: it has no route any more
    // With several slots and rounds: those with waiting requests. `turns` and `yielding`: by their
    // turn; the latter leave it to others unless the gpulet is idle (reorder). `latest_starts`:
    // by the latest start of a batch that serves the earliest request in time.
    SlotOrder turns;
    SlotOrder yielding;
    SlotOrder latest_starts;
    Duration longest{};  // of the slots' executions
    bool due = false;    // listed in due_
    Time wake = kNever;  // its earliest entry in gpulet_wakes_
    bool ready = true;
    std::size_t in_flight = 0;
    Duration expected{};  // sum over its batches
    Time busy_until{};    // predicted end of its batches
    batching::Allowance allowance;
    GpuletStatistics statistics;
    RecentPace pace;
    schedule::Service service = schedule::Service::rounds;
    std::uint32_t processes = 1;  // as in GpuletRoute
    std::uint64_t instance = 0;
    std::size_t last_slot = 0;  // by_need: the slot that had the last turn
    bool reserved = false;      // for a suspect: takes nothing else until it holds nothing
  };
  template <typename Of>
  using Wakes =
      std::priority_queue<std::pair<Time, Of>, std::vector<std::pair<Time, Of>>, std::greater<>>;

  [[nodiscard]] ModelQueue& queue_of(ModelIndex model) { return *queues_[model]; }
  [[nodiscard]] const ModelQueue& queue_of(ModelIndex model) const { return *queues_[model]; }
  // Requests were added to one of the model's queues.
  void arrived(ModelIndex model);
  // The next pump considers the model and its gpulets, or all models of the gpulet, anew.
  void touch(ModelIndex model);
  void touch(const Gpulet& gpulet);
  // The next pump considers the gpulet anew, because a batch ended or one may leave now.
  void list_due(GpuletId id, Gpulet& gpulet);
  // Updates the orders of the model's gpulets. Call it after a change of its waiting requests, or
  // of the turns, parts or readiness of its slots.
  void reorder(ModelIndex model);
  [[nodiscard]] static bool takes_turns(const Gpulet& gpulet) {
    return gpulet.service == schedule::Service::rounds && gpulet.slots.size() > 1;
  }
  void change_ready(Gpulet& gpulet, bool ready);
  // Divides the model's requests anew among the slots that are ready.
  void split_rate(ModelIndex model);
  void pump_model(ModelIndex model, Time now, DispatchOutput& out);
  // Empty: no request waits that the slot can still serve in time.
  [[nodiscard]] std::optional<batching::SlotView> view_of(const Gpulet& gpulet,
                                                          const ModelSlot& slot, Time now) const;
  // Sends one batch of the gpulet if one is due; otherwise lowers `wake` to the next try.
  bool pump_gpulet(const Candidate& candidate, Time now, Time& wake, DispatchOutput& out);
  bool pump_in_turn(GpuletId id, Gpulet& gpulet, Time now, DispatchOutput& out);
  void pump_due(GpuletId id, Time now, DispatchOutput& out);
  // The slot whose turn it is, with its view; null: none has requests that it can serve.
  [[nodiscard]] std::pair<ModelSlot*, batching::SlotView> next_in_turn(Gpulet& gpulet,
                                                                       Time now) const;
  // Answers the requests whose queue timeout passed, of a model with queue rules.
  void pump_timeouts(ModelIndex model, Time now, Time& wake, DispatchOutput& out);
  // The size of the slot's next batch, at most `wanted`, so that it ends in time.
  [[nodiscard]] std::uint32_t count_in_time(const ModelSlot& slot, const batching::SlotView& view,
                                            std::uint32_t wanted, Time reachable) const;
  [[nodiscard]] Duration time_ahead(const ModelSlot& slot, std::uint32_t count) const;
  void dispatch(GpuletId id, Gpulet& gpulet, ModelSlot& slot, std::uint32_t count, Time now,
                DispatchOutput& out);
  // It can take one more batch.
  static void delay_processes_beside(const Gpulet& gpulet, ModelQueue& state, Time now);
  [[nodiscard]] static bool has_room(const Gpulet& gpulet);
  void send(GpuletId id, Gpulet& gpulet, ModelSlot& slot, std::vector<Request> requests, Time now,
            DispatchOutput& out);
  // Deadlines of batches in flight.
  [[nodiscard]] BatchInFlight take_in_flight(BatchId id);
  void answer_overdue(Time now, DispatchOutput& out);
  void answer_overdue(BatchInFlight& batch, std::size_t index, Time now, DispatchOutput& out);
  // Suspects.
  [[nodiscard]] static bool ended_process(const BatchResult& result);
  void lose_process(const BatchResult& result, Time now, DispatchOutput& out);
  // Runs each request alone. `lost`: the process that ended; null: one request made it fail.
  void suspect(BatchInFlight batch, const ProcessLost* lost, Time now, DispatchOutput& out);
  [[nodiscard]] const Candidate* candidate_for_suspects(ModelIndex model) const;
  void pump_suspects(ModelIndex model, Time now, Time& wake, DispatchOutput& out);
  // Instances.
  void pump_instances(Time now, DispatchOutput& out);
  void pump_by_need(GpuletId id, Gpulet& gpulet, Time now, DispatchOutput& out);
  void pump_controlled(Time now, DispatchOutput& out);
  // The request that a CPU's instance takes from its queue, of those due at `from` or later.
  struct Choice {
    enum class Which : std::uint8_t { none, first, last };
    Which which = Which::none;
    Time from{};
  };
  [[nodiscard]] Choice choice_of(const Candidate& instance, Time now) const;
  // The earliest deadline that a gpulet with rounds can still meet; kNever without one.
  [[nodiscard]] Time reachable_by_rounds(ModelIndex model, Time now) const;
  void record_response(ModelIndex model, const Request& request, const Status& status, Time now);

  void drop_hopeless(ModelIndex model, Time now, DispatchOutput& out);
  // Of all models with a slot of this gpulet, which takes turns.
  void drop_hopeless(const Gpulet& gpulet, Time now, DispatchOutput& out);
  // The earliest deadline that the slot can still meet.
  [[nodiscard]] Time reachable_deadline(const Gpulet& gpulet, const ModelSlot& slot,
                                        Time now) const;
  [[nodiscard]] bool backlogged(ModelIndex model) const;
  // The time of the slot's next batch, as far as it decides which requests can be served in time.
  [[nodiscard]] Duration next_execution(const ModelSlot& slot) const;
  void put_back(BatchInFlight batch, const Status& why, Time now, DispatchOutput& out);
  // The gpulet does not take this frontend's batches (any more).
  void return_elsewhere(BatchInFlight batch, Time now, DispatchOutput& out);
  void release(const BatchInFlight& batch, bool executed, Time now);
  // `times`: of the batch that produced the outputs.
  void answer(ModelIndex model, Request&& request, Status status, std::vector<Bytes> outputs,
              Time now, DispatchOutput& out, const BatchTimes& times = {});
  [[nodiscard]] bool same_tensors(ModelIndex a, ModelIndex b) const;
  // The queue for requests of the model; empty: it is closed.
  [[nodiscard]] std::optional<ModelIndex> queue_for(ModelIndex model) const;

  std::vector<ServedModel> models_;
  std::uint32_t max_queue_;
  // Parallel to models_. By pointer, because queues are large; null: the index is free.
  std::vector<std::unique_ptr<ModelQueue>> queues_;
  std::vector<ModelIndex> free_;  // forgotten
  std::map<GpuletId, Gpulet> gpulets_;
  BatchesInFlight batches_;
  Status absence_;
  Wakes<ModelIndex> wakes_;
  std::vector<Time> scheduled_wake_;  // parallel to models_: its earliest entry in wakes_
  Wakes<GpuletId> gpulet_wakes_;
  std::vector<ModelIndex> touched_;
  std::vector<GpuletId> due_;
  std::vector<ModelIndex> waiting_;  // with waiting requests; some may have none any more
  control::Options control_;
  Random chance_;
  std::vector<GpuletId> by_need_;     // with routes, ascending
  std::vector<GpuletId> controlled_;  // with routes, ascending
  bool instances_due_ = false;        // something changed since they were pumped
};

}  // namespace gpulet::serve
