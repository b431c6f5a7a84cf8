// The throughput that plans keep within the SLO: for each workload the highest total rate that a
// policy schedules and at which at least 99 % of the simulated requests meet their SLO, the median
// of three seeds. Default settings, the same for every policy; the simulation slows models down as
// measured where the pair was measured, and as learned elsewhere.
//
// The workloads of the gpulet and gpu-let papers with the models of profiles/reference-gpu
// (scripts/experiments.d/workloads.py), SLO = twice the latency of 32 on a whole device, four
// devices. Deterministic.
//
//   bench_throughput [--policy NAME]... [--workload NAME]... [--seconds S] [--seeds N] [--jobs N]
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/simulate/support.h"
#include "bench/support/options.h"
#include "gpulet/schedule/policy.h"
#include "gpulet/simulate/simulation.h"
#include "tests/schedule/reference_case.h"
#include "tools/cli/parallel_for.h"

namespace {

using namespace gpulet;            // NOLINT(google-build-using-namespace)
using namespace gpulet::simulate;  // NOLINT(google-build-using-namespace)

struct Flags {
  std::vector<std::string> policies{"sbp", "greedy-best-fit", "elastic", "cover"};
  std::vector<std::string> workloads;  // empty: all
  double seconds = 20;
  std::uint64_t seeds = 3;
  unsigned jobs = 1;
};

constexpr double kAllowed = 0.01;
constexpr std::array kModels{"resnet50", "vgg19", "densenet121", "inception", "mobilenet"};

struct Workload {
  const char* name;
  std::array<double, kModels.size()> rates;  // in proportion
};
constexpr std::array kWorkloads{Workload{"equal", {50, 50, 50, 50, 50}},
                                Workload{"short-skew", {100, 50, 50, 100, 100}},
                                Workload{"long-skew", {50, 100, 100, 50, 50}},
                                Workload{"long-only", {100, 100, 100, 0, 0}},
                                Workload{"scen2", {0, 100, 100, 0, 0}},
                                Workload{"scen3", {100, 100, 0, 0, 100}},
                                Workload{"game", {1, 0, 0, 0, 6}},
                                Workload{"traffic", {0, 1, 0, 1, 1}}};

struct Scene {
  Scene() : worked(schedule::testing::reference_case(profile::InterferenceKind::combined)) {
    worked.input.options = {};
    worked.input.demands.clear();
    for (const char* model : kModels) {
      const double batch_ms = worked.profiles->begin()
                                  ->second.find(model)
                                  ->latency.latency_ms(32, kWholeDevice)
                                  .value();
      worked.input.demands.push_back({model, 0, 2 * batch_ms, 32});
    }
    knowledge = bench::knowledge_of(worked);
  }

  // `rate`: of all models together.
  [[nodiscard]] schedule::PlanInput input_at(const Workload& workload, double rate) const {
    double sum = 0;
    for (const double one : workload.rates) sum += one;
    schedule::PlanInput input = worked.input;
    for (std::size_t model = 0; model < kModels.size(); ++model)
      input.demands[model].rate = rate * workload.rates.at(model) / sum;
    return input;
  }

  schedule::testing::Worked worked;
  Knowledge knowledge;
};

double highest_schedulable(const Scene& scene, const schedule::Policy& policy,
                           const Workload& workload) {
  double low = 0;
  double high = 40'000;
  while (high - low > 1e-3 * high) {
    const double middle = (low + high) / 2;
    (policy.plan(scene.input_at(workload, middle)).schedulable() ? low : high) = middle;
  }
  return low;
}

bool keeps(const Scene& scene, const schedule::Policy& policy, const Workload& workload,
           double rate, const Flags& flags, std::uint64_t seed) {
  const schedule::PlanInput input = scene.input_at(workload, rate);
  // What is schedulable is not always monotonic in the load.
  if (!policy.plan(input).schedulable()) return false;
  Knowledge knowledge = scene.knowledge;
  knowledge.policy = &policy;
  SimulationOptions options;
  options.seconds = flags.seconds;
  options.seed = seed;
  options.keep_plan = true;
  return bench::simulate_input(knowledge, input, options).violation <= kAllowed;
}

struct Kept {
  double schedulable = 0;
  double rate = 0;
};

// Descends from the highest schedulable rate.
Kept kept_of(const Scene& scene, const schedule::Policy& policy, const Workload& workload,
             const Flags& flags) {
  constexpr int kRungs = 40;
  Kept kept;
  kept.schedulable = highest_schedulable(scene, policy, workload);
  std::vector<double> rates;
  for (std::uint64_t seed = 1; seed <= flags.seeds; ++seed) {
    double found = 0;
    for (int rung = kRungs; rung > 0 && found == 0; --rung) {
      const double rate = kept.schedulable * rung / kRungs;
      if (keeps(scene, policy, workload, rate, flags, seed)) found = rate;
    }
    rates.push_back(found);
  }
  std::sort(rates.begin(), rates.end());
  kept.rate = rates[rates.size() / 2];
  return kept;
}

void run(const Flags& flags) {
  std::vector<Workload> workloads;
  for (const Workload& one : kWorkloads) {
    const bool asked =
        flags.workloads.empty() ||
        std::count(flags.workloads.begin(), flags.workloads.end(), std::string(one.name)) > 0;
    if (asked) workloads.push_back(one);
  }
  const std::size_t count = flags.policies.size();
  std::vector<Kept> kept(workloads.size() * count);
  tools::parallel_for(flags.jobs, kept.size(), [&](std::size_t at) {
    const Scene scene;
    kept[at] = kept_of(scene, *schedule::testing::policy(flags.policies[at % count]),
                       workloads[at / count], flags);
  });
  fmt::print("requests/s within the SLO (in brackets: schedulable)\n{:12}", "workload");
  for (const std::string& policy : flags.policies) fmt::print(" {:>17}", policy);
  fmt::print("\n");
  std::vector<double> logs(count);
  for (std::size_t load = 0; load < workloads.size(); ++load) {
    fmt::print("{:12}", workloads[load].name);
    for (std::size_t policy = 0; policy < count; ++policy) {
      const Kept& one = kept[load * count + policy];
      fmt::print(" {:>9.0f} ({:5.0f})", one.rate, one.schedulable);
      logs[policy] += std::log(std::max(one.rate, 1.0)) / static_cast<double>(workloads.size());
    }
    fmt::print("\n");
  }
  fmt::print("{:12}", "mean");
  for (const double one : logs) fmt::print(" {:>17.0f}", std::exp(one));
  fmt::print("\n{:12}", "to the first");
  for (const double one : logs) fmt::print(" {:>17.3f}", std::exp(one - logs[0]));
  fmt::print("\n");
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  const auto declare = [&flags](bench::Options& command_line) {
    command_line.add("--policy", flags.policies);
    command_line.add("--workload", flags.workloads);
    command_line.add("--seconds", flags.seconds);
    command_line.add("--seeds", flags.seeds);
    command_line.add("--jobs", flags.jobs);
  };
  return bench::run_program(argc, argv, "bench_throughput",
                            "The throughput that plans keep within the SLO", declare,
                            [&flags] { run(flags); });
}
