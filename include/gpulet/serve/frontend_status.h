// What is going on in a frontend, as FrontendCore::status() tells it: what the status document, the
// metrics and the dashboard are made of. Plain values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/control/node_control.h"
#include "gpulet/core/failure.h"
#include "gpulet/core/ids.h"
#include "gpulet/core/share.h"
#include "gpulet/core/time.h"
#include "gpulet/observe/bucket_histogram.h"
#include "gpulet/schedule/explanation.h"
#include "gpulet/schedule/plan.h"
#include "gpulet/serve/dispatcher.h"
#include "gpulet/serve/exclusions.h"
#include "gpulet/serve/fleet.h"
#include "gpulet/serve/messages.h"
#include "gpulet/serve/peer_rules.h"
#include "gpulet/serve/statistics.h"

namespace gpulet::serve {

// How a model fares whose executables are controlled. Of the last control period, where nothing
// else is said.
struct ModelControlStatus {
  double set_point_ms = 0;
  double response_ms = 0;  // the mean, or control::Options::percentile; 0: nothing to answer
  double gpu_part = 0;     // of what was answered, 0..1
  double cores_asked = 0;  // by its executables on all nodes
  double cores_given = 0;
  // Since the start: periods with something to answer, those of them above the objective, requests.
  std::uint64_t periods = 0;
  std::uint64_t violated_periods = 0;
  std::uint64_t on_gpu = 0;
  std::uint64_t on_cpu = 0;
  double core_seconds = 0;  // given

  friend bool operator==(const ModelControlStatus&, const ModelControlStatus&) = default;
};
// A node's CPU whose cores are controlled.
struct NodeControlStatus {
  schedule::DeviceKey key;
  double cores = 0;
  double asked = 0;
  double given = 0;
  double contention = 0;  // control::Granted::contention
};
struct ModelStatus {
  std::string name;
  ModelState state = ModelState::loading;
  std::string version;  // version_of what serves
  double slo_ms = 0;
  double rate_seen = 0;
  double rate_planned = 0;
  double rate_unserved = 0;
  std::string reason;  // why unserved, or what becomes of its next version
  std::size_t queued = 0;
  ModelCounters counters;
  double p50_ms = 0;
  double p99_ms = 0;
  ModelStatistics statistics;
  // What serves, counted among the versions under that name since the frontend's start.
  std::uint32_t number = 1;
  bool application = false;
  // Processes that ended while they ran its batches and nothing else, and how long it is still in
  // quarantine for that; zero: it is not.
  std::uint64_t crashes = 0;
  Duration quarantined_for{};
  std::optional<ModelControlStatus> control{};  // its executables are controlled
  Outcomes last_minute{};
  Outcomes latest{};  // of the last ten to twenty seconds
  // How long its batches run, by what the plan has for them (RecentPace); 0: unknown.
  double pace = 0;
  std::optional<schedule::MissingPlace> missing{};  // what the plan in force has no place for
  std::vector<std::string> calls{};                 // of an application: its models, by name
};
struct GpuletStatus {
  GpuletId id;
  FleetGpulet gpulet;
  std::optional<schedule::PlannedGpulet> planned;  // its part of the plan in force
  std::size_t in_flight = 0;
  double busy = 0;  // of the last tick
  Dispatcher::GpuletStatistics statistics;
  std::optional<control::Cores> cores{};  // of an executable that is controlled
  double pace = 0;                        // as ModelStatus::pace, of all its batches
};
struct DeviceStatus {
  schedule::DeviceKey key;
  std::string type;
  Share used;                    // of the gpulets of the plan in force, together
  double busy = 0;               // these gpulets' busy fractions, by their shares
  double memory_mb = 0;          // 0: not limited
  double planned_memory_mb = 0;  // of all models in its gpulets, as profiled
  DevicePower power{};           // as its backend told it last
};
// Since the frontend's start.
struct ReorganisationCounters {
  std::uint64_t plans = 0;  // that came into force
  std::uint64_t devices_taken = 0;
  std::uint64_t devices_given_back = 0;
  std::uint64_t unschedulable = 0;  // plans that leave some rate without a place
  Duration last_took{};             // from the decision to serving
  Duration longest_took{};
  observe::BucketHistogram took{};
};
// Something that happened, in words. One that happens again within a minute replaces the one before
// and counts on.
struct StatusEvent {
  enum class Kind : std::uint8_t {
    note = 0,
    reorganisation,  // of a decision that moves gpulets
    // Of these each replaces the one before, whatever they say.
    other_rates,  // of a decision that moves none
    shortage,     // what has no place
  };
  Time time{};  // the last time
  std::string text;
  bool warning = false;
  Kind kind = Kind::note;
  std::uint64_t plan = 0;   // the decision that it tells of (PlanDecision::number); 0: none
  std::uint64_t count = 1;  // how often it happened
};
// A plan that was decided on: what it has where, and why. Never changes.
struct PlanDecision {
  std::uint64_t number = 0;  // counts from 1
  Time decided{};
  std::string summary;  // what it does and why, in words
  schedule::Plan plan;
  std::vector<bool> created;          // beside plan.gpulets: it is new
  std::size_t retired = 0;            // gpulets of the plan before
  schedule::Explanation explanation;  // of the plan

  // Gpulets come or go; otherwise the same ones get other rates, batches or models' versions.
  [[nodiscard]] bool moves_gpulets() const;
};
// A decision that came into force.
struct PlanInForce {
  std::shared_ptr<const PlanDecision> decision;  // never null
  Epoch epoch;                                   // its last stage's
  Time since{};                                  // the same
  Duration took{};                               // from the decision until then
};
struct FrontendStatus {
  std::string state;
  bool ready = false;  // takes requests and has somebody to serve them
  std::string policy;
  Epoch epoch;
  bool reorganising = false;
  bool schedulable = true;
  ReorganisationCounters reorganisations;
  std::map<BackendId, FleetBackend> backends;
  std::vector<DeviceStatus> devices;               // by key
  std::vector<Exclusion> exclusions;               // those in force, by node, then device
  std::map<FailureCause, std::uint64_t> failures;  // of gpulets, since the frontend's start
  PeerViolations violations{};                     // of backends, since the frontend's start
  std::vector<GpuletStatus> gpulets;
  std::vector<ModelStatus> models;
  std::vector<std::string> leaving;  // models that were removed, until the last is answered
  std::shared_ptr<const std::vector<std::string>> unloaded{};  // as in Catalogue
  std::vector<NodeControlStatus> controlled_nodes;             // by key
  std::deque<StatusEvent> events;                              // the last ones
  std::deque<PlanInForce> plans;  // the last ones; the newest is in force
  // What is wrong with the files that say what to serve, each with its place.
  std::vector<std::string> file_problems;
};

}  // namespace gpulet::serve
