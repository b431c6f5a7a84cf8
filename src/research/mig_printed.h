// MIG-serving's two phases as the paper prints them (Tan et al., sections 5.2 and 5.3, figure 15).
// This project's own (schedule/mig.h) are stronger:
//  - The printed score of a device is (1 - completion) * utility of each instance, even where a
//    smaller one would satisfy the service. Ours counts only what the service still needs.
//  - The printed crossover erases devices at random. Ours erases wasteful ones, and removes and
//    shrinks instances afterwards that are not needed.
//  - The printed algorithm selects by the number of devices. Among equals, ours prefers the one
//    whose least used device is nearest to empty.
// The tree search that refills a crossover is ours: it rates devices by prices.
//
// Choices where the paper leaves one: a crossover erases between one device and a fifth of them
// ("some"); four deployments survive a round, and each has two children; a service is almost
// satisfied once a single device would satisfy it.
//
// Pure; any thread.
#pragma once

#include "gpulet/schedule/mig.h"

namespace gpulet::research {

[[nodiscard]] schedule::mig::Deployment printed_greedy(const schedule::mig::DeploymentTask& task);
// The fields of `options` mean the same as for schedule::mig::two_phase.
[[nodiscard]] schedule::mig::Deployment printed_two_phase(
    const schedule::mig::DeploymentTask& task, const schedule::mig::TwoPhaseOptions& options);

}  // namespace gpulet::research
