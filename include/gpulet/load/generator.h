// The load generator without its sockets: what is to be sent when, and what became of it.
//
// Open loops keep their schedule whatever the server does: a request that is due is given out with
// the time at which it was meant to be sent, however late the caller asks, and its latency counts
// from there. Closed loops keep `concurrency` requests under way, and pause kPauseAfterFailure
// before they replace a failed one, so that a server that refuses at once is not asked a million
// times a second. Pure: time is an argument, counted from the start of the run (time zero). One
// thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "gpulet/config/workload_config.h"
#include "gpulet/core/time.h"
#include "gpulet/load/arrivals.h"
#include "gpulet/load/tally.h"

namespace gpulet::load {

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
  Duration duration{};  // requests meant for this time or later are not sent
  std::uint64_t seed = 1;
  std::uint32_t max_outstanding =
      4096;  // per model; what is due beyond it counts as an error and is not sent
};

struct DueRequest {
  std::uint64_t tag = 0;
  std::size_t model = 0;  // index into the models
  std::size_t input = 0;  // index into the model's inputs
  Time intended{};
};

// How late the generator itself was: what it measures is only as good as its own timing.
struct SenderLag {
  std::optional<double> p99_ms;  // open loops only; empty where nothing was sent
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

  // `on_settled` (may be empty) sees every request once, when its fate is known.
  Generator(const std::vector<ModelLoad>& models, const GeneratorOptions& options,
            OnSettled on_settled);

  // A request that is due and now counts as under way: the caller sends it, or calls failed().
  [[nodiscard]] std::optional<DueRequest> next(Time now);
  // When next() has something to give; kNever once everything was given out or waits for answers.
  [[nodiscard]] Time next_due() const;

  // An answer came. `correct` where the caller could judge it. False for a tag that is not under
  // way.
  struct Answer {
    Status status{};
    std::uint32_t batch_size = 0;
    Duration queued{};
    Duration executed{};
    std::optional<bool> correct{};
  };
  bool answered(std::uint64_t tag, const Answer& answer, Time now);
  // No answer will come: the connection was lost, or the request could not be sent at all (was_sent
  // false).
  bool failed(std::uint64_t tag, Status status, bool was_sent, Time now);
  // The wait is over: everything under way is an error with code timeout.
  void give_up(Time now);

  // Nothing meant for `now` or later is sent any more.
  void end_sending(Time now) {
    options_.duration = std::min(options_.duration, now.time_since_epoch());
  }
  [[nodiscard]] Time end() const { return Time(options_.duration); }

  // The model and input of a request under way.
  [[nodiscard]] std::optional<DueRequest> under_way(std::uint64_t tag) const;

  // Nothing is under way and nothing will be.
  [[nodiscard]] bool finished() const { return under_way_.empty() && next_due() == kNever; }

  [[nodiscard]] Progress progress() const;
  [[nodiscard]] std::vector<ModelRow> rows() const;
  [[nodiscard]] SenderLag sender_lag() const;
  [[nodiscard]] bool outstanding_limit_hit() const { return limit_hit_; }

 private:
  struct Stream {
    ModelLoad model;
    std::optional<ArrivalProcess> arrivals;  // open loops
    std::vector<Time>
        free_slots;           // closed loop: when each idle slot may send; a heap, earliest first
    Time due = kNever;        // open loops
    std::uint64_t given = 0;  // requests so far
    std::size_t outstanding = 0;
    Tally tally;
  };
  struct UnderWay {
    DueRequest request;
    Time sent{};
  };

  void advance(Stream& stream);
  [[nodiscard]] Time due(const Stream& stream) const;
  void settle(const RequestRecord& record);
  // Takes the request off the list and frees its slot; empty for an unknown tag.
  [[nodiscard]] std::optional<UnderWay> take(std::uint64_t tag, bool served, Time now);

  GeneratorOptions options_;
  OnSettled on_settled_;
  std::vector<Stream> streams_;
  std::unordered_map<std::uint64_t, UnderWay> under_way_;
  std::uint64_t last_tag_ = 0;
  Samples lag_ms_;
  bool limit_hit_ = false;
};

}  // namespace gpulet::load
