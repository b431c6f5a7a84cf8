// The fewest devices that serve a task: MIG-serving's optimiser (section 5, appendix A) and the
// baselines and bounds that it is measured against (sections 2.3 and 8.1).
//
// Services that no profile serves are left out by everybody. Pure: time, randomness and threads
// come in as arguments; the same arguments give the same deployment, whatever the number of
// threads. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "gpulet/mig/deployment.h"

namespace gpulet::mig {

// The fast algorithm: the configuration with the highest score, the sum over services of
// (1 - completion) * utility, until all are satisfied. Configurations mix two services; more, once
// a service is almost satisfied (appendix A.1).
[[nodiscard]] Deployment greedy(const Task& task);

// Calls body(0..count-1), in any order and on any threads, and returns when all are done.
using ForEach =
    std::function<void(std::size_t count, const std::function<void(std::size_t)>& body)>;
void one_after_another(std::size_t count, const std::function<void(std::size_t)>& body);

struct Progress {
  std::uint32_t round = 0;  // 0: the greedy deployment
  std::size_t devices = 0;  // of the best so far
  double lower_bound = 0;   // lower_bound(task)
};

struct TwoPhaseOptions {
  std::uint64_t seed = 1;
  std::uint32_t rounds_without_gain = 10;  // after which it stops
  std::uint32_t most_rounds = 1000;
  // Asked with the greedy deployment and after every round, on the caller's thread; false stops.
  // Once lower_bound_of_whole_instances() is met nobody goes on.
  std::function<bool(const Progress&)> go_on = [](const Progress&) { return true; };
  ForEach for_each = one_after_another;
};

// The greedy deployment, improved by a genetic algorithm: a crossover erases devices and fills the
// gap by Monte Carlo tree search, a mutation swaps services between instances of one profile; the
// best is kept.
[[nodiscard]] Deployment two_phase(const Task& task, const TwoPhaseOptions& options);

// Static partitions. Each service gets what serves it.
[[nodiscard]] Deployment whole_devices(const Task& task);    // one 7g (4g on an A30) a device
[[nodiscard]] Deployment small_instances(const Task& task);  // 1g everywhere
[[nodiscard]] Deployment fixed_mix(const Task& task);        // 4-2-1, one service a device

// Devices that any deployment uses at least, where instances of any sizes may be combined: each
// service takes its most efficient profile, by slices of the whole (section 8.1).
[[nodiscard]] double lower_bound_without_rules(const Task& task);
// The same, tighter: under MIG's rules, with fractions of devices and of instances (a linear
// program over the maximal layouts). Holds whatever the program's rounding.
[[nodiscard]] double lower_bound(const Task& task);
// Tighter again: at the program's prices each service takes the cheapest whole instances that
// suffice. Where too many combinations would have to be tried, a service counts as in the program.
[[nodiscard]] double lower_bound_of_whole_instances(const Task& task);

}  // namespace gpulet::mig
