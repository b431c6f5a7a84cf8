// Prints, for every policy on the reference case, how many of the 1023 scenarios it schedules at
// scales 3, 3.3, 4 and 5, how many pairs of them are not monotonic in the load, and the time of a
// plan: docs/scheduling.md, "The reference case". Arguments: a model of interference (linear,
// learned, measured), names of policies, to print those only, "default", for the default margin and
// headroom in place of none, "pipeline", for the plans of planning::make_plan with all defaults,
// which takes seconds per policy and scale, and "nine", for nine models at scale 6.1: every eighth
// of the 19,682 vectors of 0, 100 or 200 requests/s each (docs/experiments), without the pairs.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "gpulet/planning/pipeline.h"
#include "gpulet/schedule/check.h"
#include "tests/schedule/reference_case.h"

namespace {

using namespace gpulet;            // NOLINT(google-build-using-namespace)
using namespace gpulet::schedule;  // NOLINT(google-build-using-namespace)

// The rates of one scenario, parallel to the demands.
using Rates = std::vector<double>;

Rates rates_of(const testing::Worked& worked) {
  Rates rates;
  for (const ModelDemand& demand : worked.input.demands) rates.push_back(demand.rate);
  return rates;
}

std::vector<Rates> five_models(testing::Worked& worked, double scale) {
  std::vector<Rates> scenarios;
  for (int scenario = 1; scenario < testing::kScenarios; ++scenario) {
    testing::set_scenario(worked, scenario, scale);
    scenarios.push_back(rates_of(worked));
  }
  return scenarios;
}

std::vector<Rates> nine_models(testing::Worked& worked, double scale) {
  constexpr int kEvery = 8;
  testing::demand_nine_models(worked);
  std::vector<Rates> scenarios;
  for (int scenario = 1; scenario < testing::kScenariosOfNine; scenario += kEvery) {
    testing::set_scenario_of_nine(worked, scenario, scale);
    scenarios.push_back(rates_of(worked));
  }
  return scenarios;
}

Plan planned(const testing::Worked& worked, const Policy& policy, bool by_pipeline) {
  if (!by_pipeline) return policy.plan(worked.input);
  planning::PlanRequest request;
  request.cluster = worked.input.cluster;
  request.demands = worked.input.demands;
  request.options = worked.input.options;
  request.profiles = {std::shared_ptr<void>(), worked.profiles.get()};  // of `worked`
  request.interference = {std::shared_ptr<void>(), worked.interference.get()};
  return planning::make_plan(request, policy).plan;
}

void print_row(testing::Worked& worked, std::string_view name, double scale,
               const std::vector<Rates>& scenarios, bool count_pairs, bool by_pipeline) {
  const auto planner = testing::policy(name);
  std::vector<bool> schedulable;
  std::vector<double> times_us;
  std::size_t broken = 0;
  for (const Rates& rates : scenarios) {
    for (std::size_t model = 0; model < rates.size(); ++model)
      worked.input.demands[model].rate = rates[model];
    const auto start = std::chrono::steady_clock::now();
    const Plan plan = planned(worked, *planner, by_pipeline);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    times_us.push_back(took.count());
    schedulable.push_back(plan.schedulable());
    if (!check(plan, worked.input).empty()) ++broken;
  }
  std::sort(times_us.begin(), times_us.end());
  const std::string pairs =
      count_pairs ? std::to_string(testing::count_non_monotonic(schedulable)) : "-";
  std::printf("%-20s %5.1f %9zu %11td %13s %10.1f %10.1f %10.1f %6zu\n", std::string(name).c_str(),
              scale, scenarios.size(), std::count(schedulable.begin(), schedulable.end(), true),
              pairs.c_str(), times_us[times_us.size() / 2], times_us[times_us.size() * 99 / 100],
              times_us.back(), broken);
}

}  // namespace

int main(int argc, char** argv) {
  std::printf("%-20s %5s %9s %11s %13s %10s %10s %10s %6s\n", "policy", "scale", "scenarios",
              "schedulable", "non-monotonic", "median us", "p99 us", "most us", "broken");
  std::vector<std::string_view> names;
  auto interference = profile::InterferenceKind::none;
  bool defaults = false;
  bool by_pipeline = false;
  bool nine = false;
  for (int argument = 1; argument < argc; ++argument) {
    const auto kind = profile::parse_interference_kind(argv[argument]);
    if (kind.ok()) {
      interference = kind.value();
    } else if (argv[argument] == std::string_view("default")) {
      defaults = true;
    } else if (argv[argument] == std::string_view("pipeline")) {
      by_pipeline = true;
    } else if (argv[argument] == std::string_view("nine")) {
      nine = true;
    } else {
      names.emplace_back(argv[argument]);
    }
  }
  if (names.empty()) names = testing::share_policies();
  testing::Worked worked = testing::reference_case(interference);
  if (defaults || by_pipeline) worked.input.options = {};
  const std::vector<double> scales = nine ? std::vector{6.1} : std::vector{3.0, 3.3, 4.0, 5.0};
  for (const std::string_view name : names) {
    for (const double scale : scales) {
      const auto scenarios = nine ? nine_models(worked, scale) : five_models(worked, scale);
      print_row(worked, name, scale, scenarios, !nine, by_pipeline);
    }
  }
  return 0;
}
