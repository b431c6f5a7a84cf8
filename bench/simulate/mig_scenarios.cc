// Devices that plans for devices under MIG need, and how they serve: the six scenarios of
// profiles/reference-a100-mig, by `cover`, with one process in an instance and with up to five,
// with default options and without margin and headroom. Their authors' system needs 2, 3, 5, 7, 13
// and 16 devices, 46 in all. Requests arrive at random by default, and at equal intervals without
// headroom, which is what such plans are for (Headroom). Deterministic.
//
// The violations are those of all requests and, after the slash, of the model with most.
//
//   bench_mig_scenarios [--policy NAME] [--seconds S] [--jobs N]
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bench/support/options.h"
#include "gpulet/config/readers.h"
#include "gpulet/profile/store.h"
#include "gpulet/research/research.h"
#include "gpulet/schedule/check.h"
#include "gpulet/simulate/simulation.h"
#include "tools/cli/parallel_for.h"

namespace {

using namespace gpulet;            // NOLINT(google-build-using-namespace)
using namespace gpulet::simulate;  // NOLINT(google-build-using-namespace)

constexpr std::uint32_t kScenarios = 6;
constexpr std::uint32_t kDevices = 24;

struct Scene {
  std::filesystem::path folder =
      std::filesystem::path(GPULET_SOURCE_DIR) / "profiles/reference-a100-mig";
  profile::ProfileSet profiles{{"reference-a100-mig", profile::read_profile(folder).value()}};
  schedule::PlanInput input;

  Scene(std::uint32_t scenario, std::uint32_t processes, bool defaults) {
    input.profiles = &profiles;
    if (!defaults) {
      input.options.margin = 1;
      input.options.headroom = schedule::Headroom::none;
    }
    const auto geometry = partition::MigGeometry::of("a100-80").value();
    for (std::uint32_t number = 0; number < kDevices; ++number) {
      schedule::Device& device = input.cluster.devices.emplace_back();
      device.key = {"n0", number};
      device.partitioning = "simulated";
      device.type = "reference-a100-mig";
      device.mig = geometry;
      for (const partition::MigProfile& profile : geometry.profiles())
        device.sizes.push_back(geometry.share_of(profile.slices));
      device.processes_per_instance = processes;
      device.max_partitions = geometry.compute_slices() * processes;
    }
    auto reader = config::CsvReader::read_file(folder / "demands.csv").value();
    const auto columns = reader.require_columns({"scenario", "model", "rate", "slo_ms"});
    while (reader.next()) {
      if (reader.count(columns[0], 1, kScenarios) != scenario) continue;
      input.demands.push_back({reader.name(columns[1]), reader.number(columns[2], config::above(0)),
                               reader.number(columns[3], config::above(0)), 128});
    }
  }
};

struct Row {
  schedule::Plan plan;
  Outcome outcome;
};

config::Trace at_intervals(const std::vector<schedule::ModelDemand>& demands, double seconds) {
  config::Trace trace;
  for (const schedule::ModelDemand& demand : demands) {
    std::vector<config::Arrival>& arrivals = trace.arrivals[demand.name];
    const double step_s = 1 / demand.rate;
    for (double at_s = step_s; at_s < seconds; at_s += step_s) arrivals.push_back({at_s, 1});
  }
  return trace;
}

Row run(const Scene& scene, const std::string& name, double seconds) {
  const auto policy = research::policies().make(name).value();
  Row row;
  row.plan = policy->plan(scene.input);
  if (!schedule::check(row.plan, scene.input).empty())
    throw std::runtime_error("a plan breaks the rules");
  if (seconds <= 0) return row;
  Knowledge knowledge;
  knowledge.profiles = {std::shared_ptr<void>(), &scene.profiles};
  knowledge.believed = std::make_shared<const profile::InterferenceSet>();
  knowledge.simulated = knowledge.believed;
  knowledge.policy = policy.get();
  SimulationOptions options;
  options.seconds = seconds;
  if (scene.input.options.headroom == schedule::Headroom::none)
    options.trace =
        std::make_shared<const config::Trace>(at_intervals(scene.input.demands, seconds));
  options.keep_plan = true;
  auto outcome = simulate::simulate(
      knowledge, {scene.input.cluster, scene.input.demands, scene.input.options}, options);
  if (!outcome.ok()) throw std::runtime_error(outcome.status().to_string());
  row.outcome = std::move(outcome).value();
  return row;
}

}  // namespace

int main(int argc, char** argv) try {
  std::string policy = "cover";
  double seconds = 60;
  unsigned jobs = 1;
  bench::Options command_line("Devices under MIG for the six scenarios of reference-a100-mig");
  command_line.add("--policy", policy);
  command_line.add("--seconds", seconds, "of load; 0: only plans");
  command_line.add("--jobs", jobs, "threads");
  if (const auto code = command_line.parse(argc, argv)) return *code;
  for (const bool defaults : {false, true}) {
    for (const std::uint32_t processes : {1U, 5U}) {
      std::vector<Row> rows(kScenarios);
      tools::parallel_for(jobs, kScenarios, [&](std::size_t at) {
        rows[at] =
            run(Scene(static_cast<std::uint32_t>(at + 1), processes, defaults), policy, seconds);
      });
      fmt::print("{}, up to {} processes: devices", defaults ? "default options" : "no headroom",
                 processes);
      std::uint32_t all = 0;
      for (const Row& row : rows) {
        fmt::print(" {}{} (bound {})", row.plan.devices_used(),
                   row.plan.schedulable() ? "" : " unserved", row.plan.lower_bound.value_or(0));
        all += row.plan.devices_used();
      }
      fmt::print(", {} in all; violations", all);
      for (const Row& row : rows) {
        double most = 0;
        for (const ModelOutcome& model : row.outcome.models) most = std::max(most, model.violation);
        fmt::print(" {:.2f}/{:.2f}", 100 * row.outcome.violation, 100 * most);
      }
      fmt::print(" %\n");
      std::fflush(stdout);
    }
  }
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "bench_mig_scenarios: {}\n", error.what());
  return 1;
}
