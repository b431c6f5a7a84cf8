// Compares MIG-serving's optimiser with the baselines on the four generated workloads: devices,
// savings over whole devices, gap to the lower bound, time, and devices after each round (figures 9
// to 12 of the paper).
//
//   bench_mig_optimise [--csv] [seconds threads geometry seed processes]     60 2 a100-40 1 1
//
// `seconds` and `threads` are for the two-phase algorithm; `processes`: the most that share an
// instance; a geometry ending in -strict has no 3g beside 4g. --csv: the same as lines
//   workload,processes,what,round,devices,seconds
// with the bounds and T4 among what there is.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gpulet/schedule/mig_optimiser.h"
#include "tests/support/mig/workloads.h"

namespace {

using namespace gpulet;                 // NOLINT(google-build-using-namespace)
using namespace gpulet::schedule::mig;  // NOLINT(google-build-using-namespace)

// AWS, us-east-1, on demand: an eighth of a p4d.24xlarge (8 A100 of 40 GB), a g4dn.xlarge (one T4),
// and an eighth of a g4dn.metal (8 T4).
constexpr double kA100DollarsPerHour = 32.77 / 8;
constexpr double kT4DollarsPerHour = 0.526;
constexpr double kT4OfEightDollarsPerHour = 7.824 / 8;

struct Options {
  bool csv = false;
  double seconds = 60;
  unsigned threads = 2;
  std::string geometry = "a100-40";
  std::uint64_t seed = 1;
  std::uint32_t processes = 1;
};

Options read(int count, char** arguments) {
  Options options;
  std::vector<std::string> words;
  for (int at = 1; at < count; ++at) {
    if (std::string_view(arguments[at]) == "--csv") {
      options.csv = true;
    } else {
      words.emplace_back(arguments[at]);
    }
  }
  if (words.size() > 0) options.seconds = std::atof(words[0].c_str());
  if (words.size() > 1) options.threads = static_cast<unsigned>(std::atoi(words[1].c_str()));
  if (words.size() > 2) options.geometry = words[2];
  if (words.size() > 3) options.seed = std::strtoull(words[3].c_str(), nullptr, 10);
  if (words.size() > 4) options.processes = static_cast<std::uint32_t>(std::atoi(words[4].c_str()));
  return options;
}

partition::MigGeometry geometry_of(std::string name) {
  constexpr std::string_view kStrict = "-strict";
  const bool strict = name.size() > kStrict.size() && name.ends_with(kStrict);
  if (strict) name.resize(name.size() - kStrict.size());
  const auto geometry = partition::MigGeometry::of(name);
  if (!geometry.ok()) {
    std::fprintf(stderr, "%s\n", geometry.status().message().c_str());
    std::exit(2);
  }
  return strict ? geometry.value().without_3g_beside_4g() : geometry.value();
}

ForEach on_threads(unsigned threads) {
  return [threads](std::size_t count, const std::function<void(std::size_t)>& body) {
    std::atomic<std::size_t> next = 0;
    const auto work = [&] {
      for (std::size_t at = next++; at < count; at = next++) body(at);
    };
    std::vector<std::jthread> others;
    for (unsigned thread = 1; thread < threads; ++thread) others.emplace_back(work);
    work();
  };
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

struct Row {
  std::string what;
  double devices = 0;
  double seconds = 0;
};

struct Measured {
  std::vector<Row> rows;
  std::vector<Row> rounds;  // devices and time after each
};

Row measured(const std::string& what, const DeploymentTask& task,
             const std::function<Deployment(const DeploymentTask&)>& algorithm) {
  const auto begin = std::chrono::steady_clock::now();
  const Deployment deployment = algorithm(task);
  const double seconds = seconds_since(begin);
  for (const std::string& fault : faults(deployment, task)) {
    std::fprintf(stderr, "%s: %s\n", what.c_str(), fault.c_str());
    std::exit(1);
  }
  return {what, static_cast<double>(deployment.devices.size()), seconds};
}

Measured measure(const DeploymentTask& task, const Options& options) {
  Measured all;
  all.rows.push_back(measured("whole", task, whole_devices));
  all.rows.push_back(measured("7x1", task, small_instances));
  all.rows.push_back(measured("mix", task, fixed_mix));
  all.rows.push_back(measured("greedy", task, greedy));
  TwoPhaseOptions two_phase_options;
  two_phase_options.seed = options.seed;
  two_phase_options.for_each = on_threads(options.threads);
  const auto begin = std::chrono::steady_clock::now();
  two_phase_options.go_on = [&](const Progress& progress) {
    const double seconds = seconds_since(begin);
    all.rounds.push_back(
        {std::to_string(progress.round), static_cast<double>(progress.devices), seconds});
    return seconds < options.seconds;
  };
  all.rows.push_back(measured("two-phase", task, [&](const DeploymentTask& given) {
    return two_phase(given, two_phase_options);
  }));
  const auto begin_of_bound = std::chrono::steady_clock::now();
  const double bound = lower_bound(task);
  all.rows.push_back({"bound", bound, seconds_since(begin_of_bound)});
  all.rows.push_back({"bound-of-whole", lower_bound_of_whole_instances(task), 0});
  all.rows.push_back({"bound-without-rules", lower_bound_without_rules(task), 0});
  return all;
}

void print_csv(const std::string& workload, const Options& options, const Measured& all) {
  for (const Row& row : all.rows) {
    std::printf("%s,%u,%s,,%.6g,%.4f\n", workload.c_str(), options.processes, row.what.c_str(),
                row.devices, row.seconds);
  }
  for (const Row& row : all.rounds) {
    std::printf("%s,%u,two-phase,%s,%.6g,%.4f\n", workload.c_str(), options.processes,
                row.what.c_str(), row.devices, row.seconds);
  }
}

double devices_of(const Measured& all, std::string_view what) {
  for (const Row& row : all.rows) {
    if (row.what == what) return row.devices;
  }
  return 0;
}

void print_table(const std::string& workload, const Measured& all, double t4) {
  const double whole = devices_of(all, "whole");
  const double bound = devices_of(all, "bound");
  std::printf("%s\n  %-20s %9s %8s %8s %9s %9s\n", workload.c_str(), "", "devices", "saved", "gap",
              "seconds", "$/h");
  for (const Row& row : all.rows) {
    std::printf("  %-20s %9.2f %7.1f%% %7.2f%% %9.4f %9.1f\n", row.what.c_str(), row.devices,
                100 * (1 - row.devices / whole), 100 * (row.devices / bound - 1), row.seconds,
                row.devices * kA100DollarsPerHour);
  }
  std::printf("  %-20s %9.0f %36.1f ($/h at g4dn.metal's price %.1f)\n", "T4", t4,
              t4 * kT4DollarsPerHour, t4 * kT4OfEightDollarsPerHour);
  std::printf("  devices by round:");
  for (const Row& row : all.rounds) std::printf(" %.0f", row.devices);
  std::printf("\n");
  std::fflush(stdout);
}

void print_kinds(const std::vector<testing::Model>& models) {
  for (const std::uint32_t batch : testing::kBatches) {
    int count[3] = {};
    for (const testing::Model& model : models)
      ++count[static_cast<std::size_t>(testing::growth(model, batch))];
    std::printf("batch %2u: %2d models sub-linear, %2d linear, %2d super-linear\n", batch, count[0],
                count[1], count[2]);
  }
}

}  // namespace

int main(int count, char** arguments) {
  const Options options = read(count, arguments);
  const partition::MigGeometry geometry = geometry_of(options.geometry);
  const std::vector<testing::Model> models = testing::generated_models(options.seed);
  if (options.csv) {
    std::printf("workload,processes,what,round,devices,seconds\n");
  } else {
    print_kinds(models);
  }
  for (const testing::Workload& workload :
       testing::generated_workloads(options.seed, models.size())) {
    const DeploymentTask task = testing::task_of(workload, models, geometry, options.processes);
    Measured all = measure(task, options);
    const auto t4 = static_cast<double>(testing::t4_devices(workload, models));
    if (options.csv) {
      all.rows.push_back({"t4", t4, 0});
      print_csv(workload.name, options, all);
    } else {
      print_table(workload.name, all, t4);
    }
  }
}
