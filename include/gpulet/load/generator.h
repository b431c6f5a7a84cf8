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
// Times count from the start of the run (time zero). Pure; one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "gpulet/base/random.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/config/cluster_config.h"

namespace gpulet::load {

class ArrivalProcess {
 public:
  // poisson: independent exponential gaps. uniform: equal gaps after a seeded phase below one gap.
  // REQUIRES: kind is not closed, rate > 0 per second; throws std::invalid_argument.
  ArrivalProcess(config::Arrivals kind, double rate, std::uint64_t seed);

  // The next arrival. Never decreases.
  [[nodiscard]] Time next();

 private:
  config::Arrivals kind_;
  double rate_;
  Random random_;
  double last_s_ = 0;           // poisson: the last arrival
  double phase_s_ = 0;          // uniform
  std::uint64_t arrivals_ = 0;  // uniform: a count, so that rounding errors do not add up
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
  std::uint32_t max_outstanding = 4096;  // per model; further requests are errors
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
};

class Generator {
 public:
  using OnSettled = std::function<void(const RequestRecord&)>;

  // Calls `on_settled` (may be empty) once per request, with its outcome.
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

 private:
  struct Stream {
    ModelLoad model;
    std::optional<ArrivalProcess> arrivals;  // open loops
    std::vector<Time> free_slots;            // closed loop: when idle slots may send; a min-heap
    Time due = kNever;                       // open loops
    std::uint64_t offered = 0;
    std::size_t outstanding = 0;
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

}  // namespace gpulet::load
