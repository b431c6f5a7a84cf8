// The clients of a simulation: Arrivals generates the load, OutcomeRecorder counts the responses
// and the plans in force, SimulatedClients connects both to a VirtualCluster. They number what they
// send to: the models in the order of the demands, then the applications. Pure; one thread at a
// time.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/config/cluster_config.h"
#include "gpulet/schedule/plan.h"
#include "gpulet/simulate/simulation.h"
#include "simulate/virtual_frontends.h"

namespace gpulet::simulate {

// What clients send requests to.
struct Target {
  std::string name;
  double rate = 0;
  double slo_ms = 0;
};
[[nodiscard]] std::vector<Target> targets_of(const SimulationInput& input);

// The merged arrivals at all targets in [start, start + seconds), generated on demand.
class Arrivals {
 public:
  // An empty trace leaves the demanded rates. The trace outlives this.
  Arrivals(const std::vector<Target>& targets, const config::Trace& trace, std::uint64_t seed,
           Time start, double seconds);

  [[nodiscard]] Time next() const { return heap_.empty() ? kNever : heap_.front().time; }
  // Removes the next arrival and returns its target. Simultaneous arrivals come in the order of the
  // targets. REQUIRES: next() is not kNever.
  std::size_t take();

 private:
  struct Next {
    Time time;
    std::size_t target = 0;
    friend auto operator<=>(const Next&, const Next&) = default;
  };
  // The next arrival at the target; kNever at the end.
  [[nodiscard]] Time advance(std::size_t target);

  Time start_;
  double seconds_;
  std::vector<config::TraceArrivals> streams_;  // by target
  std::vector<Next> heap_;                      // the earliest in front
};

// A histogram with bins of a thousandth of the SLO up to four SLOs; larger latencies are exact.
class LatencyBins {
 public:
  explicit LatencyBins(Duration slo) : bin_(std::max(slo / 1000, Duration(1))) {}

  void add(Duration latency);
  // The latency that `fraction` of the samples do not exceed; empty without samples.
  [[nodiscard]] std::optional<double> percentile_ms(double fraction) const;

 private:
  static constexpr std::size_t kBins = 4000;

  Duration bin_;
  std::vector<std::uint32_t> bins_ = std::vector<std::uint32_t>(kBins, 0);
  std::vector<Duration> above_;
  std::uint64_t count_ = 0;
};

class OutcomeRecorder {
 public:
  OutcomeRecorder(const SimulationInput& input, const SimulationOptions& options);

  // The load starts under the plan in force.
  void start(Time now);
  void offered(std::size_t target, Time now);
  void answered(std::size_t target, Time arrived, Time now, const Status& status);
  void plan_in_force(const schedule::Plan& plan, Time now);
  // Later plans serve what is left of the load, and are not part of the outcome.
  void load_ended();
  // A request that was offered is left for another run.
  void left(std::size_t target, Time arrived);
  // What one model executed during a row of the series.
  struct BatchesRun {
    std::uint64_t batches = 0;
    std::uint64_t requests = 0;
    double core_seconds = 0;
  };
  void row_ended(std::size_t row, const schedule::Plan& plan, std::span<const BatchesRun> run);

  // Writes counts, percentiles, devices and series into the outcome. `end`: of the load.
  void finish(Time end, Outcome& outcome);

 private:
  struct Counted {
    ModelOutcome counts;
    Duration slo{};
    LatencyBins latencies;
    double sum_ms = 0;
    double squares_ms = 0;
    std::vector<std::uint64_t> answered{};  // by row of the series
  };
  // Null without a series.
  [[nodiscard]] SeriesRow* row_at(Time time);
  void use_until(Time now);
  void count_response(Counted& of, std::size_t target, double latency_ms, Time now);
  void finish_responses(Counted& of, std::size_t target);

  std::vector<Counted> targets_;
  std::size_t models_;  // the first of the targets
  std::optional<Duration> step_;
  double seconds_;
  std::optional<Time> start_;
  bool ended_ = false;
  Time used_until_{};
  Reorganisation in_force_;
  double device_seconds_ = 0;
  std::map<schedule::DeviceKey, double> cores_;  // of each CPU
  double cores_reserved_ = 0;                    // by the plan in force
  double core_seconds_ = 0;
  std::uint32_t most_devices_ = 0;
  std::vector<Reorganisation> reorganisations_;
  std::vector<SeriesRow> series_;
};

// `input` and `options` outlive this.
class SimulatedClients : public VirtualClients {
 public:
  SimulatedClients(const SimulationInput& input, const ServedLoad& load,
                   const SimulationOptions& options);

  void start(Time now);

  [[nodiscard]] Time next_request() const override { return next_; }
  InferRequest take_request() override;
  [[nodiscard]] Duration age_of_taken() const override { return age_of_taken_; }
  void answered(InferReply reply, Time now) override;
  void plan_in_force(const schedule::Plan& plan, Time now) override {
    recorder_.plan_in_force(plan, now);
  }

  // Leaves the youngest requests of each model, as many as the frontend has queued. Their answers
  // do not count. Returns them, the oldest first.
  std::vector<WaitingRequest> leave(std::span<const std::size_t> queued, Time now);

  [[nodiscard]] std::size_t outstanding() const { return pending_.size() - free_.size(); }
  [[nodiscard]] OutcomeRecorder& recorder() { return recorder_; }

 private:
  struct Pending {
    Time arrived{};
    std::size_t target = 0;
    bool outstanding = false;
    bool left = false;
  };
  const SimulationInput& input_;
  const SimulationOptions& options_;
  std::vector<InferRequest> requests_;  // without a tag, by target
  OutcomeRecorder recorder_;
  const config::Trace no_trace_;
  std::optional<Arrivals> arrivals_;  // set once the load has started
  std::size_t taken_waiting_ = 0;     // of options_.waiting
  Time next_ = kNever;
  Duration age_of_taken_{};
  std::vector<Pending> pending_;     // by tag, except for the tags in free_
  std::vector<std::uint64_t> free_;  // tags
};

}  // namespace gpulet::simulate
