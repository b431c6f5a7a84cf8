// Do plans keep their promise on devices that nobody tuned to? Made-up worlds
// (tests/verify/made_up_world.h): each policy plans, and each plan that is called schedulable is
// simulated. A plan breaks its promise where a model has more than 1 % violations beyond chance
// (one-sided, 99.9 %, for independent requests).
//
//   bench_promises [--worlds N] [--first K] [--policy NAME]... [--seconds S] [--live]
//                  [--unverified]
//
// Static: the plan stays. --live: the frontend's monitor and scaling loop plan again. Prints each
// broken plan, and per policy: schedulable plans, broken ones, the worst model, and how many of the
// models with 0.1 to 10 % violations are predicted within a factor of two. Exits 1 if a plan breaks
// its promise.
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/simulate/support.h"
#include "bench/support/options.h"
#include "gpulet/profile/interference.h"
#include "gpulet/simulate/simulation.h"
#include "gpulet/verify/verified_plan.h"
#include "tests/verify/made_up_world.h"
#include "tests/verify/verified_policy.h"

namespace {

using namespace gpulet;            // NOLINT(google-build-using-namespace)
using namespace gpulet::schedule;  // NOLINT(google-build-using-namespace)

struct Flags {
  std::uint64_t worlds = 100;
  std::uint64_t first = 1;
  std::vector<std::string> policies{"elastic", "cover",           "auto",
                                    "sbp",     "greedy-best-fit", "elastic-preprint"};
  double seconds = 60;
  bool live = false;
  bool unverified = false;
};

struct Total {
  std::size_t schedulable = 0;
  std::size_t devices = 0;
  std::size_t broken = 0;
  double worst = 0;
  std::size_t compared = 0;  // models with 0.1 to 10 % violations
  std::size_t near = 0;      // of them, predicted within a factor of two
};

class World {
 public:
  World(std::uint64_t number, const Flags& flags)
      : number_(number), flags_(flags), made_(schedule::testing::made_up_world(number, {})) {
    knowledge_.profiles = made_.profiles;
    knowledge_.simulated = simulate::simulated_interference(*made_.profiles);
    knowledge_.believed = simulate::simulated_interference(*made_.known);
    input_.cluster = made_.cluster;
    input_.demands = made_.demands;
    input_.profiles = knowledge_.profiles.get();
    input_.interference = knowledge_.believed.get();
  }

  void judge(const std::string& name, Total& total) {
    std::unique_ptr<Policy> policy = make_policy(name).value();
    if (!flags_.unverified)
      policy = std::make_unique<verify::testing::VerifiedPolicy>(std::move(policy));
    const Plan plan = policy->plan(input_);
    if (!plan.schedulable() || plan.gpulets.empty()) return;
    ++total.schedulable;
    total.devices += plan.devices_used();
    knowledge_.policy = policy.get();
    simulate::SimulationOptions options;
    options.seconds = flags_.seconds;
    options.seed = number_;
    options.keep_plan = !flags_.live;
    const simulate::Outcome outcome = bench::simulate_input(knowledge_, input_, options);
    const std::map<std::string, double> predicted = predicted_by(plan);
    bool broken = false;
    for (const simulate::ModelOutcome& model : outcome.models) {
      total.worst = std::max(total.worst, model.violation);
      const auto expected = predicted.find(model.name);
      const double late = expected == predicted.end() ? 0 : expected->second;
      if (model.violation >= 0.001 && model.violation <= 0.1) {
        ++total.compared;
        if (late >= model.violation / 2 && late <= 2 * model.violation) ++total.near;
      }
      if (model.violation <= schedule::testing::most_violations_by_chance(model.offered)) continue;
      broken = true;
      std::printf("world %llu %s: %s violates %.2f %% of %llu requests, predicted %.2f %%\n",
                  static_cast<unsigned long long>(number_), name.c_str(), model.name.c_str(),
                  100 * model.violation, static_cast<unsigned long long>(model.offered),
                  100 * late);
      std::fflush(stdout);
    }
    if (broken) ++total.broken;
  }

 private:
  [[nodiscard]] std::map<std::string, double> predicted_by(const Plan& plan) const {
    std::map<std::string, double> worst;
    const PredictedViolations predicted = verify::verified_violations(plan, input_);
    for (std::size_t at = 0; at < plan.gpulets.size(); ++at) {
      for (std::size_t slot = 0; slot < plan.gpulets[at].assignments.size(); ++slot) {
        double& known = worst[plan.gpulets[at].assignments[slot].model];
        known = std::max(known, predicted[at][slot].value_or(0));
      }
    }
    return worst;
  }

  std::uint64_t number_;
  const Flags& flags_;
  schedule::testing::MadeUpWorld made_;
  simulate::Knowledge knowledge_;
  PlanInput input_;
};

int run(const Flags& flags) {
  const std::vector<std::string>& names = flags.policies;
  std::map<std::string, Total> totals;
  for (std::uint64_t number = flags.first; number < flags.first + flags.worlds; ++number) {
    World world(number, flags);
    for (const std::string& name : names) world.judge(name, totals[name]);
  }
  std::printf("\n%-17s %7s %12s %8s %7s %8s %10s\n", "policy", "worlds", "schedulable", "devices",
              "broken", "worst %", "within x2");
  bool kept = true;
  for (const std::string& name : names) {
    const Total& total = totals[name];
    kept = kept && total.broken == 0;
    std::printf("%-17s %7llu %12zu %8zu %7zu %8.2f %5zu/%-5zu\n", name.c_str(),
                static_cast<unsigned long long>(flags.worlds), total.schedulable, total.devices,
                total.broken, 100 * total.worst, total.near, total.compared);
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
  };
  int verdict = 1;
  const int code =
      bench::run_program(argc, argv, "bench_promises", "What plans promise on made-up devices",
                         declare, [&] { verdict = run(flags); });
  return code != 0 ? code : verdict;
}
