#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "gpulet/learn/placement.h"
#include "gpulet/train/training.h"
#include "tests/support/serve/world.h"

namespace gpulet::train {
namespace {

constexpr double kSeconds = 20;
constexpr double kFirstRate = 60;
constexpr double kSecondRate = 40;
constexpr double kWeight = 100;

// Two models and two devices of one type; constant rates.
class PlacementEnvironmentTest : public ::testing::Test {
 protected:
  PlacementEnvironmentTest() {
    knowledge_.profiles = std::make_shared<const profile::ProfileSet>(
        profile::ProfileSet{{"card", serve::testing::card_profile({{"a", 4}, {"b", 6}})}});
    knowledge_.believed = std::make_shared<const profile::InterferenceSet>();
    knowledge_.simulated = simulate::simulated_interference(*knowledge_.profiles);
    for (const char* const node : {"n0", "n1"}) {
      schedule::Device& device = scene_.cluster.devices.emplace_back();
      device.key = {node, 0};
      device.type = "card";
      device.partitioning = "mps";
      device.sizes = {{50}, {100}};
    }
    scene_.demands = {{"a", kFirstRate, 100, 16}, {"b", kSecondRate, 100, 16}};
    input_.cluster = scene_.cluster;
    input_.demands = scene_.demands;
    input_.profiles = knowledge_.profiles.get();
    input_.interference = knowledge_.believed.get();
    task_ = learn::task_of(input_).value();
    PlacementOptions options;
    options.steps = 2;
    options.seconds = kSeconds;
    options.lowest_rate = 1;
    options.violation_weight = kWeight;
    environment_ = make_placement_environment(task_, scene_, knowledge_, options);
    (void)environment_->reset(1);
  }

  // A choice for each model of the task: the whole device of that index, or none.
  static constexpr std::uint32_t kNone = 0;
  static constexpr std::uint32_t whole(std::uint32_t device) { return 2 + 2 * device; }

  [[nodiscard]] double alone_rate(const std::string& model) const {
    return 1000 / learn::least_work_ms(input_, model);
  }

  simulate::Knowledge knowledge_;
  simulate::SimulationInput scene_;
  schedule::PlanInput input_;
  learn::PlacementTask task_;
  std::unique_ptr<Environment> environment_;
};

// Equation 3 of InSS: the requests in time of each model, as a part of the rate that a whole device
// holds.
TEST_F(PlacementEnvironmentTest, RewardsTheRequestsInTime) {
  const Step step = environment_->step(std::vector<std::uint32_t>{whole(0), whole(1)});
  EXPECT_EQ(step.violation, 0);
  const double total = kFirstRate + kSecondRate;
  EXPECT_NEAR(step.throughput, total, 5 * std::sqrt(total / kSeconds));
  const double expected = kFirstRate / alone_rate("a") + kSecondRate / alone_rate("b");
  EXPECT_NEAR(step.reward, expected, 0.2 * expected);
  EXPECT_FALSE(step.last);
  EXPECT_TRUE(environment_->step(std::vector<std::uint32_t>{whole(0), whole(1)}).last);
}

TEST_F(PlacementEnvironmentTest, SubtractsTheWeightForEveryModelWithoutAGpulet) {
  const Step step = environment_->step(std::vector<std::uint32_t>{kNone, kNone});
  EXPECT_EQ(step.throughput, 0);
  EXPECT_EQ(step.violation, 1);
  EXPECT_EQ(step.reward, -2 * kWeight);
}

TEST_F(PlacementEnvironmentTest, WeighsTheViolationsOfEachModelAlone) {
  const std::string served = task_.models[0].name;
  const double rate = served == "a" ? kFirstRate : kSecondRate;
  const Step step = environment_->step(std::vector<std::uint32_t>{whole(0), kNone});
  const double expected = rate / alone_rate(served);
  EXPECT_NEAR(step.reward, expected - kWeight, 0.2 * expected);
  EXPECT_NEAR(step.throughput, rate, 5 * std::sqrt(rate / kSeconds));
  EXPECT_NEAR(step.violation, 1 - rate / (kFirstRate + kSecondRate), 0.05);
}

}  // namespace
}  // namespace gpulet::train
