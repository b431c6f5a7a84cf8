// One run of the engine in virtual time under a load, and what became of it. docs/simulator.md.
//
// The load starts when the first plan, for the demands' rates, is in force, lasts for the given
// time, and every request is answered before the run ends. The same arguments give the same
// outcome, always. Pure; calls on several threads may share the Knowledge.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/control/options.h"
#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/schedule/policy.h"
#include "gpulet/simulate/trace.h"
#include "gpulet/simulate/world.h"

namespace gpulet::simulate {

struct SimulationOptions {
  double seconds = 60;
  std::uint64_t seed = 1;
  // Without one, every model's requests arrive at random (Poisson) at its rate of the demand.
  std::shared_ptr<const Trace> trace;
  // The first plan stays in force whatever happens. It is made for the demands' rates as they are;
  // otherwise some growth is added (serve::DemandOptions::growth).
  bool keep_plan = false;
  // A first plan that leaves demand unserved ends the run: nothing is offered.
  bool only_schedulable = false;
  Duration period = std::chrono::seconds(20);  // of the scheduler
  control::Options control;                    // of executables whose cores are controlled
  WorldOptions world;
  std::optional<Duration> series_step;  // a row of the series for each; empty: no series
};

// What is simulated. `plan.current` and `plan.interference` are not looked at.
struct Scene {
  schedule::Cluster cluster;
  std::vector<schedule::ModelDemand> demands;
  schedule::PlanOptions options;
};

// What control did for a model, while the load lasted.
struct ControlOutcome {
  std::uint64_t periods = 0;           // of control, with something to answer
  std::uint64_t violated_periods = 0;  // of them: the response time was above the objective
  std::uint64_t on_gpu = 0;            // requests
  std::uint64_t on_cpu = 0;
  double core_seconds = 0;  // given to its executables

  friend bool operator==(const ControlOutcome&, const ControlOutcome&) = default;
};

struct ModelOutcome {
  std::string name;
  std::uint64_t offered = 0;
  std::uint64_t served = 0;
  std::uint64_t dropped = 0;     // refused: too late, or too many waiting
  std::uint64_t late = 0;        // of the served: answered after the SLO
  std::uint64_t errors = 0;      // refused for another reason: no place for the model
  std::uint64_t waiting = 0;     // of the offered: not answered yet when the load ended
  std::optional<double> p50_ms;  // of the served, right to a thousandth of the SLO
  std::optional<double> p99_ms;
  // Of the served, too: 0 without any.
  double mean_ms = 0;
  double most_ms = 0;
  double deviation_ms = 0;                // standard
  std::optional<ControlOutcome> control;  // its executables are controlled
  double slo_ms = 0;
  double violation = 0;  // (late + dropped + errors) / offered; 0 where none was offered

  friend bool operator==(const ModelOutcome&, const ModelOutcome&) = default;
};

// A plan came into force. The first one does so at time 0.
struct Reorganisation {
  double time_s = 0;
  std::uint32_t devices = 0;
  std::uint64_t gpulets = 0;
  std::int64_t share_percent = 0;  // of all gpulets together

  friend bool operator==(const Reorganisation&, const Reorganisation&) = default;
};

// Means over one step of the series; requests count where they arrived.
struct SeriesRow {
  double start_s = 0;
  double devices = 0;
  double share_percent = 0;
  std::vector<std::uint64_t> offered;     // beside the outcome's models
  std::vector<std::uint64_t> violations;  // likewise
  // At the row's end: the largest batch of the plan in force, the mean over the model's gpulets;
  // and what the batches of the row were in the mean. 0: none.
  std::vector<double> batch_planned;  // likewise
  std::vector<double> batch_run;      // likewise
  std::vector<double> response_ms;    // likewise; the mean of what was answered in the row, or 0
  std::vector<double> cores;          // likewise; given to executables that are controlled

  friend bool operator==(const SeriesRow&, const SeriesRow&) = default;
};

struct Outcome {
  std::vector<ModelOutcome> models;  // in the order of the demands
  double violation = 0;              // of all together
  std::uint32_t devices_used = 0;    // the most at one time
  double devices_mean = 0;
  bool schedulable = false;                  // the first plan covers its whole demand
  std::vector<schedule::Unserved> unserved;  // by the first plan
  std::uint64_t plans = 0;                   // made, while the load ran and before
  std::vector<Reorganisation> reorganisations;
  std::vector<SeriesRow> series;
  std::uint64_t requests = 0;
  std::uint64_t events = 0;  // requests, messages, batches, timers
};

// Fails with invalid (validate() refuses the input, a node's devices are not numbered from 0, the
// trace names a model that the demands lack, no seconds) or internal (a plan that breaks the rules,
// a request that nobody answered: bugs).
[[nodiscard]] Result<Outcome> simulate(const Knowledge& knowledge, const Scene& scene,
                                       const SimulationOptions& options);

}  // namespace gpulet::simulate
