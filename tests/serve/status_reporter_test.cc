#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/serve/values/frontend_status.h"
#include "tests/support/serve/world.h"

namespace gpulet::serve::testing {
namespace {

constexpr Time at_s(int time) { return Time(std::chrono::seconds(time)); }

// What two statuses of the same moment have in common.
std::vector<std::string> told(const FrontendStatus& status) {
  std::vector<std::string> lines = {status.state, status.policy, std::to_string(status.epoch.value),
                                    std::to_string(status.events.size())};
  for (const auto& [id, backend] : status.backends) lines.push_back("node " + backend.node);
  for (const DeviceStatus& device : status.devices) {
    lines.push_back(device.key.node + "/" + std::to_string(device.key.device) + " " +
                    std::to_string(device.used.percent) + " " + std::to_string(device.busy) + " " +
                    std::to_string(device.planned_memory_mb));
  }
  for (const GpuletStatus& gpulet : status.gpulets) {
    lines.push_back("gpulet " + std::to_string(gpulet.id.value) + " " +
                    std::to_string(gpulet.planned.has_value()) + " " +
                    std::to_string(gpulet.statistics.batches));
  }
  for (const ModelStatus& model : status.models) {
    lines.push_back(model.name + " " + std::string(to_string(model.state)) + " " +
                    std::to_string(model.counters.served) + " " + std::to_string(model.p99_ms) +
                    " " + std::to_string(model.rate_planned));
  }
  return lines;
}

class StatusInStepsTest : public ::testing::Test {
 protected:
  StatusInStepsTest() {
    std::map<std::string, double> base_ms;
    std::vector<ServedModel> models;
    for (int i = 0; i < 7; ++i) {
      const std::string name = "m" + std::to_string(i);
      base_ms[name] = 4;
      models.push_back(byte_model(name, 100, 20));
    }
    world_.emplace(FrontendOptions(), models, card_profile(base_ms));
    for (int i = 0; i < 3; ++i) world_->add_backend("n" + std::to_string(i), 2);
    for (std::uint64_t tag = 1; tag <= 20; ++tag)
      world_->request_at(at_s(5), "m" + std::to_string(tag % 7), tag);
    world_->run_until(at_s(6));
  }

  std::optional<World> world_;
};

TEST_F(StatusInStepsTest, IsTheSameForAnyNumberOfPartsPerStep) {
  const FrontendCore& core = world_->frontend();
  const std::vector<std::string> expected = told(core.status(world_->now()));
  EXPECT_EQ(core.status(world_->now()).models.size(), 7U);
  for (const std::size_t parts : {1U, 2U, 3U, 100U}) {
    StatusInSteps taken(world_->now());
    std::size_t steps = 1;
    while (!core.take(taken, parts)) ++steps;
    EXPECT_EQ(told(std::move(taken).finish()), expected) << parts;
    if (parts == 1) {
      EXPECT_GE(steps, 7U + 6U);
    }
  }
}

TEST_F(StatusInStepsTest, ChangesBetweenStepsAreHarmless) {
  StatusInSteps taken(world_->now());
  for (int i = 0; i < 4; ++i) ASSERT_FALSE(world_->frontend().take(taken, 1));
  world_->kill_backend("n1");
  world_->change_models_at(at_s(7), {byte_model("m3", 100, 20), byte_model("new", 100, 20)});
  world_->run_until(at_s(20));
  while (!world_->frontend().take(taken, 1)) {
  }
  const FrontendStatus status = std::move(taken).finish();
  EXPECT_EQ(status.models.size(), 2U);
  EXPECT_EQ(status.backends.size(), 3U) << "they were there when they were looked at";
}

TEST_F(StatusInStepsTest, AModelsStatusEqualsThatInTheWhole) {
  const FrontendCore& core = world_->frontend();
  const auto one = core.model_status("m2", world_->now());
  ASSERT_TRUE(one);
  EXPECT_EQ(one->counters.served, core.status(world_->now()).models[2].counters.served);
  EXPECT_GT(one->counters.served, 0U);
  EXPECT_FALSE(core.model_status("elsewhere", world_->now()));
}

// The time of a batch counts when it ends, so one of several seconds ends in one of them.
TEST(StatusReporter, AGpuletIsNeverBusyForMoreThanTheWholeTime) {
  World world(FrontendOptions(), {byte_model("a", 20000, 0.2)}, card_profile({{"a", 3000}}));
  world.add_backend("n0", 1);
  for (std::uint64_t tag = 1; tag <= 3; ++tag) world.request_at(at_s(5), "a", tag);
  double busiest = 0;
  for (int second = 6; second <= 30; ++second) {
    world.run_until(at_s(second));
    for (const GpuletStatus& gpulet : world.status().gpulets)
      busiest = std::max(busiest, gpulet.busy);
  }
  EXPECT_EQ(busiest, 1.0);
}

TEST(StatusReporter, AReplyHasTheSizeOfItsBatch) {
  World world(FrontendOptions(), {byte_model("a", 1000, 20)}, card_profile({{"a", 4}}));
  world.add_backend("n0", 1);
  world.request_at(at_s(5), "a", 1);
  world.run_until(at_s(7));
  EXPECT_EQ(world.replies().at(1).at(0).reply.batch_size, 1U);
}

}  // namespace
}  // namespace gpulet::serve::testing
