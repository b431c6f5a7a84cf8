// How much of what its devices can hold a plan uses: for fixed mixes of rates at the highest total
// rate that a policy schedules, the factor by which all rates can rise until 1 % of all requests
// violate their SLO. 1 is a plan without slack. Also the violations at the plan's own rates. Spare
// share stays free.
//
// The reference measurements (profiles/reference-gpu), the five models whose pairs were measured,
// SLO = twice the latency of 32 on a whole device, four devices. Deterministic.
//
//   bench_tightness [--policy NAME]... [--interference KIND] [--margin M] [--noise CV]
//                   [--spread CV] [--seconds S] [--mixes N] [--seed N] [--own] [--print]
//                   [--scenarios SCALE]
//
// --noise: the coefficient of variation of the simulated times of batches. --spread: the one that
// the profile states; without it the profile states none, and plans have a margin instead.
// --seed: of the requests and the times of batches (1); the mixes stay the same.
// --own: only the violations at the plan's own rates. --print: also the plans with their violations
// as predicted by schedule::predict_violations() and serve::simulate_violations(), and the outcome
// of each model.
// --scenarios: instead of the mixes, the 1,023 scenarios at that scale (docs/scheduling.md, "The
// reference case"): how many schedulable plans exceed 1 % at their own rates, at three seeds from
// --seed on.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bench/simulate/support.h"
#include "bench/support/options.h"
#include "gpulet/base/random.h"
#include "gpulet/schedule/explanation.h"
#include "gpulet/schedule/policy.h"
#include "gpulet/simulate/simulation.h"
#include "serve/dispatch/queue_simulation.h"
#include "tests/schedule/reference_case.h"
#include "tools/cli/parallel_for.h"

namespace {

using namespace gpulet;            // NOLINT(google-build-using-namespace)
using namespace gpulet::simulate;  // NOLINT(google-build-using-namespace)

constexpr double kAllowed = 0.01;

struct Flags {
  std::vector<std::string> policies{"elastic", "cover"};
  std::string interference = "combined";
  std::optional<double> margin;
  double noise = 0.05;
  std::optional<double> spread;
  double seconds = 60;
  std::size_t mixes = 20;
  std::uint64_t seed = 1;
  bool own = false;
  bool print = false;
  std::optional<double> scale;
};

struct Scene {
  explicit Scene(const Flags& flags)
      : worked(schedule::testing::reference_case(
            profile::parse_interference_kind(flags.interference).value())) {
    worked.input.options = {};
    worked.input.options.use_spare = false;  // it would hide how much of a device a plan needs
    if (flags.spread) schedule::testing::set_spread(worked, *flags.spread);
    if (flags.margin) worked.input.options.margin = *flags.margin;
    knowledge = bench::knowledge_of(worked);
    // The pairs are measured whatever the plan believes.
    if (!worked.interference) {
      measured = std::make_unique<schedule::testing::Worked>(
          schedule::testing::reference_case(profile::InterferenceKind::combined));
      knowledge.simulated = simulated_interference(*measured->profiles);
    }
    options.seconds = flags.seconds;
    options.keep_plan = true;
    options.timings.batch_cv = flags.noise;
  }

  schedule::testing::Worked worked;
  std::unique_ptr<schedule::testing::Worked> measured;
  Knowledge knowledge;
  SimulationOptions options;
};

// Of the requests and the times of batches for a mix. Seed 1 is the mix's own number.
std::uint64_t simulation_seed(const Flags& flags, std::size_t mix) {
  return ((flags.seed - 1) << 32U) + mix;
}

// Fractions of the devices' time for each model, uniform over all divisions.
std::vector<double> mix_of(const schedule::testing::Worked& worked, std::size_t number) {
  Random random(stream_seed(number, "mix"));
  std::vector<double> rates;
  for (const schedule::ModelDemand& demand : worked.input.demands) {
    const double batch_ms = worked.profiles->begin()
                                ->second.find(demand.name)
                                ->latency.latency_ms(demand.max_batch, kWholeDevice)
                                .value();
    rates.push_back(random.exponential(1) * demand.max_batch * 1000 / batch_ms);
  }
  return rates;
}

schedule::PlanInput input_at(const Scene& scene, const std::vector<double>& rates, double scale) {
  schedule::PlanInput input = scene.worked.input;
  for (std::size_t model = 0; model < rates.size(); ++model)
    input.demands[model].rate = rates[model] * scale;
  return input;
}

// The highest scale that the policy schedules, to one part in a thousand.
double highest_scale(const Scene& scene, const schedule::Policy& policy,
                     const std::vector<double>& rates) {
  double low = 0;
  double high = 4;
  while (high - low > 1e-3 * high) {
    const double middle = (low + high) / 2;
    (policy.plan(input_at(scene, rates, middle)).schedulable() ? low : high) = middle;
  }
  return low;
}

// The outcome of the plan for `input` at its rates times `factor`.
Outcome outcome_of(const Scene& scene, const schedule::Policy& policy,
                   const schedule::PlanInput& input, double factor, std::uint64_t seed) {
  Knowledge knowledge = scene.knowledge;
  knowledge.policy = &policy;
  SimulationOptions options = scene.options;
  options.seed = seed;
  if (factor != 1) {
    auto trace = std::make_shared<config::Trace>();
    for (const schedule::ModelDemand& demand : input.demands)
      trace->rates[demand.name] = {{0, demand.rate * factor}};
    options.trace = trace;
  }
  return bench::simulate_input(knowledge, input, options);
}

double worst_of(const Outcome& outcome) {
  double worst = 0;
  for (const ModelOutcome& model : outcome.models) worst = std::max(worst, model.violation);
  return worst;
}

struct MixResult {
  double scale = 0;
  double factor = 0;     // to 1 % of all requests
  double own = 0;        // violations at the plan's own rates
  double own_worst = 0;  // of the worst model
  std::string details;
};

std::string details_of(const schedule::Plan& plan, const schedule::PlanInput& input,
                       const Outcome& outcome) {
  std::string text;
  const auto fast = schedule::predict_violations(plan, input);
  const auto slow = serve::simulate_violations(plan, input);
  for (std::size_t at = 0; at < plan.gpulets.size(); ++at) {
    const schedule::PlannedGpulet& gpulet = plan.gpulets[at];
    text += fmt::format("  device {}: {:3} %, round of {:.2f} ms\n", gpulet.device.device,
                        gpulet.size.percent, gpulet.duty_cycle_ms);
    for (std::size_t one = 0; one < gpulet.assignments.size(); ++one) {
      const schedule::Assignment& assignment = gpulet.assignments[one];
      text += fmt::format(
          "    {:12} {:7.1f}/s, SLO {:6.2f} ms, {:2} in {:6.2f} ms (x {:.2f}): {:.3f} %, "
          "{:.3f} %\n",
          assignment.model, assignment.rate, assignment.slo_ms, assignment.batch,
          assignment.latency_ms, assignment.slowdown, 100 * fast[at][one].value_or(0),
          100 * slow[at][one].value_or(0));
    }
  }
  for (const ModelOutcome& model : outcome.models) {
    const double percent = 100 / static_cast<double>(model.offered);
    text += fmt::format("  {:14} {:7} offered, {:.3f} % dropped, {:.3f} % late\n", model.name,
                        model.offered, percent * static_cast<double>(model.dropped),
                        percent * static_cast<double>(model.late));
  }
  return text;
}

MixResult run_mix(const Flags& flags, const Scene& scene, const schedule::Policy& policy,
                  std::size_t number) {
  const std::vector<double> rates = mix_of(scene.worked, number);
  MixResult result;
  result.scale = highest_scale(scene, policy, rates);
  const schedule::PlanInput input = input_at(scene, rates, result.scale);
  const std::uint64_t seed = simulation_seed(flags, number);
  const Outcome own = outcome_of(scene, policy, input, 1, seed);
  result.own = own.violation;
  result.own_worst = worst_of(own);
  if (flags.print) result.details = details_of(policy.plan(input), input, own);
  if (flags.own) return result;
  double low = 0.5;
  double high = 2;
  while (high - low > 0.005) {
    const double middle = (low + high) / 2;
    const bool kept = outcome_of(scene, policy, input, middle, seed).violation <= kAllowed;
    (kept ? low : high) = middle;
  }
  result.factor = low;
  return result;
}

void print_mixes(const Flags& flags) {
  fmt::print("{:22} {:>5} {:>8} {:>8} {:>8} {:>8}\n", "policy", "mix", "scale", "factor", "own %",
             "worst %");
  for (const std::string& name : flags.policies) {
    std::vector<MixResult> results(flags.mixes);
    tools::parallel_for(std::thread::hardware_concurrency(), flags.mixes, [&](std::size_t at) {
      const Scene scene(flags);
      results[at] = run_mix(flags, scene, *schedule::testing::policy(name), at + 1);
    });
    std::vector<double> factors;
    double scales = 0;
    double own = 0;
    for (std::size_t at = 0; at < results.size(); ++at) {
      const MixResult& one = results[at];
      fmt::print("{:22} {:>5} {:>8.3f} {:>8.3f} {:>8.3f} {:>8.3f}\n", name, at + 1, one.scale,
                 one.factor, 100 * one.own, 100 * one.own_worst);
      fmt::print("{}", one.details);
      factors.push_back(one.factor);
      scales += std::log(one.scale) / static_cast<double>(results.size());
      own = std::max(own, one.own);
    }
    fmt::print("{:22} {:>5} {:>8.3f} {:>8.3f} {:>8.3f}   factor 10 % {:.3f}, 90 % {:.3f}\n", name,
               "all", std::exp(scales), bench::percentile_of(factors, 0.5), 100 * own,
               bench::percentile_of(factors, 0.1), bench::percentile_of(factors, 0.9));
  }
}

void print_scenarios(const Flags& flags) {
  fmt::print("{:22} {:>5} {:>12} {:>8} {:>14}\n", "policy", "seed", "schedulable", "over 1 %",
             "model over 1 %");
  constexpr std::size_t kCount = schedule::testing::kScenarios - 1;
  for (const std::string& name : flags.policies) {
    for (std::uint64_t seed = flags.seed; seed < flags.seed + 3; ++seed) {
      std::vector<std::optional<Outcome>> outcomes(kCount);
      tools::parallel_for(std::thread::hardware_concurrency(), kCount, [&](std::size_t at) {
        thread_local std::optional<Scene> scene;
        if (!scene) scene.emplace(flags);
        const auto policy = schedule::testing::policy(name);
        schedule::testing::set_scenario(scene->worked, static_cast<int>(at + 1), *flags.scale);
        const schedule::PlanInput& input = scene->worked.input;
        if (!policy->plan(input).schedulable()) return;
        outcomes[at] = outcome_of(*scene, *policy, input, 1, stream_seed(seed, std::to_string(at)));
      });
      std::size_t schedulable = 0;
      std::size_t over = 0;
      std::size_t model_over = 0;
      for (const auto& outcome : outcomes) {
        if (!outcome) continue;
        ++schedulable;
        over += outcome->violation > kAllowed ? 1 : 0;
        model_over += worst_of(*outcome) > kAllowed ? 1 : 0;
      }
      fmt::print("{:22} {:>5} {:>12} {:>8} {:>14}\n", name, seed, schedulable, over, model_over);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  const auto declare = [&flags](bench::Options& command_line) {
    command_line.add("--policy", flags.policies);
    command_line.add("--interference", flags.interference);
    command_line.add("--margin", flags.margin);
    command_line.add("--noise", flags.noise);
    command_line.add("--spread", flags.spread);
    command_line.add("--seconds", flags.seconds);
    command_line.add("--mixes", flags.mixes);
    command_line
        .add("--seed", flags.seed,
             "of the requests and the times of batches; the first of three with --scenarios")
        .in_range(1U, 1'000'000U);
    command_line.add_flag("--own", flags.own);
    command_line.add_flag("--print", flags.print);
    command_line.add("--scenarios", flags.scale);
  };
  return bench::run_program(
      argc, argv, "bench_tightness", "How much of what its devices can hold a plan uses", declare,
      [&flags] { flags.scale ? print_scenarios(flags) : print_mixes(flags); });
}
