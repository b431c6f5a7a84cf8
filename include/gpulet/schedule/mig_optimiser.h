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
#include <vector>

#include "gpulet/partition/mig_geometry.h"
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
