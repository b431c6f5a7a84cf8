// The load generator over connections to a frontend.
//
// run_load drives Generators by the steady clock, one in each of its threads, and spreads the
// requests over the connections. It waits for each reply for at most the request's timeout or SLO
// plus last_answer_grace; the request is an error (timeout) after that, and an owner that left it
// unanswered is avoided for a while. Requests on a lost connection, or due while none is open, are
// errors; a lost connection is opened again at once, then every kReconnectPause.
//
// Before that: the inputs of the requests, and the generator without its sockets.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "gpulet/base/bytes.h"
#include "gpulet/base/random.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/config/cluster_config.h"
#include "gpulet/config/model_config.h"
#include "gpulet/core/tensor.h"
#include "gpulet/load/call.h"
#include "gpulet/protocol/messages.h"

namespace gpulet::load {

// ---- inputs
//
// Inputs that the load generator sends to one model, random or from a file, with optional labels.
// Immutable once built; any thread.

using ValueRanges = std::map<std::string, config::ValueRange>;  // by input

struct InputPool {
  std::vector<Bytes> requests;  // each: the model's inputs, concatenated; at least one
  // Parallel to requests where the model has dynamic dimensions (core/bucket.h); otherwise one for
  // all of them.
  std::vector<std::vector<TensorSpec>> inputs;
  std::vector<std::int64_t> labels;  // parallel to requests, or empty

  [[nodiscard]] const std::vector<TensorSpec>& inputs_of(std::size_t request) const {
    return inputs.size() == 1 ? inputs.front() : inputs[request];
  }
};

// Seeded random inputs, at most 8 MiB; the generator cycles through them. Inputs that `ranges`
// names have values of these ranges. Others: floating point: [0, 1); half precision: [0.5, 1);
// integers: 0..999 (token ids of any vocabulary), or the type's positive range if smaller; BOOL: 0
// or 1. Encoded images: photos of 500 x 375 pixels. Dynamic dimensions have random sizes, each of
// `lengths` as often as the others; more requests show more of them. Fails (invalid) on specs
// without a byte size, and where a range does not fit its input or names none.
[[nodiscard]] Result<InputPool> random_inputs(const std::vector<TensorSpec>& inputs,
                                              std::uint64_t seed,
                                              const std::vector<std::int64_t>& lengths = {},
                                              const ValueRanges& ranges = {});

// Blocking file I/O. Fails with not_found, or with invalid if a file does not hold a whole number
// of requests or one integer label per request. The message has the file, the line and a fix.
[[nodiscard]] Result<InputPool> read_inputs(const config::WorkloadInput& input,
                                            const std::vector<TensorSpec>& inputs);

// The index of the first largest element. Empty for type BOOL and without a whole element.
[[nodiscard]] std::optional<std::int64_t> arg_max(DataType type, const Bytes& tensor);

// ---- generator
//
// The load generator without its sockets: arrivals, requests in flight, and their outcomes.
//
// Open loops keep their schedule whatever the server does: latency counts from the intended send
// time, however late the caller asks for the request. Closed loops keep `concurrency` requests in
// flight and pause kPauseAfterFailure before they replace a failed one.
//
// offered = served + dropped + errors. Dropped: the server refused the request as too late or
// overloaded. Errors: all other failures, lost connections and missing replies. Late requests are
// served requests whose latency exceeds the SLO.
//
// Several generators can share a load: each sends one part of it, and all parts together send what
// the workload says.
//
// Times count from the start of the run (time zero). Pure; one thread at a time.

// One of `of` equal parts of a load. The default is the whole.
struct Part {
  std::uint32_t number = 0;  // below `of`
  std::uint32_t of = 1;
};

// The share of one part in `count` things that can only be dealt out whole. The parts' shares add
// up to `count`. What does not divide evenly goes to the parts from `first` on.
[[nodiscard]] std::uint32_t share_of(std::uint32_t count, const Part& part, std::size_t first = 0);

class ArrivalProcess {
 public:
  // poisson: independent exponential gaps; each part is a process of its own with its part of the
  // rate. uniform: equal gaps after a seeded phase below one gap; the parts take turns.
  // REQUIRES: kind is not closed, rate > 0 per second; throws std::invalid_argument.
  ArrivalProcess(config::Arrivals kind, double rate, std::uint64_t seed, const Part& part = {});
  // Follows the trace, as config::TraceArrivals; the only part has exactly those arrivals. Random
  // ones: each part is a process of its own with its part of the rates. Given ones: the parts take
  // turns. The trace outlives this.
  ArrivalProcess(const config::Trace& trace, const std::string& target, double rate,
                 std::uint64_t seed, const Part& part);

  // The next arrival; kNever after the last one of a trace. Never decreases.
  [[nodiscard]] Time next();

 private:
  config::Arrivals kind_;
  double rate_;  // poisson: of the part; uniform: of all parts
  Random random_;
  double last_s_ = 0;       // poisson: the last arrival
  double phase_s_ = 0;      // uniform
  std::uint64_t arrivals_;  // uniform: a count, so that rounding errors do not add up
  std::uint64_t stride_;    // uniform: between two arrivals of this part
  // Of a trace, which then takes the place of all others.
  std::optional<config::TraceArrivals> traced_;
  std::uint64_t skipped_ = 0;  // its arrivals of other parts before the next one
};

// The outcome of one request.
struct RequestRecord {
  std::size_t model = 0;       // index into the workload
  Time intended{};             // intended send time; closed loop: when it could be sent
  std::optional<Time> sent{};  // empty: not sent, see status
  Time settled{};              // when the reply or the failure arrived
  Status status{};
  bool refused_by_server = false;  // the status is from a reply
  std::uint32_t batch_size = 0;
  Duration queued{};
  Duration executed{};
  std::optional<bool> correct{};  // if the input has a label and a reply came

  [[nodiscard]] Duration latency() const { return settled - intended; }
};

struct ModelRow {
  std::string name;
  std::uint64_t offered = 0;
  std::uint64_t served = 0;
  std::uint64_t dropped = 0;
  std::uint64_t late = 0;
  std::uint64_t errors = 0;
  std::uint64_t unsent = 0;      // errors without a connection or above max_outstanding
  std::optional<double> p50_ms;  // of the served requests
  std::optional<double> p99_ms;
  double slo_ms = 0;
  double violation = 0;            // (late + dropped + errors) / offered, or 0
  std::optional<double> accuracy;  // of the served requests, if inputs have labels
  // Dropped and failed requests by code: their number and the first message.
  struct Reason {
    std::uint64_t count = 0;
    std::string first_message;
    friend bool operator==(const Reason&, const Reason&) = default;
  };
  std::map<StatusCode, Reason> reasons;

  friend bool operator==(const ModelRow&, const ModelRow&) = default;
};

[[nodiscard]] double violation_of(std::uint64_t late, std::uint64_t dropped, std::uint64_t errors,
                                  std::uint64_t offered);

// Counts one model's requests.
class Tally {
 public:
  Tally(std::string name, Duration slo, bool labelled);

  void add(const RequestRecord& record);
  // Adds what another tally counted of the same model.
  void merge(const Tally& other);

  // Without percentiles and ratios: cheap.
  [[nodiscard]] const ModelRow& counts() const { return counts_; }
  [[nodiscard]] ModelRow row() const;

 private:
  ModelRow counts_;
  Duration slo_;
  bool labelled_;
  std::uint64_t correct_ = 0;
  std::vector<double> latencies_ms_;
};

inline constexpr Duration kPauseAfterFailure = std::chrono::milliseconds(10);

struct ModelLoad {
  std::string name;
  config::Arrivals arrivals = config::Arrivals::poisson;
  double rate = 0;                // open loops; 0 sends nothing
  std::uint32_t concurrency = 1;  // closed loop
  Duration slo{};
  std::size_t inputs = 1;  // used in turn
  bool labelled = false;
};

struct GeneratorOptions {
  Duration duration{};  // requests intended for this time or later are not sent
  std::uint64_t seed = 1;
  std::uint32_t max_outstanding = 4096;  // per model, of all parts; further requests are errors
  Part part{};
  // In place of the arrivals of open loops, whose rates are those before the first row. Null: none.
  std::shared_ptr<const config::Trace> trace{};
};

struct DueRequest {
  std::uint64_t tag = 0;
  std::size_t model = 0;  // index into the models
  std::size_t input = 0;  // index into the model's inputs
  Time intended{};
};

// How late the generator sent: the limit of its precision.
struct SenderLag {
  std::optional<double> p99_ms;  // open loops only
  std::optional<double> max_ms;
};

struct Progress {
  std::uint64_t offered = 0;
  std::uint64_t served = 0;
  std::uint64_t dropped = 0;
  std::uint64_t late = 0;
  std::uint64_t errors = 0;
  std::size_t outstanding = 0;

  Progress& operator+=(const Progress& other);
};

class Generator {
 public:
  using OnSettled = std::function<void(const RequestRecord&)>;

  // `models` describes the whole load, of which options.part is generated. Calls `on_settled` (may
  // be empty) once per request, with its outcome.
  Generator(const std::vector<ModelLoad>& models, const GeneratorOptions& options,
            OnSettled on_settled);

  // A due request, now in flight: the caller sends it or calls fail().
  [[nodiscard]] std::optional<DueRequest> next(Time now);
  // When next() returns a request; kNever if all were sent or wait for replies.
  [[nodiscard]] Time next_due() const;

  struct Reply {
    Status status{};
    std::uint32_t batch_size = 0;
    Duration queued{};
    Duration executed{};
    std::optional<bool> correct{};  // if the input has a label
  };
  // False if no request with that tag is in flight.
  bool complete(std::uint64_t tag, const Reply& reply, Time now);
  // The connection was lost, or the request could not be sent (was_sent false).
  bool fail(std::uint64_t tag, Status status, bool was_sent, Time now);
  // Every request in flight becomes an error with code timeout.
  void fail_all(Time now);

  // Sends nothing intended for `now` or later.
  void end_sending(Time now) {
    options_.duration = std::min(options_.duration, now.time_since_epoch());
  }
  [[nodiscard]] Time end() const { return Time(options_.duration); }

  [[nodiscard]] std::optional<DueRequest> in_flight(std::uint64_t tag) const;

  // No request is in flight or will be.
  [[nodiscard]] bool finished() const { return in_flight_.empty() && next_due() == kNever; }

  [[nodiscard]] Progress progress() const;
  [[nodiscard]] std::vector<ModelRow> rows() const;
  [[nodiscard]] SenderLag sender_lag() const;
  [[nodiscard]] bool outstanding_limit_hit() const { return limit_hit_; }
  // Adds the outcomes of another part of the same load. REQUIRES: both are finished.
  void merge(const Generator& other);

 private:
  struct Stream {
    ModelLoad model;
    std::optional<ArrivalProcess> arrivals;  // open loops
    std::vector<Time> free_slots;            // closed loop: when idle slots may send; a min-heap
    Time due = kNever;                       // open loops
    std::size_t first_input = 0;             // the parts begin at different inputs
    std::uint64_t offered = 0;
    std::size_t outstanding = 0;
    std::size_t max_outstanding = 0;
    Tally tally;
  };
  struct InFlight {
    DueRequest request;
    Time sent{};
  };

  void advance(Stream& stream);
  [[nodiscard]] Time due(const Stream& stream) const;
  void settle(const RequestRecord& record);
  // Removes the request and frees its slot; empty for an unknown tag.
  [[nodiscard]] std::optional<InFlight> take(std::uint64_t tag, bool served, Time now);

  GeneratorOptions options_;
  OnSettled on_settled_;
  std::vector<Stream> streams_;
  std::unordered_map<std::uint64_t, InFlight> in_flight_;
  std::uint64_t last_tag_ = 0;
  std::vector<double> lags_ms_;  // of open loops
  bool limit_hit_ = false;
};

// ---- client

struct PreparedModel {
  ModelLoad load;
  Duration timeout{};  // sent with each request; zero: the server's SLO
  InputPool pool;
};

// Factors that adapt a workload to another machine.
struct Scale {
  double rate = 1;  // of open loops
  double slo = 1;   // of the workload's objectives
};

// Joins the workload with the server's models; their SLO is used where slo_ms is missing. Reads the
// input files. Fails with invalid or not_found, naming the model's JSON pointer or the file.
[[nodiscard]] Result<std::vector<PreparedModel>> prepare(
    const std::vector<config::WorkloadModel>& workload, const std::vector<ModelInfo>& served,
    const Scale& scale, std::uint64_t seed);

inline constexpr Duration kReconnectPause = std::chrono::milliseconds(500);
inline constexpr Duration kProgressPeriod = std::chrono::seconds(1);

struct LoadOptions {
  Target target;
  // Further frontends of the same cluster. Connections are spread over all, and each that is lost
  // is opened again at the next.
  std::vector<config::Endpoint> others{};
  // Sends a model's requests to the frontend that serves it, once a reply names that one.
  bool follow_owners = true;
  // Sends the shapes of the inputs alone, which the frontend has to allow (`synthetic_inputs`).
  bool synthetic_inputs = false;
  GeneratorOptions generator;
  std::uint32_t connections = 4;  // at least 1
  // Each has its part of the connections and of the load (Part), so that a seed gives the same
  // requests with the same number of threads. At least 1; not more than connections and
  // max_outstanding are used.
  std::uint32_t threads = 1;
  Duration connect_timeout = std::chrono::seconds(5);
  Duration last_answer_grace = std::chrono::seconds(5);
  // May be empty. Called from the threads of the run, one call at a time, never after its end.
  Generator::OnSettled on_settled;
  // May be empty; called every kProgressPeriod in the calling thread, with figures that are up to
  // 100 ms old. False stops sending.
  std::function<bool(const Progress&, Duration elapsed)> on_progress;
};

struct LoadReport {
  std::vector<ModelRow> models;  // in the workload's order
  SenderLag sender_lag;
  Duration elapsed{};                  // until the last reply
  bool outstanding_limit_hit = false;  // requests above max_outstanding were not sent
  std::uint64_t connections_lost = 0;
  std::uint64_t unexpected_replies = 0;  // replies with a tag that is not in flight
  std::uint32_t threads = 1;             // those that sent
};

// Blocks until all requests have outcomes. Fails (unavailable, timeout) if it cannot connect first.
[[nodiscard]] Result<LoadReport> run_load(const std::vector<PreparedModel>& models,
                                          const LoadOptions& options);

}  // namespace gpulet::load
