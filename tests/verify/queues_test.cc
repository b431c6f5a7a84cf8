// The prediction against the dispatcher itself, on made-up devices.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gpulet/schedule/explanation.h"
#include "gpulet/simulate/simulation.h"
#include "gpulet/verify/verified_plan.h"
#include "serve/dispatch/queue_simulation.h"
#include "tests/schedule/worked.h"
#include "tests/verify/simulated_world.h"
#include "verify/shared_queues.h"

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

// One model alone in a gpulet, whose batches take 10 ms and 1 ms for each request.
verify::SharedQueues one_queue(double rate, double objective_ms) {
  verify::SharedSlot slot{0, rate, {}, {}, {}};
  for (int count = 1; count <= 32; ++count) {
    slot.alone_ms.push_back(10 + count);
    slot.execution.push_back(from_ms(10 + count));
    slot.cv.push_back(0);
  }
  return {{{rate, from_ms(objective_ms)}}, {{0, slot.execution.back(), {slot}}}, {}};
}

// Requests that come after a batch was chosen wait for the next one, which matters to an objective
// of a few milliseconds.
TEST(Prediction, KnowsThatBatchesInTurnAreChosenAhead) {
  schedule::testing::Worked worked;
  schedule::testing::add_profile(worked, "card", {{"a", 0.27, 0.01}, {"b", 0.58, 0.0145}});
  schedule::testing::add_devices(worked, "n0", "card", 1);
  worked.input.options = {};
  worked.input.demands = {{"a", 2637, 1.9, 32}, {"b", 800, 7.34, 32}};
  schedule::Plan plan;
  plan.gpulets.push_back({{"n0", 0}, Share{100}, 0.98, {}});
  plan.gpulets[0].assignments = {{"a", 2637, 5, 0.32, 1, 1.9}, {"b", 800, 4, 0.64, 1, 7.34}};
  const double simulated = verify::verified_violations(plan, worked.input)[0][0].value();
  ASSERT_GT(simulated, 0.02);
  EXPECT_GT(schedule::predict_violations(plan, worked.input)[0][0].value(), simulated / 3);
}

// A model with hardly a rate in a gpulet brings it whatever its own gpulet cannot serve at once.
TEST(VerifiedViolations, KnowWhatComesFromOtherDevices) {
  schedule::testing::Worked worked;
  schedule::testing::add_profile(worked, "card", {{"a", 4.5, 1.0}, {"b", 14, 3}});
  schedule::testing::add_devices(worked, "n0", "card", 2);
  worked.input.options = {};
  worked.input.demands = {{"a", 640, 60, 32}, {"b", 150, 190, 32}};
  schedule::Plan plan;
  plan.gpulets.push_back({{"n0", 0}, Share{100}, 37.5, {}});
  plan.gpulets[0].assignments = {{"a", 640, 16, 20.5, 1, 60}, {"b", 0.4, 1, 17, 1, 190}};
  plan.gpulets.push_back({{"n0", 1}, Share{100}, 29, {}});
  plan.gpulets[1].assignments = {{"b", 149.6, 5, 29, 1, 190}};
  const auto late_of_a = [&] {
    return verify::verified_violations(plan, worked.input)[0][0].value();
  };
  const double late = late_of_a();
  plan.gpulets.pop_back();
  EXPECT_GT(late, 3 * late_of_a());
}

TEST(SharedQueues, AreSimulatedInFullWhereNothingIsLateAgainstExpectation) {
  const verify::SharedQueues queues = one_queue(300, 300);
  const std::size_t all = 90'000;
  const auto requests = [&](double expected) {
    const auto late = verify::simulate_late(queues, {{0, all, expected}}, 1, 0.007);
    EXPECT_EQ(late.parts[0].mean, 0);
    return late.requests;
  };
  EXPECT_EQ(requests(0.02), all);
  EXPECT_LT(requests(0.01), all / 2);
  EXPECT_LT(requests(0.001), all / 5);
}

TEST(SharedQueues, EachQueueIsObservedAsIfItWereAlone) {
  verify::SharedQueues queues = one_queue(300, 80);
  queues.queues.push_back({350, from_ms(75)});
  queues.gpulets[0].slots.push_back(queues.gpulets[0].slots[0]);
  queues.gpulets[0].slots[1].queue = 1;
  for (const std::optional<double>& limit : {std::optional<double>(), std::optional(0.007)}) {
    const std::vector<verify::AskedQueue> asked{{0, 60'000}, {1, 50'000}};
    const auto both = verify::simulate_late(queues, asked, 1, limit);
    EXPECT_GT(both.parts[1].mean, 0);
    for (std::size_t at = 0; at < asked.size(); ++at) {
      const auto alone = verify::simulate_late(queues, {asked[at]}, 1, limit);
      EXPECT_EQ(both.parts[at].mean, alone.parts[0].mean);
      EXPECT_EQ(both.parts[at].bad_minute, alone.parts[0].bad_minute);
    }
  }
}

TEST(SharedQueues, ABadMinuteIsFarAboveTheMean) {
  const double rate = 700;  // of 762 at most
  const verify::SharedQueues queues = one_queue(rate, 90);
  const verify::LatePart predicted =
      verify::simulate_late(queues, {{0, 1'000'000}}, 1, {}).parts[0];
  ASSERT_GT(predicted.mean, 0.001);
  ASSERT_LT(predicted.mean, 0.05);
  constexpr int kMinutes = 40;
  double squares = 0;
  for (std::uint64_t minute = 0; minute < kMinutes; ++minute) {
    const auto requests = static_cast<std::size_t>(60 * rate);
    const double part =
        verify::simulate_late(queues, {{0, requests}}, 100 + minute, {}).parts[0].mean;
    squares += (part - predicted.mean) * (part - predicted.mean);
  }
  const double deviation = std::sqrt(squares / kMinutes);
  EXPECT_GT(deviation, 3 * std::sqrt(predicted.mean / (60 * rate))) << "late in bursts";
  EXPECT_GT(predicted.bad_minute, predicted.mean + 2 * deviation);
  EXPECT_LT(predicted.bad_minute, predicted.mean + 6 * deviation);
}

// One burst in three hours, in which a sixth of a minute's requests are late.
TEST(SharedQueues, AMinuteIsBadHoweverRareItsBursts) {
  verify::SharedQueues queues = one_queue(20, 300);
  queues.queues.push_back({0.0001, std::chrono::minutes(2)});
  queues.gpulets[0].slots.push_back({1, 0.0001, {std::chrono::seconds(10)}, {10'000}, {0}});
  const verify::LatePart late = verify::simulate_late(queues, {{0, 1'500'000}}, 1, {}).parts[0];
  ASSERT_GT(late.mean, 0);
  ASSERT_LT(late.mean, 0.005);
  EXPECT_GT(late.bad_minute, 10 * late.mean);
}

}  // namespace
}  // namespace gpulet::simulate
