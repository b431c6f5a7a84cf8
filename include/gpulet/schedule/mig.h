// MIG-serving's optimiser (Tan et al., section 5 and appendix A): the fewest devices that serve a
// set of services, and the lower bounds that it is compared with (sections 2.3 and 8.1).
//
// All algorithms skip services that no profile can serve. Pure: time, randomness and threads are
// arguments. The same arguments give the same deployment for any number of threads. Any thread.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/partition/mig_geometry.h"
#include "gpulet/schedule/plan.h"
#include "gpulet/schedule/policy.h"

namespace gpulet::schedule::mig {

// A model with the throughput that it must reach.
struct Service {
  std::string name;
  double need = 0;  // requests per second; finite, above 0
  // Indexed like MigGeometry::profiles(): the maximum requests per second of one instance within
  // the latency objective; 0 where the instance is too slow or too small.
  std::vector<double> rate_on;

  friend bool operator==(const Service&, const Service&) = default;
};

// The services to deploy, on devices of one geometry.
struct DeploymentTask {
  partition::MigGeometry geometry;
  std::vector<Service> services;
};

struct PlacedService {
  partition::MigInstance instance;
  std::uint32_t service = 0;  // index in DeploymentTask::services

  friend auto operator<=>(const PlacedService&, const PlacedService&) = default;
};

// The instances of one device, sorted by start.
using DeviceConfiguration = std::vector<PlacedService>;

struct Deployment {
  std::vector<DeviceConfiguration> devices;

  friend bool operator==(const Deployment&, const Deployment&) = default;
};

// The rate that the instance gives its service; 0 where the geometry lacks its profile. REQUIRES:
// the service is one of the task's.
[[nodiscard]] double rate_of(const PlacedService& placed, const DeploymentTask& task);

// The total rate of each service, indexed like DeploymentTask::services.
[[nodiscard]] std::vector<double> throughput(const Deployment& deployment,
                                             const DeploymentTask& task);

// One sentence for each fault: an illegal layout, an unknown service, an instance that cannot serve
// its service, an empty device, an unmet need. Empty for a valid deployment.
[[nodiscard]] std::vector<std::string> faults(const Deployment& deployment,
                                              const DeploymentTask& task);

// Adds the configuration with the highest score, the sum over services of
// (1 - completion) * utility, until all services are satisfied. A configuration mixes two services,
// or more once a service is almost satisfied (appendix A.1).
[[nodiscard]] Deployment greedy(const DeploymentTask& task);

// Calls body(0..count-1) in any order and on any threads, and returns when all calls are done.
using ForEach =
    std::function<void(std::size_t count, const std::function<void(std::size_t)>& body)>;
void run_sequentially(std::size_t count, const std::function<void(std::size_t)>& body);

struct Progress {
  std::uint32_t round = 0;  // 0: the greedy deployment
  std::size_t devices = 0;  // of the best deployment so far
  double lower_bound = 0;   // lower_bound(task)
};

struct TwoPhaseOptions {
  std::uint64_t seed = 1;
  std::uint32_t rounds_without_gain = 10;  // stops after so many
  std::uint32_t most_rounds = 1000;
  // Called with the greedy deployment and after every round, on the caller's thread; false stops
  // the search. The search also stops at lower_bound_of_whole_instances().
  std::function<bool(const Progress&)> go_on = [](const Progress&) { return true; };
  ForEach for_each = run_sequentially;
};

// The greedy deployment, improved by a genetic algorithm. A crossover erases devices and refills
// the gap by Monte Carlo tree search; a mutation swaps services between instances of one profile.
// Returns the best deployment of all rounds.
[[nodiscard]] Deployment two_phase(const DeploymentTask& task, const TwoPhaseOptions& options);

// Lower bounds on the number of devices, from loose to tight.
//
// Ignores MIG's placement rules: each service takes its most efficient profile, measured in slices
// of the whole device (section 8.1).
[[nodiscard]] double lower_bound_without_rules(const DeploymentTask& task);
// Respects the placement rules, but allows fractions of devices and instances: a linear program
// over the maximal layouts. Valid however the program rounds.
[[nodiscard]] double lower_bound(const DeploymentTask& task);
// At the program's prices, each service takes the cheapest whole instances that suffice. A service
// with too many combinations to try counts as in lower_bound().
[[nodiscard]] double lower_bound_of_whole_instances(const DeploymentTask& task);

}  // namespace gpulet::schedule::mig

namespace gpulet::schedule {

// The policy mig-two-phase with another seed, time limit or number of threads than make_policy()
// gives it.
[[nodiscard]] std::unique_ptr<Policy> make_mig_two_phase(mig::TwoPhaseOptions options);

}  // namespace gpulet::schedule

// ---- transition
//
// Exchange-and-compact (MIG-serving, section 6): changes one deployment into another without
// interrupting a service.
//
// At every moment each service has at least the smaller of its old and its new rate. New instances
// are created before the instances that they replace are removed: on free slices, then on devices
// that neither deployment uses. Temporary replicas are migrated to their final slots afterwards,
// within a node before across nodes. Fewer free devices mean more stages. Instances that are
// already in their final slot never move. A transition always exists where at least as many devices
// are free as `from` uses, of the same types. Pure; any thread.
//
// An instance that keeps its services needs no action. During the transition it counts with the
// larger of its old and new rate, because its capacity does not change. A slot whose services
// change is a removal followed, one stage later, by a creation.

namespace gpulet::schedule::mig {

struct ServiceRate {
  std::uint32_t service = 0;  // index in TransitionTask::services
  double rate = 0;            // requests per second

  friend bool operator==(const ServiceRate&, const ServiceRate&) = default;
};

// An instance with the services that it runs: usually one, several where they take turns.
struct ServingInstance {
  std::uint32_t device = 0;  // index in TransitionTask::devices
  partition::MigInstance instance;
  std::vector<ServiceRate> parts;  // sorted by service, each once

  friend bool operator==(const ServingInstance&, const ServingInstance&) = default;
};

struct TransitionDevice {
  std::string node;
  partition::MigGeometry geometry;
  std::uint32_t number = 0;  // within its node, for pictures
};

struct TransitionTask {
  std::vector<TransitionDevice> devices;  // all devices that may be used on the way
  std::vector<std::string> services;
  std::vector<ServingInstance> from;  // a legal layout on every device, no instance twice
  std::vector<ServingInstance> to;    // likewise
};

enum class ActionKind : std::uint8_t {
  create,       // starts services on an existing, idle GPU instance
  remove,       // stops the services; the GPU instance stays idle until a repartition destroys it
  migrate,      // creates the services on another instance, then removes them here
  repartition,  // replaces idle GPU instances of a device by others
};
[[nodiscard]] std::string_view to_string(ActionKind kind);

struct Action {
  ActionKind kind = ActionKind::create;
  std::uint32_t stage = 0;  // index in Transition::stages
  std::uint32_t device = 0;
  // The instance that is created, removed or migrated to; for a repartition the first new one.
  ServingInstance target;
  // The source of a migration.
  std::uint32_t from_device = 0;
  partition::MigInstance from_instance;
  // A repartition destroys the instances in `cut` and makes those in `made`. All of them are idle.
  std::vector<partition::MigInstance> cut, made;
  // Indices, below its own, of the actions that must be complete first. Actions that do not depend
  // on each other may run at once.
  std::vector<std::size_t> after;
};

// A stage first creates instances beside everything that serves and then removes others. The next
// stage creates only in slots that are free by then.
struct Stage {
  std::vector<ServingInstance> created;
  std::vector<ServingInstance> removed;
  std::vector<ServingInstance> after;  // all that serve at the end, sorted by device and start
  std::size_t devices_in_use = 0;      // after the creations, before the removals
  // Indexed by service: the lower of its rates before the stage and after the stage's removals.
  std::vector<double> least_rate;
};

struct Transition {
  std::vector<Stage> stages;  // empty where the deployments differ in rates at most
  std::vector<Action> actions;
  std::size_t extra_devices = 0;  // used on the way beyond the larger of both deployments
};

// Fails with invalid for a malformed task, and with unavailable where no order of creations and
// removals keeps the rates of all services; the message says how many more free devices would
// suffice.
[[nodiscard]] Result<Transition> plan_transition(const TransitionTask& task);

struct ActionCounts {
  std::size_t created = 0, removed = 0, migrated_within_nodes = 0, migrated_across_nodes = 0,
              repartitions = 0;
};
[[nodiscard]] ActionCounts count_actions(const Transition& transition, const TransitionTask& task);

}  // namespace gpulet::schedule::mig

namespace gpulet::schedule {

// The stages from the running plan to a new one where MIG divides devices. An instance can replace
// others only after they are gone, so intermediate plans may be needed. Each can be rolled out next
// to the previous one without stopping anything that is still needed.
struct StagedPlan {
  // One per stage; the last is `to`. Only `to` without MIG or where one step is enough.
  std::vector<Plan> plans;
  // The problem that was solved: the devices that MIG divides, and the models as services.
  mig::TransitionTask task;
  mig::Transition transition;
};

// In `task`, the gpulets of one instance count as one with the sum of their rates. Devices without
// MIG take their gpulets of `to` from the first stage on. Temporary instances may be on any device
// of the cluster that MIG divides. Fails with unavailable where too few of them are free
// (mig::plan_transition), and with invalid for instances that the cluster's devices
// cannot have.
[[nodiscard]] Result<StagedPlan> stage_plan(const Plan& from, const Plan& to,
                                            const Cluster& cluster);

}  // namespace gpulet::schedule
