#include "bench/mig/tasks.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string_view>
#include <utility>

#include "gpulet/base/random.h"
#include "gpulet/config/readers.h"
#include "schedule/mig/device_search.h"

namespace gpulet::bench {
namespace {

using schedule::mig::DeploymentTask;
using schedule::mig::Service;

// The paper's reading of the objective: it limits the batch itself.
constexpr schedule::mig::testing::BatchLimit kWholeObjective{schedule::mig::testing::kSloMs};

[[noreturn]] void fail(const std::string& message) {
  std::fprintf(stderr, "bench_mig: %s\n", message.c_str());
  std::exit(2);
}

// `services` generated models, each with a need between `least` and `most` whole devices.
DeploymentTask drawn(const partition::MigGeometry& geometry, std::uint64_t seed,
                     std::size_t services, double least, double most) {
  const auto models = schedule::mig::testing::generated_models(seed, services);
  Random random(stream_seed(seed, "needs"));
  schedule::mig::testing::Workload workload;
  for (std::size_t model = 0; model < services; ++model)
    workload.devices.push_back(least + (most - least) * random.uniform());
  return schedule::mig::testing::task_of(workload, models, geometry, 1, kWholeObjective);
}

bool greedy_is_above_its_bound(const DeploymentTask& task) {
  const schedule::mig::DeploymentContext context(task);
  std::vector<schedule::mig::InstanceMix> devices = schedule::mig::greedy_mixes(context);
  schedule::mig::trim(context, devices);
  const double bound = schedule::mig::lower_bound_of_whole_instances(task);
  return devices.size() > schedule::mig::whole_devices_for(bound);
}

// The first `count` tasks, by seed, for which greedy is above the bound.
template <typename Make>
std::vector<NamedTask> first_with_a_gap(const std::string& family, std::size_t count,
                                        const Make& make) {
  std::vector<NamedTask> found;
  for (std::uint64_t seed = 1; found.size() < count; ++seed) {
    DeploymentTask task = make(seed);
    if (!greedy_is_above_its_bound(task)) continue;
    found.push_back({family + " " + std::to_string(seed), std::move(task)});
  }
  return found;
}

struct Measured {
  double batch = 0;
  double latency_ms = 0;
};
// Of one process, by model and nominal share of an instance.
using Latencies = std::map<std::pair<std::string, int>, std::vector<Measured>>;

template <typename T>
T required(Result<T> result) {
  if (!result.ok()) fail(result.status().message());
  return std::move(result).value();
}

Latencies read_latencies(const std::filesystem::path& file) {
  Latencies latencies;
  config::CsvReader reader = required(config::CsvReader::read_file(file));
  const auto columns =
      reader.require_columns({"model", "batch", "partition", "latency_ms", "processes"});
  while (reader.next()) {
    const auto share = static_cast<int>(reader.count(columns[2], 1, 100));
    if (reader.count(columns[4], 1, 100) > 1) continue;  // several processes
    latencies[{reader.name(columns[0]), share}].push_back(
        {reader.number(columns[1], config::above(0)), reader.number(columns[3], config::above(0))});
  }
  if (!reader.status().ok()) fail(reader.status().message());
  return latencies;
}

double most_rate(const std::vector<Measured>& measured, double most_ms) {
  double most = 0;
  for (const Measured& one : measured) {
    if (one.latency_ms <= most_ms) most = std::max(most, one.batch * 1000 / one.latency_ms);
  }
  return most;
}

}  // namespace

partition::MigGeometry geometry_of(std::string name) {
  constexpr std::string_view kStrict = "-strict";
  const bool strict = name.size() > kStrict.size() && name.ends_with(kStrict);
  if (strict) name.resize(name.size() - kStrict.size());
  const partition::MigGeometry geometry = required(partition::MigGeometry::of(name));
  return strict ? geometry.without_3g_beside_4g() : geometry;
}

std::vector<NamedTask> few_services(const partition::MigGeometry& geometry, std::size_t count) {
  return first_with_a_gap("few services", count,
                          [&](std::uint64_t seed) { return drawn(geometry, seed, 6, 0.3, 1.8); });
}

std::vector<NamedTask> three_sizes(const partition::MigGeometry& geometry, std::size_t count) {
  return first_with_a_gap("three sizes", count, [&](std::uint64_t seed) {
    DeploymentTask task = drawn(geometry, seed, 8, 0.2, 1.5);
    for (Service& service : task.services) {
      service.rate_on.front() = 0;
      service.rate_on.back() = 0;
    }
    // A model that needs a whole device cannot be served here.
    std::erase_if(task.services, [](const Service& service) {
      return *std::max_element(service.rate_on.begin(), service.rate_on.end()) <= 0;
    });
    return task;
  });
}

std::vector<NamedTask> small_remainders(const partition::MigGeometry& geometry, std::size_t count) {
  return first_with_a_gap("remainders", count,
                          [&](std::uint64_t seed) { return drawn(geometry, seed, 16, 0.1, 0.7); });
}

std::vector<NamedTask> many_services(const partition::MigGeometry& geometry, std::size_t count) {
  return first_with_a_gap("many services", count,
                          [&](std::uint64_t seed) { return drawn(geometry, seed, 24, 0.5, 3); });
}

std::vector<NamedTask> workloads(const partition::MigGeometry& geometry) {
  const auto models = schedule::mig::testing::generated_models(1);
  std::vector<NamedTask> found;
  for (const auto& workload : schedule::mig::testing::generated_workloads(1, models.size())) {
    DeploymentTask task =
        schedule::mig::testing::task_of(workload, models, geometry, 1, kWholeObjective);
    if (greedy_is_above_its_bound(task)) found.push_back({workload.name, std::move(task)});
  }
  return found;
}

std::vector<NamedTask> measured_tasks(const std::filesystem::path& folder,
                                      const partition::MigGeometry& geometry,
                                      const std::vector<double>& scales) {
  const Latencies latencies = read_latencies(folder / "latency.csv");
  std::map<std::string, DeploymentTask> scenarios;
  config::CsvReader reader = required(config::CsvReader::read_file(folder / "demands.csv"));
  const auto columns = reader.require_columns({"scenario", "model", "rate", "slo_ms"});
  while (reader.next()) {
    const std::string scenario = std::to_string(reader.count(columns[0], 1, 1000));
    DeploymentTask& task =
        scenarios.try_emplace(scenario, DeploymentTask{geometry, {}}).first->second;
    Service& service = task.services.emplace_back();
    service.name = reader.name(columns[1]);
    service.need = reader.number(columns[2], config::above(0));
    const double most_ms = reader.number(columns[3], config::above(0));
    for (const partition::MigProfile& profile : geometry.profiles()) {
      const auto found = latencies.find({service.name, geometry.share_of(profile.slices).percent});
      service.rate_on.push_back(found == latencies.end() ? 0 : most_rate(found->second, most_ms));
    }
  }
  if (!reader.status().ok()) fail(reader.status().message());
  std::vector<NamedTask> named;
  for (const double scale : scales) {
    for (const auto& [scenario, task] : scenarios) {
      DeploymentTask scaled = task;
      for (Service& service : scaled.services) service.need *= scale;
      if (!greedy_is_above_its_bound(scaled)) continue;
      const std::string times = scale == 1 ? "" : " times " + std::to_string(std::lround(scale));
      named.push_back({"measured " + scenario + times, std::move(scaled)});
    }
  }
  return named;
}

}  // namespace gpulet::bench
