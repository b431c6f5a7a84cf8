// What became of the requests and which plans were in force, counted as it happens. One thread at a
// time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/schedule/plan.h"
#include "gpulet/simulate/simulation.h"

namespace gpulet::simulate {

// Latencies in bins of a thousandth of the SLO up to four SLOs; the few above are kept as they are.
class LatencyBins {
 public:
  explicit LatencyBins(Duration slo) : bin_(std::max(slo / 1000, Duration(1))) {}

  void add(Duration latency);
  // What that fraction of the latencies does not exceed; empty without any.
  [[nodiscard]] std::optional<double> percentile_ms(double fraction) const;

 private:
  static constexpr std::size_t kBins = 4000;

  Duration bin_;
  std::vector<std::uint32_t> bins_ = std::vector<std::uint32_t>(kBins, 0);
  std::vector<Duration> above_;
  std::uint64_t count_ = 0;
};

class Tally {
 public:
  Tally(const std::vector<schedule::ModelDemand>& demands, const SimulationOptions& options);

  // The load starts; the plan that is in force counts from now.
  void start(Time now);
  void offered(std::size_t model, Time now);
  void answered(std::size_t model, Time arrived, Time now, const Status& status);
  void plan_in_force(const schedule::Plan& plan, Time now);
  void load_ended();
  // A row of the series is over, in which so many batches were run of each model, with so many
  // requests together.
  struct BatchesRun {
    std::uint64_t batches = 0;
    std::uint64_t requests = 0;
    double core_seconds = 0;
  };
  void row_ended(std::size_t row, const schedule::Plan& plan, std::span<const BatchesRun> run);

  // Writes counts, percentiles, devices and series into the outcome. `end`: of the load.
  void finish(Time end, Outcome& outcome);

 private:
  struct Model {
    ModelOutcome counts;
    Duration slo{};
    LatencyBins latencies;
    double sum_ms = 0;
    double squares_ms = 0;
    std::vector<std::uint64_t> answered{};  // beside the series
  };
  [[nodiscard]] SeriesRow* row_at(Time time);
  void use_until(Time now);
  void count_response(Model& of, std::size_t model, double latency_ms, Time now);
  void finish_responses(Model& of, std::size_t model);

  std::vector<Model> models_;
  std::optional<Duration> step_;
  double seconds_;
  std::optional<Time> start_;
  Time used_until_{};
  Reorganisation in_force_;
  double device_seconds_ = 0;
  std::uint32_t most_devices_ = 0;
  std::vector<Reorganisation> reorganisations_;
  std::vector<SeriesRow> series_;
};

}  // namespace gpulet::simulate
