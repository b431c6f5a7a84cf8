#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "research/learn/placement.h"
#include "research/train/training.h"
#include "tests/support/serve/world.h"

namespace gpulet::train {
namespace {

constexpr double kSeconds = 20;
constexpr double kFirstRate = 60;
constexpr double kSecondRate = 40;
constexpr double kWeight = 100;
constexpr std::uint32_t kBatch = 2;

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
    scene_.demands = {{"a", kFirstRate, 100, kBatch}, {"b", kSecondRate, 100, kBatch}};
    scene_.options.margin = 1;
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

  // A choice for each model of the task: the device of that index, half of it, or none.
  static constexpr std::uint32_t kNone = 0;
  static constexpr std::uint32_t half_of(std::uint32_t device) { return 1 + 2 * device; }
  static constexpr std::uint32_t whole(std::uint32_t device) { return 2 + 2 * device; }

  simulate::Knowledge knowledge_;
  simulate::SimulationInput scene_;
  schedule::PlanInput input_;
  learn::PlacementTask task_;
  std::unique_ptr<Environment> environment_;
};

// Equation 3 of InSS, by hand. A batch of two takes 1.5 times as long as one request
// (card_profile): 6 ms for a, 9 ms for b on a whole device. So h = 2 / 6 ms and H = 1 / 4 ms for a,
// 2 / 9 ms and 1 / 6 ms for b: h / H is 4/3 for both, and half of that on half a device.
constexpr double kOfAWholeDevice = 4.0 / 3;

TEST_F(PlacementEnvironmentTest, RewardsTheThroughputOfThePlannedBatches) {
  const Step step = environment_->step(std::vector<std::uint32_t>{whole(0), whole(1)});
  EXPECT_EQ(step.violation, 0);
  EXPECT_NEAR(step.reward, 2 * kOfAWholeDevice, 1e-9);
  EXPECT_NEAR(step.batch_throughput, 2 / 0.006 + 2 / 0.009, 1e-6);
  const double total = kFirstRate + kSecondRate;
  EXPECT_NEAR(step.throughput, total, 5 * std::sqrt(total / kSeconds));
  EXPECT_FALSE(step.last);
  const Step half = environment_->step(std::vector<std::uint32_t>{half_of(0), whole(1)});
  EXPECT_EQ(half.violation, 0);
  EXPECT_NEAR(half.reward, 1.5 * kOfAWholeDevice, 1e-9);
  EXPECT_TRUE(half.last);
}

TEST_F(PlacementEnvironmentTest, SubtractsTheWeightForEveryModelWithoutAGpulet) {
  const Step step = environment_->step(std::vector<std::uint32_t>{kNone, kNone});
  EXPECT_EQ(step.throughput, 0);
  EXPECT_EQ(step.batch_throughput, 0);
  EXPECT_EQ(step.violation, 1);
  EXPECT_EQ(step.reward, -2 * kWeight);
}

TEST_F(PlacementEnvironmentTest, WeighsTheViolationsOfEachModelAlone) {
  const std::string served = task_.models[0].name;
  const double rate = served == "a" ? kFirstRate : kSecondRate;
  const Step step = environment_->step(std::vector<std::uint32_t>{whole(0), kNone});
  EXPECT_NEAR(step.reward, kOfAWholeDevice - kWeight, 1e-9);
  EXPECT_NEAR(step.throughput, rate, 5 * std::sqrt(rate / kSeconds));
  EXPECT_NEAR(step.violation, 1 - rate / (kFirstRate + kSecondRate), 0.05);
}

}  // namespace
}  // namespace gpulet::train
