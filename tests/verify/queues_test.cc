// The prediction against the dispatcher itself, on made-up devices.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "gpulet/serve/queue_simulation.h"
#include "gpulet/simulate/simulation.h"
#include "gpulet/verify/verified_plan.h"
#include "tests/verify/simulated_world.h"

namespace gpulet::simulate {
namespace {

// Small, so that many fit into a test.
testing::SimulatedWorld small_world(std::uint64_t number, bool neighbours) {
  return {number, {.most_models = 6, .most_devices = 4, .varies = true, .neighbours = neighbours}};
}

// The models of a plan with one gpulet each, on devices where all models have one.
std::set<std::string> models_apart(const schedule::Plan& plan) {
  std::map<std::string, int> gpulets;
  for (const schedule::PlannedGpulet& gpulet : plan.gpulets) {
    for (const schedule::Assignment& one : gpulet.assignments) ++gpulets[one.model];
  }
  std::set<std::string> apart;
  for (const schedule::PlannedGpulet& gpulet : plan.gpulets) {
    const bool all_once = std::all_of(
        plan.gpulets.begin(), plan.gpulets.end(), [&](const schedule::PlannedGpulet& other) {
          return other.device != gpulet.device ||
                 std::all_of(other.assignments.begin(), other.assignments.end(),
                             [&](const auto& one) { return gpulets[one.model] == 1; });
        });
    if (!all_once) continue;
    for (const schedule::Assignment& one : gpulet.assignments) apart.insert(one.model);
  }
  return apart;
}

// The prediction has dispatch rules of its own; serve::simulate_violations() has the dispatcher.
TEST(VerifiedViolations, AreThoseOfTheDispatcher) {
  int compared = 0;
  int near = 0;
  for (std::uint64_t number = 1; number <= 40; ++number) {
    const testing::SimulatedWorld scene = small_world(number, true);
    const auto policy = schedule::make_policy("elastic").value();
    const schedule::Plan plan = policy->plan(scene.input);
    const auto predicted = verify::verified_violations(plan, scene.input);
    const auto chain = schedule::predict_violations(plan, scene.input);
    const std::set<std::string> apart = models_apart(plan);
    std::optional<schedule::PredictedViolations> served;
    for (std::size_t gpulet = 0; gpulet < plan.gpulets.size(); ++gpulet) {
      for (std::size_t one = 0; one < predicted[gpulet].size(); ++one) {
        const double late = predicted[gpulet][one].value_or(0);
        const bool simulated = predicted[gpulet][one] != chain[gpulet][one];
        if (!simulated || late < 0.003 || late > 0.1) continue;
        if (!apart.contains(plan.gpulets[gpulet].assignments[one].model)) continue;
        if (!served) served = serve::simulate_violations(plan, scene.input, {.requests = 60'000});
        const double other = (*served)[gpulet][one].value();
        ++compared;
        if (other <= 2 * late && late <= 2 * other) ++near;
      }
    }
  }
  EXPECT_GE(compared, 5);
  EXPECT_GE(near, 0.8 * compared) << near << " of " << compared;
}

}  // namespace
}  // namespace gpulet::simulate
