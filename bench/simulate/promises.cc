// Do plans keep their promise on devices that nobody tuned to? Made-up worlds
// (tests/verify/made_up_world.h): each policy plans, and each plan that is called schedulable is
// simulated. A plan breaks its promise where a model has more than 1 % violations beyond chance
// (one-sided, 99.9 %, for independent requests). It is then simulated ten times as long with
// another seed, which tells a lasting fault from a burst: requests are late in bursts, so that
// single minutes scatter more than independent requests.
//
//   bench_promises [--worlds N] [--first K] [--policy NAME]... [--seconds S] [--live]
//                  [--unverified] [--misses] [--jobs N]
//
// Static: the plan stays. --live: the frontend's monitor and scaling loop plan again. Prints each
// broken plan, and per policy: schedulable plans, broken ones, those of them that last, the worst
// model, how many of the models with 0.1 to 10 % violations, and 30 at least, are predicted within
// a factor of two, how many are when the others are compared with a simulation ten times as long,
// and the longest time to make a plan. Exits 1 if a plan breaks its promise.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/simulate/support.h"
#include "bench/support/options.h"
#include "gpulet/planning/pipeline.h"
#include "gpulet/profile/interference.h"
#include "gpulet/research/research.h"
#include "gpulet/simulate/simulation.h"
#include "gpulet/verify/verified_plan.h"
#include "tests/verify/simulated_world.h"
#include "tools/cli/parallel_for.h"

namespace {

using namespace gpulet;            // NOLINT(google-build-using-namespace)
using namespace gpulet::schedule;  // NOLINT(google-build-using-namespace)

// With fewer late requests, a simulation does not tell the part of them within a factor of two.
constexpr double kFewestLate = 30;

struct Flags {
  std::uint64_t worlds = 100;
  std::uint64_t first = 1;
  std::vector<std::string> policies{"elastic", "cover",           "auto",
                                    "sbp",     "greedy-best-fit", "elastic-preprint"};
  double seconds = 60;
  bool live = false;
  bool unverified = false;
  bool misses = false;
  unsigned jobs = std::thread::hardware_concurrency();
};

struct Total {
  std::size_t schedulable = 0;
  std::size_t devices = 0;
  std::size_t broken = 0;
  std::size_t lasting = 0;  // of the broken ones, broken in ten times as long as well
  double worst = 0;
  double longest_ms = 0;      // to make a plan
  std::size_t compared = 0;   // models with 0.1 to 10 % violations, and 30 at least
  std::size_t near = 0;       // of them, predicted within a factor of two
  std::size_t near_long = 0;  // the same, misses compared with ten times as long
  std::string notes;          // the broken promises

  void add(const Total& other) {
    schedulable += other.schedulable;
    devices += other.devices;
    broken += other.broken;
    lasting += other.lasting;
    worst = std::max(worst, other.worst);
    longest_ms = std::max(longest_ms, other.longest_ms);
    compared += other.compared;
    near += other.near;
    near_long += other.near_long;
    notes += other.notes;
  }
};

// Every fifth world has devices that MIG divides, and every tenth up to 40 models.
schedule::testing::WorldShape shape_of(std::uint64_t number) {
  schedule::testing::WorldShape shape;
  shape.mig = number % 5 == 0;
  if (number % 10 == 3) {
    shape.most_models = 40;
    shape.most_devices = 24;
  }
  return shape;
}

class World {
 public:
  World(std::uint64_t number, const Flags& flags)
      : number_(number), flags_(flags), world_(number, shape_of(number)) {
    world_.input.options.verify = !flags.unverified;
  }

  void judge(const std::string& name, Total& total) {
    const std::unique_ptr<Policy> policy = research::policies().make(name).value();
    const auto begin = std::chrono::steady_clock::now();
    const Plan plan = planning::make_plan(world_.request(flags_.live), *policy).plan;
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    total.longest_ms = std::max(total.longest_ms, took.count());
    if (!plan.schedulable() || plan.gpulets.empty()) return;
    ++total.schedulable;
    total.devices += plan.devices_used();
    world_.knowledge.policy = policy.get();
    const std::map<std::string, double> predicted = predicted_by(plan);
    const simulate::Outcome outcome = simulated(flags_.seconds, number_);
    std::vector<std::size_t> missed;
    for (std::size_t at = 0; at < outcome.models.size(); ++at) {
      const simulate::ModelOutcome& model = outcome.models[at];
      total.worst = std::max(total.worst, model.violation);
      if (!counts(model)) continue;
      ++total.compared;
      if (is_near(expected(predicted, model.name), model.violation)) {
        ++total.near;
        ++total.near_long;
      } else {
        missed.push_back(at);
      }
    }
    if (missed.empty() && !breaks(outcome)) return;
    const simulate::Outcome again = simulated(10 * flags_.seconds, number_ + kOtherSeed);
    for (const std::size_t at : missed)
      note_miss(name, predicted, outcome.models[at], again.models[at], total);
    if (!breaks(outcome)) return;
    ++total.broken;
    if (breaks(again)) ++total.lasting;
    for (std::size_t at = 0; at < outcome.models.size(); ++at) {
      const simulate::ModelOutcome& model = outcome.models[at];
      const simulate::ModelOutcome& longer = again.models[at];
      if (!breaks(model) && !breaks(longer)) continue;
      total.notes += fmt::format(
          "world {} {}: {} violates {:.2f} % of {} requests, {:.2f} % in ten times as long, "
          "predicted {:.2f} %\n",
          number_, name, model.name, 100 * model.violation, model.offered, 100 * longer.violation,
          100 * expected(predicted, model.name));
    }
  }

 private:
  static constexpr std::uint64_t kOtherSeed = 1'000'000;

  [[nodiscard]] simulate::Outcome simulated(double seconds, std::uint64_t seed) const {
    simulate::SimulationOptions options;
    options.seconds = seconds;
    options.seed = seed;
    options.keep_plan = !flags_.live;
    return bench::simulate_input(world_.knowledge, world_.input, options);
  }

  [[nodiscard]] static bool breaks(const simulate::ModelOutcome& model) {
    return model.violation > schedule::testing::most_violations_by_chance(model.offered);
  }
  [[nodiscard]] static bool breaks(const simulate::Outcome& outcome) {
    return std::any_of(outcome.models.begin(), outcome.models.end(),
                       [](const auto& model) { return breaks(model); });
  }

  [[nodiscard]] static double expected(const std::map<std::string, double>& predicted,
                                       const std::string& model) {
    const auto found = predicted.find(model);
    return found == predicted.end() ? 0 : found->second;
  }
  static bool counts(const simulate::ModelOutcome& model) {
    return model.violation * static_cast<double>(model.offered) >= kFewestLate &&
           model.violation >= 0.001 && model.violation <= 0.1;
  }
  static bool is_near(double late, double violation) {
    return late >= violation / 2 && late <= 2 * violation;
  }
  void note_miss(const std::string& policy, const std::map<std::string, double>& predicted,
                 const simulate::ModelOutcome& model, const simulate::ModelOutcome& longer,
                 Total& total) const {
    const double late = expected(predicted, model.name);
    if (is_near(late, longer.violation)) ++total.near_long;
    if (!flags_.misses) return;
    total.notes += fmt::format(
        "world {} {}: {} violates {:.2f} % of {}, {:.2f} % in ten times as long, predicted {:.2f} "
        "%\n",
        number_, policy, model.name, 100 * model.violation, model.offered, 100 * longer.violation,
        100 * late);
  }

  [[nodiscard]] std::map<std::string, double> predicted_by(const Plan& plan) const {
    std::map<std::string, double> late;  // first requests per second, then their part
    std::map<std::string, double> rates;
    const PredictedViolations predicted = verify::verified_violations(plan, world_.input);
    for (std::size_t at = 0; at < plan.gpulets.size(); ++at) {
      for (std::size_t slot = 0; slot < plan.gpulets[at].assignments.size(); ++slot) {
        const Assignment& one = plan.gpulets[at].assignments[slot];
        late[one.model] += one.rate * predicted[at][slot].value_or(0);
        rates[one.model] += one.rate;
      }
    }
    for (auto& [model, part] : late) part /= rates[model];
    return late;
  }

  std::uint64_t number_;
  const Flags& flags_;
  simulate::testing::SimulatedWorld world_;
};

int run(const Flags& flags) {
  const std::vector<std::string>& names = flags.policies;
  std::vector<std::map<std::string, Total>> of_world(flags.worlds);
  tools::parallel_for(flags.jobs, of_world.size(), [&](std::size_t at) {
    World world(flags.first + at, flags);
    for (const std::string& name : names) world.judge(name, of_world[at][name]);
  });
  std::map<std::string, Total> totals;
  for (const auto& world : of_world) {
    for (const auto& [name, total] : world) totals[name].add(total);
  }
  for (const std::string& name : names) fmt::print("{}", totals[name].notes);
  fmt::print("\n{:17} {:>7} {:>12} {:>8} {:>7} {:>11} {:>8} {:>10} {:>10} {:>11}\n", "policy",
             "worlds", "schedulable", "devices", "broken", "lasting", "worst %", "within x2",
             "if long", "longest ms");
  bool kept = true;
  for (const std::string& name : names) {
    const Total& total = totals[name];
    kept = kept && total.broken == 0;
    fmt::print("{:17} {:>7} {:>12} {:>8} {:>7} {:>11} {:>8.2f} {:>10} {:>10} {:>11.0f}\n", name,
               flags.worlds, total.schedulable, total.devices, total.broken, total.lasting,
               100 * total.worst, fmt::format("{}/{}", total.near, total.compared),
               fmt::format("{}/{}", total.near_long, total.compared), total.longest_ms);
  }
  return kept ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  const auto declare = [&flags](bench::Options& command_line) {
    command_line.add("--worlds", flags.worlds, "number of worlds");
    command_line.add("--first", flags.first, "number of the first world");
    command_line.add("--policy", flags.policies, "a policy; may be given several times");
    command_line.add("--seconds", flags.seconds, "simulated time of each plan").positive();
    command_line.add_flag("--live", flags.live, "let the frontend plan again");
    command_line.add_flag("--unverified", flags.unverified, "the policies' own plans");
    command_line.add_flag("--misses", flags.misses,
                          "print the models that are predicted beyond a factor of two");
    command_line.add("--jobs", flags.jobs, "threads; they change nothing but the time");
  };
  int verdict = 1;
  const int code =
      bench::run_program(argc, argv, "bench_promises", "What plans promise on made-up devices",
                         declare, [&] { verdict = run(flags); });
  return code != 0 ? code : verdict;
}
