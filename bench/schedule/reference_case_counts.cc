// Prints, for every policy on the reference case, how many of the 1023 scenarios it schedules at
// scales 3, 4 and 5, how many pairs of them are not monotonic in the load, and the time of a plan:
// docs/scheduling.md, "The reference case". Arguments: a model of interference (linear, learned,
// measured), names of policies, to print those only, and "default", for the default margin and
// headroom in place of none.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "gpulet/schedule/check.h"
#include "tests/schedule/reference_case.h"

namespace {

using namespace gpulet;            // NOLINT(google-build-using-namespace)
using namespace gpulet::schedule;  // NOLINT(google-build-using-namespace)

void print_row(testing::Worked& worked, std::string_view name, double scale) {
  const auto planner = testing::policy(name);
  std::vector<bool> schedulable;
  std::vector<double> times_us;
  std::size_t broken = 0;
  for (int scenario = 1; scenario < testing::kScenarios; ++scenario) {
    testing::set_scenario(worked, scenario, scale);
    const auto start = std::chrono::steady_clock::now();
    const Plan plan = planner->plan(worked.input);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    times_us.push_back(took.count());
    schedulable.push_back(plan.schedulable());
    if (!check(plan, worked.input).empty()) ++broken;
  }
  std::sort(times_us.begin(), times_us.end());
  std::printf("%-20s %5.1f %11td %13zu %10.1f %10.1f %10.1f %6zu\n", std::string(name).c_str(),
              scale, std::count(schedulable.begin(), schedulable.end(), true),
              testing::count_non_monotonic(schedulable), times_us[times_us.size() / 2],
              times_us[times_us.size() * 99 / 100], times_us.back(), broken);
}

}  // namespace

int main(int argc, char** argv) {
  std::printf("%-20s %5s %11s %13s %10s %10s %10s %6s\n", "policy", "scale", "schedulable",
              "non-monotonic", "median us", "p99 us", "most us", "broken");
  std::vector<std::string_view> names;
  auto interference = profile::InterferenceKind::none;
  bool defaults = false;
  for (int argument = 1; argument < argc; ++argument) {
    const auto kind = profile::parse_interference_kind(argv[argument]);
    if (kind.ok()) {
      interference = kind.value();
    } else if (argv[argument] == std::string_view("default")) {
      defaults = true;
    } else {
      names.emplace_back(argv[argument]);
    }
  }
  if (names.empty()) names = testing::share_policies();
  testing::Worked worked = testing::reference_case(interference);
  if (defaults) worked.input.options = {};
  for (const std::string_view name : names) {
    for (const double scale : {3.0, 3.3, 4.0, 5.0}) print_row(worked, name, scale);
  }
  return 0;
}
