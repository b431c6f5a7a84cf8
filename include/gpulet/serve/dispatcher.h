// Dispatcher: queues of requests, the gpulets that serve them, and the batches in flight. Decides
// which batch leaves when and sees to it that every request gets exactly one answer, whatever
// happens to gpulets. A model that has a gpulet for itself gathers its batches
// (batching/decide.h); models that share one take turns. Executables (schedule/executables.h) take
// one request at a time: a GPU's of the neediest model (batching/need.h), a CPU's of models drawn
// at random; where a model has gpulets with rounds too, its executables take what those cannot
// serve in time.
//
// Models come and go: each version of each is a model of its own here, with an index that is used
// again once it was forgotten.
//
// A request whose deadline passes while its batch runs is answered at once
// (dispatcher_deadlines.cc); its result is thrown away when it comes.
//
// Requests under which a process crashed or hung run again one by one, on a gpulet that holds
// nothing else meanwhile (dispatcher_suspects.cc). A gpulet whose process was lost like this takes
// nothing until set_ready().
//
// Dispatch is pull-based: a gpulet has room for kBatchesInFlight batches (one runs while the next
// is transferred), and each result makes room again. Pure: time comes in, batches and answers go
// out. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <unordered_map>
#include <vector>

#include "gpulet/batching/allowance.h"
#include "gpulet/batching/decide.h"
#include "gpulet/batching/need.h"
#include "gpulet/batching/request_queue.h"
#include "gpulet/batching/waiting_requests.h"
#include "gpulet/control/options.h"
#include "gpulet/core/ids.h"
#include "gpulet/core/random.h"
#include "gpulet/core/request.h"
#include "gpulet/observe/histogram.h"
#include "gpulet/schedule/plan.h"
#include "gpulet/serve/deadlines.h"
#include "gpulet/serve/responses.h"
#include "gpulet/serve/served_model.h"
#include "gpulet/serve/statistics.h"

namespace gpulet::serve {

// Index into the Dispatcher's models.
using ModelIndex = std::size_t;

inline constexpr std::size_t kBatchesInFlight = 2;
inline constexpr Duration kLatencyWindow = std::chrono::seconds(10);  // of percentiles, at least
// A request whose batch died under it so often is not tried again: it may be what kills the
// proxies.
inline constexpr std::uint32_t kMaxAttempts = 3;
// Nor is one under which so many processes ended or hung: with the second one it ran alone.
inline constexpr std::uint32_t kMostCrashes = 2;

// One model's place on a gpulet. execution[n-1]: the expected duration of a batch of n.
struct LaneSpec {
  ModelIndex model = 0;
  std::vector<Duration> execution;
};

struct Route {
  GpuletId gpulet;
  BackendId backend;
  Duration duty_cycle{};
  std::vector<LaneSpec> lanes;
  schedule::Service service = schedule::Service::rounds;
};

// One answer for one request.
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

// A process that crashed or hung while it held batches (FailureCause model_crash, hung).
struct LostProcess {
  GpuletId gpulet;
  std::vector<std::string> models;  // of the batches
  std::size_t requests = 0;         // in them
  FailureCause cause = FailureCause::unknown;
  ProcessEnd end{};
};

struct DispatchOutput {
  std::vector<BatchToSend> batches;
  std::vector<Answer> answers;
  std::vector<LostProcess> lost{};
};

class Dispatcher {
 public:
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;
  // Batches are numbered from `first_batch` on: numbers of an earlier run of the frontend must not
  // come again.
  Dispatcher(std::vector<ServedModel> models, std::uint32_t max_queue_per_model,
             BatchId first_batch, const control::Options& control = {});

  // ---- what models there are

  // The models that the Dispatcher was made with have the indices 0, 1, ..
  ModelIndex add(ServedModel model);
  // Another SLO, rate or largest batch of the same version.
  void change(ModelIndex model, ServedModel changed);
  // `heir` is a new version of it: takes its counters, and what waits for it where both have the
  // same tensors. Otherwise that is answered, and so is what comes back later.
  void succeed(ModelIndex model, ModelIndex heir, Time now, DispatchOutput& out);
  // No gpulet will serve it any more: what waits is answered with `why`, as is what comes back.
  void close(ModelIndex model, const Status& why, Time now, DispatchOutput& out);
  // Sends what waits to its gpulets at once, as far as they have room.
  void flush(ModelIndex model, Time now, DispatchOutput& out);
  // No gpulet has a lane for it, nothing waits and nothing is in flight.
  [[nodiscard]] bool unused(ModelIndex model) const;
  // Its index may come again. REQUIRES: unused.
  void forget(ModelIndex model);

  // ---- what gpulets there are

  // Puts the routes in force in one step. Gpulets without a route any more take no new batch and
  // finish what they hold; `ready` of gpulets that had a route before is kept, new ones start as
  // ready.
  void set_routes(const std::vector<Route>& routes, Time now);
  // Whether a gpulet takes batches (its proxy may be restarting).
  void set_ready(GpuletId gpulet, bool ready, Time now);
  // The gpulet is no more. What it held goes back to the queues, or is answered where it cannot.
  void remove(GpuletId gpulet, Time now, DispatchOutput& out);

  // What one request is expected to take on the executable from now on.
  void set_expected(GpuletId executable, Duration expected);

  // Some gpulet has a lane for it; and one that takes batches now.
  [[nodiscard]] bool has_lane(ModelIndex model) const { return !queue_of(model).places.empty(); }
  [[nodiscard]] bool has_ready_lane(ModelIndex model) const;
  // All gpulets that have lanes for it are executables, and there are some.
  [[nodiscard]] bool by_executables(ModelIndex model) const;
  [[nodiscard]] std::size_t in_flight(GpuletId gpulet) const;
  // The expected durations of the gpulet's lane for the model; empty where it has none.
  [[nodiscard]] std::vector<Duration> execution(GpuletId gpulet, ModelIndex model) const;

  // ---- requests

  // Queues it, or answers at once with overloaded.
  void enqueue(ModelIndex model, Request&& request, Time now, DispatchOutput& out);
  // Answers at once with that status, counted as the model's.
  void refuse(ModelIndex model, Request&& request, Status status, DispatchOutput& out);
  void completed(const BatchResult& result, Time now, DispatchOutput& out);
  // Whether a batch of that number was sent in this run, now or before.
  [[nodiscard]] bool was_sent(BatchId batch) const {
    return first_batch_ <= batch && batch < next_batch_;
  }
  // The backend that holds the batch; nothing where no backend does, or not any more.
  [[nodiscard]] std::optional<BackendId> holder_of(BatchId batch) const;
  // Forgets what waits for a client that went away.
  void client_gone(ClientId client);
  // Forgets one request, if it still waits for the model.
  void withdraw(ModelIndex model, ClientId client, std::uint64_t tag);
  // Answers everything that waits for the model with that status.
  void refuse_waiting(ModelIndex model, const Status& status, Time now, DispatchOutput& out);

  // No gpulet can come while `why` holds: waiting requests get it as their answer at their
  // deadline. ok: gpulets may come.
  void set_absence(Status why) { absence_ = std::move(why); }

  // Lets every batch go that should go by now and drops what cannot be served in time. Call it
  // after a run of events and when next_wake() has come.
  void pump(Time now, DispatchOutput& out);
  // When pump() has something to do without any further event.
  [[nodiscard]] Time next_wake() const;

  // ---- what is going on

  [[nodiscard]] const std::vector<ServedModel>& models() const { return models_; }
  [[nodiscard]] std::size_t queued(ModelIndex model) const {
    return queue_of(model).requests.size() + queue_of(model).suspects.size();
  }
  // Those of the versions before included.
  [[nodiscard]] const ModelCounters& counters(ModelIndex model) const {
    return queue_of(model).counters;
  }
  // The same.
  [[nodiscard]] const ModelStatistics& statistics(ModelIndex model) const {
    return queue_of(model).statistics;
  }
  [[nodiscard]] observe::Histogram latencies(ModelIndex model, Time now) const;
  // The same.
  [[nodiscard]] const RecentOutcomes& outcomes(ModelIndex model) const {
    return queue_of(model).outcomes;
  }
  // How long the batches of the model's rounds run, by what the plan has for them
  // (RecentPace::pace).
  [[nodiscard]] double pace(ModelIndex model, Time now) const {
    return queue_of(model).pace.pace(now);
  }
  // The same of all batches of a gpulet.
  [[nodiscard]] double pace(GpuletId gpulet, Time now) const;
  // Response times since the last call, of a model that has executables. What was dropped counts
  // with twice the objective.
  [[nodiscard]] Responses::Period take_period(ModelIndex model);
  // How long ago what waits or is in flight came, in the mean; zero without any.
  [[nodiscard]] Duration mean_age(ModelIndex model, Time now) const;
  // Nothing waits and nothing is in flight.
  [[nodiscard]] bool idle() const;

  struct GpuletStatistics {
    std::uint64_t batches = 0;
    std::uint64_t requests = 0;
    Duration executed{};
    std::uint64_t planned = 0;  // requests that the plan had room for in these batches

    // How full they were, of what was planned; 0 without any.
    [[nodiscard]] double batch_fill() const {
      return planned == 0 ? 0 : static_cast<double>(requests) / static_cast<double>(planned);
    }
  };
  [[nodiscard]] GpuletStatistics statistics(GpuletId gpulet) const;

 private:
  struct Lane;
  struct Gpulet;
  struct Place {  // a lane for the model; both are in gpulets_
    GpuletId id;
    Gpulet* gpulet = nullptr;
    Lane* lane = nullptr;
  };
  struct ModelQueue {
    batching::WaitingRequests requests;
    batching::RequestQueue suspects;  // each to run alone
    std::string lost;                 // why the last of them became one
    std::vector<Place> places;        // by ascending id of the gpulet
    std::size_t room = 0;             // largest batches of the ready ones together
    std::size_t in_flight = 0;        // batches
    ModelIndex counted_as = 0;        // itself, or the version that took its place
    std::vector<ModelIndex> before;   // versions that are counted as this one
    std::optional<ModelIndex> heir;   // takes what comes back
    Status closed;                    // why nobody does; ok: its own gpulets may
    ModelCounters counters;
    ModelStatistics statistics;
    observe::RecentHistogram latency{kLatencyWindow};
    RecentOutcomes outcomes;
    RecentPace pace;
    std::optional<Responses> responses;  // since it has had executables
    bool touched = false;  // something arrived, or a gpulet of it made room, since the last pump
    bool listed = false;   // in waiting_
  };
  struct Lane {
    ModelIndex model = 0;
    std::vector<Duration> execution;
    Time turn{};
  };
  struct Gpulet {
    BackendId backend;
    Duration duty_cycle{};
    std::vector<Lane> lanes;  // empty: no route any more
    bool ready = true;
    std::size_t in_flight = 0;
    Duration expected{};  // of what it holds, together
    Time busy_until{};    // when that is done
    batching::Allowance allowance;
    GpuletStatistics statistics;
    RecentPace pace;
    schedule::Service service = schedule::Service::rounds;
    std::size_t last_lane = 0;  // by_need: the one that had the last turn
    bool reserved = false;      // for a suspect: takes nothing else until it holds nothing
  };
  struct InFlight {
    GpuletId gpulet;
    ModelIndex model = 0;
    Duration expected{};
    Time predicted_end{};
    std::size_t planned = 0;  // the largest batch that its lane was for
    std::vector<Request> requests;
    std::vector<bool> answered;  // beside requests; empty: none was
    Time answer_by = kNever;     // as it is in deadlines_

    [[nodiscard]] bool is_answered(std::size_t request) const {
      return !answered.empty() && answered[request];
    }
    [[nodiscard]] Time next_answer_by() const;
  };
  using Wake = std::pair<Time, ModelIndex>;

  [[nodiscard]] ModelQueue& queue_of(ModelIndex model) { return *queues_[model]; }
  [[nodiscard]] const ModelQueue& queue_of(ModelIndex model) const { return *queues_[model]; }
  // Requests were put into one of the model's queues.
  void arrived(ModelIndex model);
  void touch(ModelIndex model);
  void touch(const Gpulet& gpulet);
  void change_ready(Gpulet& gpulet, bool ready);
  void pump_model(ModelIndex model, Time now, DispatchOutput& out);
  // Nothing where nobody waits whom the lane could still serve in time.
  [[nodiscard]] std::optional<batching::LaneView> view_of(const Gpulet& gpulet, const Lane& lane,
                                                          Time now) const;
  // Lets one batch of the gpulet go if one should; otherwise lowers `wake` to when to ask again.
  bool pump_gpulet(const Place& place, Time now, Time& wake, DispatchOutput& out);
  bool pump_in_turn(const Place& place, Time now, Time& wake, DispatchOutput& out);
  // Of a model with queue rules.
  void pump_timeouts(ModelIndex model, Time now, Time& wake, DispatchOutput& out);
  // How many of `wanted` requests the lane's next batch has, so that it ends in time.
  [[nodiscard]] std::uint32_t count_in_time(const Lane& lane, const batching::LaneView& view,
                                            std::uint32_t wanted, Time reachable) const;
  [[nodiscard]] Duration time_ahead(const Lane& lane, std::uint32_t count) const;
  void dispatch(GpuletId id, Gpulet& gpulet, Lane& lane, std::uint32_t count, Time now,
                DispatchOutput& out);
  // Ready for one batch more.
  [[nodiscard]] static bool has_room(const Gpulet& gpulet);
  void send(GpuletId id, Gpulet& gpulet, Lane& lane, std::vector<Request> requests, Time now,
            DispatchOutput& out);
  // Deadlines of what is in flight (dispatcher_deadlines.cc).
  [[nodiscard]] InFlight take_in_flight(BatchId id);
  void answer_overdue(Time now, DispatchOutput& out);
  void answer_overdue(InFlight& batch, std::size_t index, Time now, DispatchOutput& out);
  // Suspects (dispatcher_suspects.cc).
  [[nodiscard]] static bool ended_process(const BatchResult& result);
  void lose_process(const BatchResult& result, Time now, DispatchOutput& out);
  // The batch failed for what one of its requests holds: each runs alone.
  void separate(InFlight batch, Time now, DispatchOutput& out);
  void suspect(InFlight batch, const LostProcess& lost, Time now, DispatchOutput& out);
  [[nodiscard]] const Place* place_for_suspects(ModelIndex model) const;
  void pump_suspects(ModelIndex model, Time now, Time& wake, DispatchOutput& out);
  // Executables (dispatcher_executables.cc).
  void pump_executables(Time now, DispatchOutput& out);
  void pump_by_need(GpuletId id, Gpulet& gpulet, Time now, DispatchOutput& out);
  void pump_controlled(Time now, DispatchOutput& out);
  // Which request of its queue an executable of a CPU takes, of those due at `from` or later.
  struct Taking {
    enum class Which : std::uint8_t { none, first, last };
    Which which = Which::none;
    Time from{};
  };
  [[nodiscard]] Taking taking_of(const Place& executable, Time now) const;
  // When the earliest deadline is that a gpulet with rounds can still meet; kNever without one.
  [[nodiscard]] Time reachable_by_rounds(ModelIndex model, Time now) const;
  void record_response(ModelIndex model, const Request& request, const Status& status, Time now);

  void drop_hopeless(ModelIndex model, Time now, DispatchOutput& out);
  // The earliest deadline that the lane can still meet.
  [[nodiscard]] Time reachable_deadline(const Gpulet& gpulet, const Lane& lane, Time now) const;
  [[nodiscard]] bool backlogged(ModelIndex model) const;
  void put_back(InFlight batch, const Status& why, Time now, DispatchOutput& out);
  void release(const InFlight& batch, bool executed, Time now);
  // `times`: of the batch whose result this is.
  void answer(ModelIndex model, Request&& request, Status status, std::vector<Bytes> outputs,
              Time now, DispatchOutput& out, const BatchTimes& times = {});
  [[nodiscard]] bool same_tensors(ModelIndex a, ModelIndex b) const;
  // Where a request of the model waits now; nothing where it is closed.
  [[nodiscard]] std::optional<ModelIndex> queue_for(ModelIndex model) const;

  std::vector<ServedModel> models_;
  std::uint32_t max_queue_;
  // Beside models_. Growing moves no queue: they are large.
  std::vector<std::unique_ptr<ModelQueue>> queues_;
  std::vector<ModelIndex> free_;  // forgotten
  std::map<GpuletId, Gpulet> gpulets_;
  std::unordered_map<BatchId, InFlight> in_flight_;
  Deadlines<BatchId> deadlines_;  // of in_flight_
  Status absence_;
  std::priority_queue<Wake, std::vector<Wake>, std::greater<>> wakes_;
  std::vector<Time> scheduled_wake_;  // beside models_: the earliest entry of wakes_ for it
  std::vector<ModelIndex> touched_;
  std::vector<ModelIndex> waiting_;  // those with waiting requests; some may have none any more
  BatchId first_batch_;
  BatchId next_batch_;
  control::Options control_;
  Random chance_;
  std::vector<GpuletId> by_need_;     // that have routes, ascending
  std::vector<GpuletId> controlled_;  // the same
  bool executables_due_ = false;      // something was touched since they were pumped
};

}  // namespace gpulet::serve
