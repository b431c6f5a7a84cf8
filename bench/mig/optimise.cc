// Compares MIG-serving's optimiser with the baselines on the four generated workloads: devices, the
// lower bounds, T4s, and the devices after each round (figures 9 to 12 of the paper).
//
//   bench_mig_optimise [--batch-ms MS] [--largest-batch B] [--sub-linear PART] [--processes N]
//                      [--geometry NAME] [--seed N] [--search-seed N] [--rounds N]
//                      [--printed-rounds N] [--workloads ...]
//
// Prints lines
//   workload,what,round,devices,seconds
// where `what` is an algorithm, a bound or t4; rows with a round are those of two-phase, whose
// round 0 is the trimmed greedy deployment, and of printed-two-phase, the paper's form of it
// (research/mig_printed.h), whose round 0 is the printed greedy one. `kinds` rows, before these,
// give the number of sub-linear, linear and super-linear models by batch:
//   kinds,KIND,BATCH,models,
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/mig/tasks.h"
#include "bench/support/options.h"
#include "research/mig_baselines.h"
#include "research/mig_printed.h"

namespace {

using namespace gpulet;                 // NOLINT(google-build-using-namespace)
using namespace gpulet::schedule::mig;  // NOLINT(google-build-using-namespace)

struct Settings {
  testing::BatchLimit limit;
  double sub_linear = 0.5;
  std::uint32_t processes = 1;
  std::string geometry = "a100-40-strict";
  std::uint64_t seed = 1;  // of models and needs
  std::uint64_t search_seed = 1;
  std::uint32_t rounds = 10;
  std::uint32_t printed_rounds = 0;
  std::vector<std::string> workloads{"normal-1", "normal-2", "lognormal-1", "lognormal-2"};
};

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void print(const std::string& workload, const char* what, const std::string& round, double devices,
           double seconds) {
  std::printf("%s,%s,%s,%.8g,%.4f\n", workload.c_str(), what, round.c_str(), devices, seconds);
}

void measure(const std::string& workload, const char* what, const DeploymentTask& task,
             const std::function<Deployment()>& algorithm) {
  const auto begin = std::chrono::steady_clock::now();
  const Deployment deployment = algorithm();
  const double seconds = seconds_since(begin);
  for (const std::string& fault : faults(deployment, task)) {
    std::fprintf(stderr, "%s: %s\n", what, fault.c_str());
    std::exit(1);
  }
  print(workload, what, "", static_cast<double>(deployment.devices.size()), seconds);
}

void measure_all(const std::string& workload, const DeploymentTask& task,
                 const Settings& settings) {
  measure(workload, "whole", task, [&] { return research::whole_devices(task); });
  measure(workload, "7x1", task, [&] { return research::small_instances(task); });
  measure(workload, "mix", task, [&] { return research::fixed_mix(task); });
  measure(workload, "greedy", task, [&] { return greedy(task); });
  const auto measure_rounds = [&](const char* what, std::uint32_t rounds, auto search) {
    TwoPhaseOptions options;
    options.seed = settings.search_seed;
    options.most_rounds = rounds;
    const auto begin = std::chrono::steady_clock::now();
    options.go_on = [&](const Progress& progress) {
      print(workload, what, std::to_string(progress.round), static_cast<double>(progress.devices),
            seconds_since(begin));
      return true;
    };
    measure(workload, what, task, [&] { return search(task, options); });
  };
  measure_rounds("two-phase", settings.rounds, two_phase);
  if (settings.printed_rounds > 0)
    measure_rounds("printed-two-phase", settings.printed_rounds, research::printed_two_phase);
  print(workload, "bound", "", lower_bound(task), 0);
  print(workload, "bound-of-whole", "", lower_bound_of_whole_instances(task), 0);
  print(workload, "bound-without-rules", "", lower_bound_without_rules(task), 0);
}

void print_kinds(const std::vector<testing::Model>& models) {
  for (const testing::Growth kind :
       {testing::Growth::sub_linear, testing::Growth::linear, testing::Growth::super_linear}) {
    for (const std::uint32_t batch : testing::kBatches) {
      const auto count = std::count_if(models.begin(), models.end(), [&](const auto& model) {
        return testing::growth(model, batch) == kind;
      });
      std::printf("kinds,%s,%u,%zu,\n", std::string(testing::to_string(kind)).c_str(), batch,
                  static_cast<std::size_t>(count));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  bench::Options command_line("Devices that MIG-serving's optimiser and its baselines need");
  command_line.add("--batch-ms", settings.limit.ms, "that a batch may take").positive();
  command_line.add("--largest-batch", settings.limit.largest).positive();
  command_line.add("--sub-linear", settings.sub_linear, "part of the models at batch 8")
      .in_range(0, 1);
  command_line.add("--processes", settings.processes, "the most in an instance").positive();
  command_line.add("--geometry", settings.geometry, "-strict at the end: no 3g beside a 4g");
  command_line.add("--seed", settings.seed, "of models and needs");
  command_line.add("--search-seed", settings.search_seed, "of the genetic algorithm");
  command_line.add("--rounds", settings.rounds, "of the genetic algorithm, at most");
  command_line.add("--printed-rounds", settings.printed_rounds,
                   "of the two phases as the paper prints them; 0: leaves them out");
  command_line.add("--workloads", settings.workloads);
  if (const auto code = command_line.parse(argc, argv)) return *code;
  const partition::MigGeometry geometry = bench::geometry_of(settings.geometry);
  const std::vector<testing::Model> models =
      testing::generated_models(settings.seed, 24, settings.sub_linear);
  std::printf("workload,what,round,devices,seconds\n");
  print_kinds(models);
  for (const testing::Workload& workload :
       testing::generated_workloads(settings.seed, models.size())) {
    if (std::find(settings.workloads.begin(), settings.workloads.end(), workload.name) ==
        settings.workloads.end())
      continue;
    const DeploymentTask task =
        testing::task_of(workload, models, geometry, settings.processes, settings.limit);
    measure_all(workload.name, task, settings);
    print(workload.name, "t4", "",
          static_cast<double>(testing::t4_devices(workload, models, settings.limit)), 0);
  }
}
