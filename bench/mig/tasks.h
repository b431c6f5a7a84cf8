// The deployment tasks of MIG-serving's study: the four generated workloads, small tasks for which
// greedy needs more devices than the bound, and the measured models of
// profiles/reference-a100-mig.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "gpulet/schedule/mig.h"
#include "tests/support/mig/workloads.h"

namespace gpulet::bench {

struct NamedTask {
  std::string name;
  schedule::mig::DeploymentTask task;
};

// A geometry by its name; one that ends in -strict has no 3g beside a 4g, as in the paper (section
// 2.1). Ends the program where there is none.
[[nodiscard]] partition::MigGeometry geometry_of(std::string name);

// Several services of about one device each.
[[nodiscard]] std::vector<NamedTask> few_services(const partition::MigGeometry& geometry,
                                                  std::size_t count);
// Services that run on 2g, 3g and 4g only.
[[nodiscard]] std::vector<NamedTask> three_sizes(const partition::MigGeometry& geometry,
                                                 std::size_t count);
// Many services that need less than a device each.
[[nodiscard]] std::vector<NamedTask> small_remainders(const partition::MigGeometry& geometry,
                                                      std::size_t count);
// 24 services of a half to three devices each.
[[nodiscard]] std::vector<NamedTask> many_services(const partition::MigGeometry& geometry,
                                                   std::size_t count);
// Those of the four generated workloads for which greedy is above the bound.
[[nodiscard]] std::vector<NamedTask> workloads(const partition::MigGeometry& geometry);
// The scenarios of the folder's demands.csv for which greedy is above the bound, with the rates
// times each of the scales, for batches of latency.csv within the objective
// and one process in an instance. Ends the program where a file is missing
// or wrong.
[[nodiscard]] std::vector<NamedTask> measured_tasks(const std::filesystem::path& folder,
                                                    const partition::MigGeometry& geometry,
                                                    const std::vector<double>& scales);

}  // namespace gpulet::bench
