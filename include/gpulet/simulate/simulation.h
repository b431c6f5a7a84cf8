// Simulation of the serving engine in virtual time under a load (docs/simulator.md).
//
// The load starts when the first plan, which is for the demanded rates, is in force. It lasts for
// the given time; the run ends when every request is answered. Equal arguments give equal outcomes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/config/cluster_config.h"
#include "gpulet/control/node_control.h"
#include "gpulet/profile/interference.h"
#include "gpulet/profile/profile.h"
#include "gpulet/schedule/plan.h"
#include "gpulet/schedule/policy.h"
#include "gpulet/serve/values/application.h"
#include "gpulet/serve/values/served_model.h"

namespace gpulet::simulate {

// ---- input

struct VirtualTimings {
  Duration link = std::chrono::microseconds(100);  // latency between frontend and backend, one way
  Duration process_start = std::chrono::milliseconds(400);
  Duration model_load = std::chrono::milliseconds(300);  // per model; a gpulet loads one at a time
  Duration planning = std::chrono::milliseconds(1);
  double pace = 1;  // batches take this multiple of their profile's time, unknown to the frontend
  // The coefficient of variation of the time of a batch; empty: that of the profile, 0 where it has
  // none. Drawn with the seed.
  std::optional<double> batch_cv;
  std::uint64_t batch_seed = 1;
  // Processes with controlled cores run all of their batches at the same time, in place of one
  // after the other; they hold so many.
  std::uint32_t batches_at_once = 1;
};

// Profiles, interference and the policy of a run. May be shared by runs on several
// threads. `policy` outlives the runs.
struct Knowledge {
  std::shared_ptr<const profile::ProfileSet> profiles;
  // The interference that the policy assumes; refers to the profiles.
  std::shared_ptr<const profile::InterferenceSet> believed;
  // The interference that batches experience, from simulated_interference(); refers to the
  // profiles.
  std::shared_ptr<const profile::InterferenceSet> simulated;
  const schedule::Policy* policy = nullptr;
};

// The interference of all profiles that know any: measured where two batches were measured
// together, elsewhere predicted (InterferenceKind::combined).
[[nodiscard]] std::shared_ptr<const profile::InterferenceSet> simulated_interference(
    const profile::ProfileSet& profiles);

struct SimulationInput {
  schedule::Cluster cluster;
  std::vector<schedule::ModelDemand> demands;
  schedule::PlanOptions options;
  // Their requests go to the frontend by name, which calls the models of `demands`. The demands
  // have the rates of the models' own clients.
  std::vector<config::ApplicationDemand> applications{};
};

// A request in the frontend's queue at the start or the end of a load.
struct WaitingRequest {
  std::size_t model = 0;  // index of the demand
  Duration age{};         // since it arrived

  friend bool operator==(const WaitingRequest&, const WaitingRequest&) = default;
};

struct SimulationOptions {
  double seconds = 60;
  std::uint64_t seed = 1;
  // Null: the requests of each model and application arrive as a Poisson process with its demanded
  // rate.
  std::shared_ptr<const config::Trace> trace;
  // Keeps the first plan in force, and makes it for exactly the demanded rates. Otherwise plans are
  // for some growth on top (serve::DemandOptions::growth).
  bool keep_plan = false;
  // Ends the run before the load if the first plan leaves demand unserved.
  bool only_schedulable = false;
  Duration period = std::chrono::seconds(20);  // of the scheduler
  control::Options control;                    // of instances with controlled cores
  VirtualTimings timings;
  std::optional<Duration> series_step;  // length of a row of the series; empty: no series
  // Requests of an earlier run, which wait when the load starts.
  std::vector<WaitingRequest> waiting;
  // The run answers the batches that execute when the load ends, and leaves the requests that still
  // wait: Outcome::left has them, and no other figure counts them. REQUIRES: one frontend, no
  // applications.
  bool leave_waiting = false;
  // Of one cluster. The first one leads, requests arrive at all of them in turn, and a message
  // between two takes as long as one to a backend.
  std::uint32_t frontends = 1;
};

// ---- outcome

// Core control of one model during the load.
struct ControlOutcome {
  std::uint64_t periods = 0;           // control periods with requests
  std::uint64_t violated_periods = 0;  // those with a response time above the objective
  std::uint64_t on_gpu = 0;            // requests served on GPUs
  std::uint64_t on_cpu = 0;            // requests served on CPUs
  double core_seconds = 0;             // assigned to the model's instances

  friend bool operator==(const ControlOutcome&, const ControlOutcome&) = default;
};

// Of the requests of clients for a model or an application. Calls by applications do not count.
struct ModelOutcome {
  std::string name;
  std::uint64_t offered = 0;
  std::uint64_t served = 0;
  std::uint64_t dropped = 0;  // refused: too late, or queue full
  std::uint64_t late = 0;     // served after the SLO
  std::uint64_t errors = 0;   // refused for another reason: no gpulet for the model
  std::uint64_t waiting = 0;  // unanswered when the load ended
  // Response times of served requests; percentiles are exact to a thousandth of the SLO.
  std::optional<double> p50_ms;
  std::optional<double> p99_ms;
  double mean_ms = 0;  // these three are 0 without served requests
  double most_ms = 0;
  double deviation_ms = 0;                // standard deviation
  std::optional<ControlOutcome> control;  // set if the model has instances with controlled cores
  double slo_ms = 0;
  double violation = 0;  // (late + dropped + errors) / offered; 0 without offered requests

  friend bool operator==(const ModelOutcome&, const ModelOutcome&) = default;
};

// A plan came into force. The first one is at time 0.
struct Reorganisation {
  double time_s = 0;
  std::uint32_t devices = 0;
  std::uint64_t gpulets = 0;
  std::int64_t share_percent = 0;  // sum over all gpulets

  friend bool operator==(const Reorganisation&, const Reorganisation&) = default;
};

// One step of the series. The vectors have one entry per model, in the order of the outcome; those
// of requests and responses have one per application after these.
struct SeriesRow {
  double start_s = 0;
  double devices = 0;                     // mean
  double share_percent = 0;               // mean of the sum over all gpulets
  std::vector<std::uint64_t> offered;     // by time of arrival
  std::vector<std::uint64_t> violations;  // by time of arrival
  std::vector<double> batch_planned;  // mean over the model's gpulets of their largest batch at the
                                      // end of the row; 0 without gpulets
  // Rate of the planned batches back to back (b/t of InSS, section 4.1), summed over the model's
  // gpulets at the end of the row. t is the time of all batches of the gpulet, with the slowdown by
  // those planned beside them, whatever the plan expects of it.
  std::vector<double> batch_rate;
  std::vector<double> batch_run;    // mean size of executed batches; 0 without batches
  std::vector<double> response_ms;  // mean of the responses in the row; 0 without responses
  std::vector<double> cores;        // mean number assigned to instances with controlled cores

  friend bool operator==(const SeriesRow&, const SeriesRow&) = default;
};

struct Outcome {
  std::vector<ModelOutcome> models;  // in the order of the demands
  // In the order of the input. The objective and the response times are those of whole requests.
  std::vector<ModelOutcome> applications;
  double violation = 0;            // over all requests for models and applications
  std::uint32_t devices_used = 0;  // maximum
  double devices_mean = 0;
  double core_seconds = 0;       // of CPUs: reserved by gpulets with rounds, assigned to instances
  double core_seconds_busy = 0;  // of these, the ones during which batches ran
  schedule::Plan first_plan;
  std::uint64_t plans = 0;  // made until the end of the load
  std::vector<Reorganisation> reorganisations;
  std::vector<SeriesRow> series;
  double mean_batch = 0;             // of the batches executed during the load; 0 without any
  std::vector<WaitingRequest> left;  // the oldest first; empty without leave_waiting
  std::uint64_t requests = 0;
  std::uint64_t events = 0;  // requests, messages, batches, timers
};

// Pure; any thread. Fails with invalid if validate() refuses the input, the devices of a node are
// not numbered from 0, the trace names a model or application without demand, served_load() refuses
// an application, or `seconds` is out of range. Fails with internal if a plan breaks the rules or a
// request gets no response; both are bugs.
[[nodiscard]] Result<Outcome> simulate(const Knowledge& knowledge, const SimulationInput& input,
                                       const SimulationOptions& options);

// ---- applications
//
// Applications of a demand file, for simulations and for plans without a frontend. Pure; any
// thread.

// What clients send requests to.
struct Load {
  std::vector<schedule::ModelDemand> models;  // of their own clients
  std::vector<config::ApplicationDemand> applications{};
};

struct ServedLoad {
  std::vector<serve::ServedModel> models;
  serve::ApplicationList applications;
};

// The models and applications as a frontend serves them, with objectives divided by
// serve::split_objective(). Models that applications call have tensors of a few bytes, the others
// have none. Fails with invalid if an application calls a model that is not in the load, has the
// name of another entry, or has an objective that no plan can meet.
[[nodiscard]] Result<ServedLoad> served_load(const Load& load, const profile::ProfileSet& profiles);

// The demands to plan for: the models', with the rates and the smallest budgets of the calls of
// applications. In the order of the models. Fails like served_load().
[[nodiscard]] Result<std::vector<schedule::ModelDemand>> planned_demands(
    const Load& load, const profile::ProfileSet& profiles);

}  // namespace gpulet::simulate
