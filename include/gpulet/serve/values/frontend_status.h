// The status of a frontend, as FrontendCore::status() returns it: the source of the status
// document, the metrics and the dashboard. Plain values; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/control/node_control.h"
#include "gpulet/core/failure.h"
#include "gpulet/core/ids.h"
#include "gpulet/core/request.h"
#include "gpulet/observe/histogram.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/schedule/explanation.h"
#include "gpulet/schedule/plan.h"
#include "gpulet/schedule/reconcile.h"
#include "gpulet/serve/values/application.h"
#include "gpulet/serve/values/counters.h"
#include "gpulet/serve/values/frontend_events.h"
#include "gpulet/serve/values/served_model.h"

namespace gpulet::serve {

// ---- statistics
//
// Statistics of models, applications and gpulets since the frontend's start. A model's statistics
// continue across its versions. Plain values; one thread at a time.

// The request counts as dropped: it would have been late, or a queue was full.
[[nodiscard]] inline bool is_drop(StatusCode code) {
  return code == StatusCode::too_late || code == StatusCode::overloaded;
}

// Outcomes of the requests that were answered within some period.
struct Outcomes {
  std::uint64_t answered = 0;  // with a result or an error
  std::uint64_t late = 0;
  std::uint64_t dropped = 0;
  std::uint64_t failed = 0;

  [[nodiscard]] std::uint64_t violations() const { return late + dropped + failed; }
  // The fraction of requests without an answer in time, 0..1.
  [[nodiscard]] double violated() const {
    return answered == 0 ? 0 : static_cast<double>(violations()) / static_cast<double>(answered);
  }

  friend bool operator==(const Outcomes&, const Outcomes&) = default;
};

// The outcomes of the last minute. Cancelled requests are not counted.
class RecentOutcomes {
 public:
  void add_served(bool late, Time now);
  void add_failure(bool dropped, Time now);
  void add(const Outcomes& outcomes, Time now);

  [[nodiscard]] Outcomes of_minute(Time now) const;
  // Of the last ten to twenty seconds.
  [[nodiscard]] Outcomes of_now(Time now) const;

 private:
  enum Figure : std::uint8_t { kServed, kLate, kDropped, kFailed, kFigures };
  [[nodiscard]] Outcomes outcomes(Time now, std::size_t slices) const;

  observe::RecentSums<kFigures> sums_;
};

// The ratio of recent batches' execution time to their expected time.
class RecentPace {
 public:
  void add(Duration executed, Duration expected, Time now);

  // 1.5: half as long again as expected; 0: too few batches.
  [[nodiscard]] double pace(Time now) const;

 private:
  enum Figure : std::uint8_t { kBatches, kExecuted, kExpected, kFigures };

  observe::RecentSums<kFigures> sums_;
};

// Response times of one model, for its core controllers and for the choice of the neediest model.
class Responses {
 public:
  enum class Where : std::uint8_t { gpu, cpu, nowhere };  // nowhere: dropped

  // recent_mean() covers the last `window`, to a tenth of it.
  explicit Responses(Duration window) : slot_(window / kSlots) {}

  void record(Duration response, Where where, Time now);

  [[nodiscard]] std::optional<Duration> recent_mean(Time now) const;

  // The responses since the last call of take_period().
  struct Period {
    std::uint64_t on_gpu = 0;
    std::uint64_t on_cpu = 0;
    std::uint64_t dropped = 0;
    double gpu_s = 0;   // sum of the response times on GPUs
    double rest_s = 0;  // the same on CPUs and of dropped requests
    observe::Histogram histogram{};
    observe::Histogram rest_histogram{};

    [[nodiscard]] std::uint64_t answered() const { return on_gpu + on_cpu; }
    void add(const Period& other);
  };
  [[nodiscard]] Period take_period();

 private:
  static constexpr std::int64_t kSlots = 10;
  struct Slot {
    std::int64_t number = -1;  // since the clock's epoch
    std::uint64_t count = 0;
    double sum_s = 0;
  };
  [[nodiscard]] std::int64_t slot_of(Time time) const { return time.time_since_epoch() / slot_; }

  Duration slot_;
  std::array<Slot, kSlots> slots_{};
  Period period_;
};

inline constexpr std::size_t kStatusCodes = static_cast<std::size_t>(kLastStatusCode) + 1;

// The parts of one successful request's latency, which is their sum.
struct ServedTimes {
  Duration latency{};   // from arrival to answer
  Duration queued{};    // waiting, at the frontend and at the gpulet
  Duration input{};     // transferring its batch's inputs to the gpulet
  Duration executed{};  // of its batch
  Duration output{};    // transferring its batch's outputs back
};

// The parts of one executed batch's time, from its dispatch to its result.
struct BatchTimes {
  Duration queued{};  // at the gpulet
  Duration input{};
  Duration executed{};
  Duration output{};
};
// Divides a batch's time from dispatch to result. Each end measures how long it received; the rest
// of the transfer time (latency of the first byte, waiting for the connection) is not known by
// direction and is split evenly. Decoding images counts as input. The parts add up to `elapsed`
// whatever the backend reports.
[[nodiscard]] BatchTimes times_of(const BatchResult& result, Duration elapsed, Time now);

struct ModelStatistics {
  // The executions of one batch size whose results were used.
  struct BatchesOfSize {
    observe::DurationSum executed;
    observe::DurationSum queued;  // at the gpulet
    observe::DurationSum input;
    observe::DurationSum output;
  };

  observe::BucketHistogram latency;  // these three hold one value per success
  observe::BucketHistogram queued;
  observe::BucketHistogram executed;
  observe::DurationSum input;
  observe::DurationSum output;
  std::array<std::uint64_t, kStatusCodes> failures{};  // by code; none for ok
  observe::DurationSum failed_after;   // from arrival to the error; without cancelled requests
  std::vector<BatchesOfSize> batches;  // [n-1]: of n requests; empty for an application
  std::uint64_t executions = 0;        // of batches, or of an application as a whole
  Time last_success{};                 // Time(): none yet

  [[nodiscard]] std::uint64_t successes() const { return latency.count(); }
  [[nodiscard]] std::uint64_t failed(StatusCode code) const {
    return failures[static_cast<std::size_t>(code)];
  }

  void add_success(const ServedTimes& times, Time now);
  void add_failure(StatusCode code, Duration after);
  void add_cancelled(std::uint64_t requests);
  void add_batch(std::uint32_t requests, const BatchTimes& times);
};

struct GpuletStatistics {
  std::uint64_t batches = 0;
  std::uint64_t requests = 0;
  Duration executed{};
  std::uint64_t planned = 0;  // sum of these batches' planned sizes

  // The mean fraction of the planned batch size; 0 without batches.
  [[nodiscard]] double batch_fill() const {
    return planned == 0 ? 0 : static_cast<double>(requests) / static_cast<double>(planned);
  }
};

// The figures of two frontends together.
[[nodiscard]] GpuletStatistics sum_of(const GpuletStatistics& a, const GpuletStatistics& b);
[[nodiscard]] Outcomes sum_of(const Outcomes& a, const Outcomes& b);

// ---- frontend status

// A connected backend.
struct BackendRecord {
  std::string node;
  std::vector<DeviceOffer> devices;
  Time last_heard{};
  bool leaving = false;     // draining: it takes no new gpulets
  std::uint32_t level = 0;  // kProtocolLevel of the backend
  bool commanded = false;   // it executes this frontend's commands
  Term term{};              // of commands to it, where it needs a higher one than others
  GpuletId taken_before{};  // the next gpulet when it was last sent TakeLeadership
  // SHA-256 of the model files that it may fetch: of the gpulets created on it, unless the model is
  // gone.
  std::set<std::string, std::less<>> files{};
  std::map<std::uint32_t, DevicePower> power{};  // by device number
  // Gpulets in its Hello that another backend had already claimed. It is ordered to end them.
  std::set<GpuletId> disowned{};
};

// A gpulet on a connected backend, as last reported.
struct GpuletRecord {
  BackendId backend;
  schedule::DeviceKey device;
  Share size;
  std::vector<schedule::RunningModel> models;
  GpuletState state = GpuletState::preparing;
  Status status;
  bool retiring = false;  // it was told to finish and end
  PlanPart part{};        // as last sent to its backend
  partition::FoundShare found{};
  std::optional<partition::MigInstance> instance{};  // on a device that MIG divides
  bool issued = false;  // this frontend created it; otherwise its backend's Hello claimed it
  Time since{};         // of its creation or of the Hello
  // The member that sends its batches, as last ordered or reported; empty: the leader.
  std::string owner{};
  partition::LoadStages load_stages{};
  partition::ProcessCondition condition{};
};

// A node or device that takes no new gpulets for a while.
struct Exclusion {
  std::string node;
  std::optional<std::uint32_t> device;  // empty: the whole node
  FailureCause cause = FailureCause::unknown;
  Status error;                // of the last failure
  std::uint32_t failures = 0;  // in a row
  Time until{};                // then it is tried again
};

// Control of the cores of one model's instances, in the last control period unless noted.
struct ModelControlStatus {
  double set_point_ms = 0;
  double response_ms = 0;      // mean, or control::Options::percentile; 0: nothing was answered
  double gpu_part = 0;         // fraction of the answers that GPUs gave, 0..1
  double cores_requested = 0;  // by its instances on all nodes
  double cores_granted = 0;
  // Since the start: periods with answers, those of them above the objective, requests.
  std::uint64_t periods = 0;
  std::uint64_t violated_periods = 0;
  std::uint64_t on_gpu = 0;
  std::uint64_t on_cpu = 0;
  double core_seconds = 0;  // granted

  friend bool operator==(const ModelControlStatus&, const ModelControlStatus&) = default;
};
// A node's CPU whose cores are controlled.
struct NodeControlStatus {
  schedule::DeviceKey key;
  double cores = 0;
  double cores_requested = 0;
  double cores_granted = 0;
  double contention = 0;  // control::Granted::contention
};
struct ModelStatus {
  std::string name;
  ModelState state = ModelState::loading;
  std::string version;  // version_of the version in force
  double slo_ms = 0;
  double rate_seen = 0;
  double rate_planned = 0;
  double rate_unserved = 0;
  std::string reason;  // why it is unserved, or the state of its next version
  std::size_t queued = 0;
  ModelCounters counters;     // of the requests that this frontend queued
  ModelCounters elsewhere{};  // of those that other owners queued, since this frontend leads
  std::string owner{};        // the member that queues them now; empty: the leader
  // Of a model whose requests several members queue; `owner` is the first. Otherwise empty.
  std::vector<OwnerShare> owners{};
  double p50_ms = 0;
  double p99_ms = 0;
  ModelStatistics statistics;
  // Of the version in force: that of the models file, or counted from 1 since the frontend's start.
  std::uint64_t number = 1;
  bool application = false;
  // Processes that crashed under this model alone; the rest of its quarantine, zero: none.
  std::uint64_t crashes = 0;
  Duration quarantined_for{};
  std::optional<ModelControlStatus> control{};  // where its instances' cores are controlled
  Outcomes last_minute{};
  Outcomes latest{};                                  // of the last ten to twenty seconds
  double pace = 0;                                    // RecentPace of its batches; 0: unknown
  std::optional<schedule::UnservedDetail> missing{};  // what the plan in force cannot place
  std::vector<std::string> calls{};                   // of an application: its models, sorted
  double correction = 1;      // the largest factor of its gpulets (CorrectionStatus)
  std::string disturbs{};     // why it has gpulets of its own: some batches block the others
  bool estimated = false;     // its latencies are, where it serves (EstimateStatus)
  double extra_headroom = 1;  // its demand is multiplied by this because requests were late
};
// How the batches of a model run at one size of one type of device, compared with its profile.
struct CorrectionStatus {
  std::string model;
  std::string device_type;
  Share size;
  schedule::DeviceKey slowest;  // the device of the factor
  double factor = 1;            // observed latency divided by that of the profile
  double tail = 0;              // the same for the slowest hundredth; 0: too few batches
  std::uint64_t batches = 0;    // observed
  double planned = 1;           // the factor of the last plan
};
// A model whose latencies on a type of device are estimated (serve/adapt/estimates.h).
struct EstimateStatus {
  std::string model;
  std::string device_type;
  std::string nearest;     // the measured model that the estimate is scaled from; empty: none
  std::size_t probes = 0;  // measured cells; 0: its first gpulet is still to be probed

  friend bool operator==(const EstimateStatus&, const EstimateStatus&) = default;
};
struct GpuletStatus {
  GpuletId id;
  GpuletRecord gpulet;
  std::optional<schedule::PlannedGpulet> planned;  // its part of the plan in force
  std::size_t in_flight = 0;
  double busy = 0;  // fraction of the last tick
  GpuletStatistics statistics;
  std::optional<control::Cores> cores{};  // where they are controlled
  double pace = 0;                        // RecentPace of its batches; 0: unknown
};
struct DeviceStatus {
  schedule::DeviceKey key;
  std::string type;
  Share used;                    // sum over the gpulets of the plan in force
  double busy = 0;               // busy fractions of these gpulets, weighted by share
  double memory_mb = 0;          // 0: not limited
  double planned_memory_mb = 0;  // of all models in its gpulets, as profiled
  DevicePower power{};           // as last reported
  double slowness = 1;           // how many times slower than others of its type, if it is
};
// An event in words. A repetition within a minute replaces its predecessor and counts.
struct StatusEvent {
  enum class Kind : std::uint8_t {
    note = 0,
    reorganisation,  // a decision that moves gpulets
    // Each event of one of these kinds replaces its predecessor, whatever the text.
    other_rates,  // a decision that moves none
    shortage,     // unserved demand
  };
  Time time{};  // of the last occurrence
  std::string text;
  bool warning = false;
  Kind kind = Kind::note;
  std::uint64_t plan = 0;   // the decision (PlanDecision::number); 0: none
  std::uint64_t count = 1;  // of occurrences
};
// A plan that was decided on, with the reasons. Immutable.
struct PlanDecision {
  std::uint64_t number = 0;  // counts from 1
  Time decided{};
  std::string summary;  // the changes and their reasons, in words
  schedule::Plan plan;
  std::vector<bool> created;          // parallel to plan.gpulets: the gpulet is new
  std::size_t retired = 0;            // gpulets of the previous plan
  schedule::Explanation explanation;  // of the plan

  // Gpulets are created or retired. Otherwise only rates, batches or versions change.
  [[nodiscard]] bool moves_gpulets() const;
};
// A decision that came into force.
struct PlanInForce {
  std::shared_ptr<const PlanDecision> decision;  // never null
  Epoch epoch;                                   // of its last stage
  Time since{};                                  // of its last stage
  Duration took{};                               // from the decision to `since`
};
// A gpulet that ends before the one that replaces it can load, because its device cannot hold both.
struct PlannedOutage {
  schedule::DeviceKey device;
  std::vector<GpuletId> dark;          // the gpulets that end; ascending
  std::vector<std::string> models;     // that they serve; sorted
  GpuletId until;                      // serves again when it is ready
  std::optional<Duration> expected{};  // its load, from earlier ones; empty: unknown
  bool begun = false;                  // they were told to end

  friend bool operator==(const PlannedOutage&, const PlannedOutage&) = default;
};
// Whether this frontend commands the backends (serve/cluster/leadership.h).
struct LeadershipStatus {
  bool clustered = false;  // FrontendOptions::clustered
  bool leads = true;
  Term term{};                   // of its last leadership
  std::string leader{};          // the member that leads instead; empty: unknown, or none
  std::uint64_t superseded = 0;  // Superseded messages received
};
// Requests of this frontend's clients that another frontend serves (serve/cluster/forwarder.h). The
// counts are since the frontend's start.
struct ForwardingStatus {
  std::string route;          // the member that serves; empty: this one, or none
  bool connected = false;     // to it
  std::size_t waiting = 0;    // for a member that serves
  std::size_t in_flight = 0;  // at other members
  std::uint64_t sent = 0;
  std::uint64_t answered = 0;
  std::uint64_t elsewhere = 0;  // sent to a member that did not serve
  std::uint64_t failed = 0;     // without an answer of another member
};
// A member of the cluster that owns gpulets (serve/cluster/ownership.h).
struct OwnerStatus {
  std::string member;
  std::size_t groups = 0;
  std::size_t gpulets = 0;
  double rate = 0;  // planned requests per second
};
struct FrontendStatus {
  std::string state;
  LeadershipStatus leadership{};
  ForwardingStatus forwarding{};
  std::vector<OwnerStatus> owners{};  // by member; empty: this frontend does not lead, or is alone
  std::size_t owned_gpulets = 0;      // whose batches this frontend sends
  bool ready = false;                 // accepts requests, and some device can serve them
  std::string policy;
  Epoch epoch;
  bool reorganising = false;
  bool schedulable = true;
  ReorganisationCounters reorganisations;
  std::map<BackendId, BackendRecord> backends;
  std::vector<DeviceStatus> devices;               // sorted by key
  std::vector<Exclusion> exclusions;               // in force, sorted by node, then device
  std::map<FailureCause, std::uint64_t> failures;  // of gpulets, since the frontend's start
  PeerViolations violations{};                     // by backends, since the frontend's start
  std::vector<PlannedOutage> outages{};            // of the rollout, in their order
  std::vector<GpuletStatus> gpulets;
  std::vector<ModelStatus> models;
  std::vector<std::string> leaving;  // removed models that still have requests
  std::shared_ptr<const std::vector<std::string>> unloaded{};  // as in Catalogue
  std::vector<NodeControlStatus> controlled_nodes;             // sorted by key
  std::vector<CorrectionStatus> corrections;                   // by device type, model, size
  std::vector<EstimateStatus> estimates;                       // by device type, model
  std::deque<StatusEvent> events;                              // the most recent ones
  std::deque<PlanInForce> plans;           // the most recent ones; the last is in force
  std::vector<std::string> file_problems;  // of the catalogue's files, each with its place
};

// A FrontendStatus that FrontendCore::take() fills part by part, so that its thread can serve
// requests in between: a status of thousands of models takes too long. Each part is as of its own
// time; what is added meanwhile may be missing. One thread at a time.
class StatusInSteps {
 public:
  explicit StatusInSteps(Time now) : now_(now) {}

  // REQUIRES: FrontendCore::take() returned true. On any thread.
  [[nodiscard]] FrontendStatus finish() &&;

 private:
  friend class StatusReporter;
  Time now_;
  std::size_t stage_ = 0;  // the stage of StatusReporter::take() that is not complete
  FrontendStatus status_;
  std::map<schedule::DeviceKey, DeviceStatus> devices_;
  // The last one that was taken in its stage.
  std::optional<BackendId> backend_{};
  std::optional<GpuletId> gpulet_{};
  std::string name_;
};

// A model or application by reference, for lookups at every request. A model with dynamic
// dimensions has the shapes as declared, and the bytes and the bucket of its longest requests.
struct ModelView {
  const ServedModel& model;
  std::uint64_t number = 1;  // as in ModelStatus
  ModelState state = ModelState::loading;
  std::string reason;
  std::shared_ptr<const Application> application{};  // null: it is a model
};

}  // namespace gpulet::serve
