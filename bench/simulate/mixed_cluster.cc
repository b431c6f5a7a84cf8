// What CPUs add to GPUs: the reactive spill (docs/control.md, the option `spill`) against CPUs in
// the plan (docs/cover.md, "GPUs first, CPUs for the rest"), under the same requests. Two clusters
// with the applications of docs/experiments/roma.md, whose load has steps of 35 s:
//
//   roma    two GPUs shared by MPS and two CPUs of six cores, as in that document's section "CPUs
//           to spill to"; a load of 1 is that of its table
//   mixed   two GPUs divided by MIG, two shared by MPS, four CPUs of three cores; a load of 1 is
//           the highest at which `auto` has a plan without CPUs for every step and the growth that
//           a frontend plans for
//
// In both, 300 s have 3,600 core-seconds. Core-seconds held are those that plans reserve or the
// controller assigns; busy are those during which batches ran on them. Means over the seeds.
// Deterministic.
//
//   bench_mixed_cluster [--cluster NAME]... [--system gpus|spill|planned]... [--load L]...
//                       [--policy NAME] [--spill-policy NAME] [--seconds S] [--seeds N] [--jobs N]
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/simulate/support.h"
#include "bench/support/options.h"
#include "gpulet/partition/mig_geometry.h"
#include "gpulet/schedule/policy.h"
#include "gpulet/serve/values/frontend_options.h"
#include "tools/cli/parallel_for.h"

namespace {

using namespace gpulet;            // NOLINT(google-build-using-namespace)
using namespace gpulet::simulate;  // NOLINT(google-build-using-namespace)

struct Flags {
  std::vector<std::string> clusters{"roma", "mixed"};
  std::vector<std::string> systems{"gpus", "spill", "planned"};
  std::vector<double> loads{0.75, 1, 1.25, 1.5, 2};
  std::string policy = "auto";
  std::string spill_policy = "auto";
  double seconds = 300;
  std::uint64_t seeds = 3;
  unsigned jobs = 1;
};

// scripts/experiments.d/roma_spill.py has the same figures.
constexpr double kStep_s = 35;
constexpr std::size_t kSteps = 8;
constexpr std::uint32_t kLargestBatch = 8;
constexpr double kSerial = 0.05;      // the part of a request's work that runs on one core
constexpr double kLeastCores = 0.25;  // of an instance of the reactive spill
struct Application {
  const char* name;
  double gpu_ms;  // a batch of n takes (1 + n) / 2 times as long
  double core_s;
  double slo_ms;
  std::array<double, kSteps> rates;
};
constexpr std::array kApplications{
    Application{"skylines", 24, 0.10, 380, {10, 10, 10, 10, 30, 30, 30, 10}},
    Application{"googlenet", 20, 0.12, 450, {10, 30, 30, 30, 10, 10, 10, 10}},
    Application{"resnet", 35, 0.25, 540, {10, 20, 30, 10, 20, 30, 10, 20}},
    Application{"vgg16", 45, 0.50, 560, {10, 30, 20, 10, 30, 20, 10, 20}}};

profile::Profile gpu_profile(const std::vector<Share>& sizes) {
  profile::Profile measured;
  for (const Application& application : kApplications) {
    std::vector<profile::LatencySample> samples;
    for (const Share size : sizes) {
      for (std::uint32_t batch = 1; batch <= kLargestBatch; batch *= 2)
        samples.push_back({batch, size, application.gpu_ms * (1 + batch) / 2 / size.fraction()});
    }
    measured.models.emplace(
        application.name,
        profile::ModelProfile{profile::LatencyTable::create(samples).value(), {}, {}});
  }
  return measured;
}

profile::Profile cpu_profile(int cores) {
  profile::Profile measured;
  for (const Application& application : kApplications) {
    std::vector<profile::LatencySample> samples;
    for (int used = 1; used <= cores; ++used) {
      samples.push_back({1, Share{(100 * used + cores / 2) / cores},
                         1000 * application.core_s * (kSerial + (1 - kSerial) / used)});
    }
    measured.models.emplace(
        application.name,
        profile::ModelProfile{profile::LatencyTable::create(samples).value(), {}, {}});
  }
  return measured;
}

struct Scene {
  schedule::testing::Worked worked;
  Knowledge knowledge;
  double load_of_one = 1;  // times the rates of kApplications

  explicit Scene(const std::string& name) {
    worked.input.options = {};
    if (name == "roma") {
      add(2, "gpu", {{20}, {40}, {60}, {80}, {100}}, 4, 0);
      add(2, "cpu", {{20}, {40}, {50}, {60}, {80}, {100}}, 8, 6);
    } else if (name == "mixed") {
      add(2, "gpu", {{20}, {40}, {60}, {80}, {100}}, 4, 0);
      add(2, "gpu-mig", {}, 7, 0);
      add(4, "cpu", {{20}, {40}, {50}, {60}, {80}, {100}}, 8, 3);
    } else {
      throw std::runtime_error("no cluster '" + name + "'; there are roma and mixed");
    }
    for (const Application& one : kApplications)
      worked.input.demands.push_back({one.name, one.rates[0], one.slo_ms, kLargestBatch});
    knowledge = bench::knowledge_of(worked);
  }

  // Without sizes, MIG divides the devices. Each device has a node of its own.
  void add(int count, const std::string& type, std::vector<Share> sizes,
           std::uint32_t max_partitions, int cores) {
    for (int number = 0; number < count; ++number) {
      schedule::Device& device = worked.input.cluster.devices.emplace_back();
      device.key = {fmt::format("{}{}", type, number), 0};
      device.type = type;
      device.partitioning = "simulated";
      device.sizes = sizes;
      device.max_partitions = max_partitions;
      device.cores = cores;
      if (sizes.empty()) schedule::testing::divide_by_mig(device, "a100-40");
      profile::Profile& profile = (*worked.profiles)[type];
      profile = cores > 0 ? cpu_profile(cores) : gpu_profile(device.sizes);
      profile.name = type;
    }
    std::sort(worked.input.cluster.devices.begin(), worked.input.cluster.devices.end(),
              [](const auto& a, const auto& b) { return a.key < b.key; });
  }

  [[nodiscard]] schedule::PlanInput input_at(double scale, std::size_t step) const {
    schedule::PlanInput input = worked.input;
    for (std::size_t model = 0; model < kApplications.size(); ++model)
      input.demands[model].rate = scale * kApplications.at(model).rates.at(step);
    return input;
  }

  [[nodiscard]] config::Trace trace_at(double scale) const {
    config::Trace trace;
    for (const Application& one : kApplications) {
      for (std::size_t step = 0; step < kSteps; ++step)
        trace.rates[one.name].push_back(
            {kStep_s * static_cast<double>(step), scale * one.rates.at(step)});
    }
    return trace;
  }
};

// The highest multiple of the applications' rates that GPUs hold.
double highest_without_cpus(const Scene& scene) {
  const auto policy = schedule::make_policy("auto").value();
  const double growth = 1 + serve::DemandOptions{}.growth;
  const auto holds = [&](double scale) {
    for (std::size_t step = 0; step < kSteps; ++step) {
      schedule::PlanInput input = scene.input_at(scale * growth, step);
      input.cluster = schedule::without_cpus(input.cluster);
      if (!policy->plan(input).schedulable()) return false;
    }
    return true;
  };
  double low = 0;
  double high = 16;
  while (high - low > 0.01) {
    const double middle = (low + high) / 2;
    (holds(middle) ? low : high) = middle;
  }
  return low;
}

// `system`: gpus (without CPUs), spill (the reactive one), planned.
Outcome run(const Scene& scene, const std::string& system, double load, const Flags& flags,
            std::uint64_t seed) {
  const double scale = load * scene.load_of_one;
  schedule::PlanInput input = scene.input_at(scale, 0);
  if (system == "gpus") input.cluster = schedule::without_cpus(input.cluster);
  const auto policy =
      schedule::make_policy(system == "planned" ? flags.policy : flags.spill_policy).value();
  Knowledge knowledge = scene.knowledge;
  knowledge.policy = policy.get();
  SimulationOptions options;
  options.seconds = flags.seconds;
  options.seed = seed;
  options.trace = std::make_shared<const config::Trace>(scene.trace_at(scale));
  options.control.spill = system == "spill";
  options.control.least_cores = kLeastCores;
  options.control.seed = seed;
  return bench::simulate_input(knowledge, input, options);
}

void print_row(double load, const std::string& system, const std::vector<Outcome>& outcomes) {
  const auto mean = [&outcomes](const auto& of) {
    double sum = 0;
    for (const Outcome& one : outcomes) sum += of(one) / static_cast<double>(outcomes.size());
    return sum;
  };
  const auto served_in_time = [](const Outcome& one) {
    double sum = 0;
    for (const ModelOutcome& model : one.models)
      sum += static_cast<double>(model.served - model.late);
    return sum;
  };
  fmt::print("{:>5} {:8} {:>8.2f} % {:>9.0f} {:>9.0f} {:>10.0f} {:>8.2f} {:>4} {:>6.1f}\n", load,
             system, 100 * mean([](const Outcome& one) { return one.violation; }),
             mean([](const Outcome& one) { return one.core_seconds; }),
             mean([](const Outcome& one) { return one.core_seconds_busy; }), mean(served_in_time),
             mean([](const Outcome& one) { return one.devices_mean; }),
             outcomes.front().devices_used,
             mean([](const Outcome& one) { return static_cast<double>(one.plans); }));
  std::fflush(stdout);
}

void run_cluster(const std::string& name, const Flags& flags) {
  Scene scene(name);
  if (name == "mixed") scene.load_of_one = highest_without_cpus(scene);
  fmt::print("{}: a load of 1 is {:.2f} times that of AllApps\n", name, scene.load_of_one);
  fmt::print("{:>5} {:8} {:>10} {:>9} {:>9} {:>10} {:>8} {:>4} {:>6}\n", "load", "", "violations",
             "held", "busy", "in time", "devices", "most", "plans");
  for (const double load : flags.loads) {
    for (const std::string& system : flags.systems) {
      std::vector<Outcome> outcomes(flags.seeds);
      tools::parallel_for(flags.jobs, outcomes.size(), [&](std::size_t at) {
        outcomes[at] = run(scene, system, load, flags, at + 1);
      });
      print_row(load, system, outcomes);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  const auto declare = [&flags](bench::Options& command_line) {
    command_line.add("--cluster", flags.clusters, "roma, mixed");
    command_line.add("--system", flags.systems).one_of({"gpus", "spill", "planned"});
    command_line.add("--load", flags.loads);
    command_line.add("--policy", flags.policy, "with CPUs in its plans");
    command_line.add("--spill-policy", flags.spill_policy,
                     "of GPUs alone and with the reactive spill");
    command_line.add("--seconds", flags.seconds, "of load");
    command_line.add("--seeds", flags.seeds);
    command_line.add("--jobs", flags.jobs, "threads");
  };
  return bench::run_program(argc, argv, "bench_mixed_cluster", "What CPUs add to GPUs", declare,
                            [&flags] {
                              for (const std::string& name : flags.clusters)
                                run_cluster(name, flags);
                            });
}
