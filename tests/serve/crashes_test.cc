// Models whose processes crash, in the whole engine: who fails, who moves, who is withheld.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "gpulet/planning/pipeline.h"
#include "gpulet/research/research.h"
#include "gpulet/schedule/policy.h"
#include "tests/support/serve/world.h"

namespace gpulet::serve::crashes_test {
namespace {

using testing::byte_model;
using testing::card_profile;
using testing::World;

constexpr std::byte kPoison{255};
constexpr std::uint64_t kPoisonTag = 255;  // its low byte is the input

constexpr Time at_s(double s) {
  return Time(std::chrono::milliseconds(static_cast<int>(s * 1000)));
}

StatusCode code(const World& world, std::uint64_t tag) {
  const auto found = world.replies().find(tag);
  if (found == world.replies().end() || found->second.size() != 1) return StatusCode::cancelled;
  return found->second[0].reply.status.code();
}

ModelStatus status_of(const World& world, const std::string& name) {
  const FrontendStatus status = world.status();
  return *std::find_if(status.models.begin(), status.models.end(),
                       [&name](const ModelStatus& one) { return one.name == name; });
}

TEST(CrashingModels, OnlyTheCrashingRequestFails) {
  World world({}, {byte_model("a", 3000, 40)}, card_profile({{"a", 20}}));
  world.crash_on("a", kPoison);
  world.add_backend("n0", 1);
  world.run_until(at_s(3));
  for (std::uint64_t tag = 1; tag <= 100; ++tag)
    world.request_at(at_s(3 + 0.025 * static_cast<double>(tag)), "a", tag);
  world.request_at(at_s(4), "a", kPoisonTag);
  world.run_until(at_s(10));
  for (std::uint64_t tag = 1; tag <= 100; ++tag) EXPECT_EQ(code(world, tag), StatusCode::ok) << tag;
  EXPECT_EQ(code(world, kPoisonTag), StatusCode::internal);
  EXPECT_EQ(status_of(world, "a").crashes, 2U);
  EXPECT_EQ(world.model("a").state, ModelState::ready);
}

TEST(CrashingModels, EnterQuarantineAndReturn) {
  FrontendOptions options;
  options.quarantine.crashes = 4;
  options.quarantine.first = std::chrono::seconds(8);
  World world(options, {byte_model("a", 3000, 10), byte_model("b", 3000, 10)},
              card_profile({{"a", 20}, {"b", 20}}));
  world.crash_on("a", kPoison);
  world.add_backend("n0", 1);
  world.add_backend("n1", 1);
  world.run_until(at_s(3));
  world.request_at(at_s(3), "a", kPoisonTag);
  world.request_at(at_s(8), "a", kPoisonTag + 256);
  world.run_until(at_s(13));
  EXPECT_EQ(status_of(world, "a").crashes, 4U);
  EXPECT_GT(status_of(world, "a").quarantined_for, Duration::zero());
  EXPECT_EQ(world.model("a").state, ModelState::unavailable);
  EXPECT_FALSE(world.model("a").reason.empty());
  world.request_at(at_s(13), "a", 1);
  world.request_at(at_s(13), "b", 2);
  world.run_until(at_s(13.1));
  EXPECT_EQ(code(world, 1), StatusCode::unavailable) << "at once";
  world.run_until(at_s(14));
  EXPECT_EQ(code(world, 2), StatusCode::ok) << "others go on";

  world.run_until(at_s(25));
  EXPECT_EQ(status_of(world, "a").quarantined_for, Duration::zero());
  world.request_at(at_s(25), "a", 3);
  world.run_until(at_s(28));
  EXPECT_EQ(code(world, 3), StatusCode::ok);
}

TEST(CrashingModels, LoadingEndsTheQuarantine) {
  FrontendOptions options;
  options.quarantine.crashes = 2;
  options.quarantine.first = std::chrono::minutes(5);
  const std::vector<ServedModel> models{byte_model("a", 3000, 10)};
  World world(options, models, card_profile({{"a", 20}}));
  world.crash_on("a", kPoison);
  world.add_backend("n0", 1);
  world.run_until(at_s(3));
  world.request_at(at_s(3), "a", kPoisonTag);
  world.run_until(at_s(8));
  ASSERT_EQ(world.model("a").state, ModelState::unavailable);
  world.change_models_at(at_s(8), models, {"a"});
  world.run_until(at_s(12));
  EXPECT_EQ(world.model("a").state, ModelState::ready);
  world.request_at(at_s(12), "a", 1);
  world.run_until(at_s(14));
  EXPECT_EQ(code(world, 1), StatusCode::ok);
}

TEST(CrashingModels, MoveToGpuletsOfTheirOwn) {
  World world({}, {byte_model("a", 3000, 5), byte_model("b", 3000, 5)},
              card_profile({{"a", 20}, {"b", 20}}));
  const auto together = [&world] {
    const FrontendStatus status = world.status();
    return std::any_of(status.gpulets.begin(), status.gpulets.end(), [](const auto& one) {
      return one.planned && one.planned->assignments.size() > 1;
    });
  };
  world.crash_on("a", kPoison);
  world.add_backend("n0", 1);
  world.run_until(at_s(3));
  ASSERT_TRUE(together());
  world.request_at(at_s(3), "a", kPoisonTag);
  world.run_until(at_s(10));
  EXPECT_FALSE(together());
  EXPECT_EQ(world.model("a").state, ModelState::ready);
  EXPECT_EQ(world.model("b").state, ModelState::ready);
}

// A signal from outside (here SIGKILL) is nothing that the model did.
TEST(CrashingModels, KilledProcessesAreNotCrashes) {
  World world({}, {byte_model("a", 3000, 10)}, card_profile({{"a", 20}}));
  world.add_backend("n0", 1);
  world.run_until(at_s(3));
  constexpr int kKills = 5;  // more than the crashes that quarantine takes
  for (int i = 0; i < kKills; ++i) {
    const double s = 3 + 4 * i;
    world.request_at(at_s(s), "a", static_cast<std::uint64_t>(i) + 1);
    world.run_until(at_s(s + 0.005));
    EXPECT_TRUE(world.kill_proxy("n0"));
  }
  world.run_until(at_s(35));
  for (std::uint64_t tag = 1; tag <= kKills; ++tag) EXPECT_EQ(code(world, tag), StatusCode::ok);
  EXPECT_EQ(status_of(world, "a").crashes, 0U);
}

// Whatever the policy knows of it, no plan puts others beside a model that is to be alone.
TEST(CrashingModels, EveryPolicyKeepsSuspectsAlone) {
  const profile::Profile profile = card_profile({{"a", 2}, {"b", 2}, {"c", 2}});
  planning::PlanRequest request;
  request.profiles =
      std::make_shared<const profile::ProfileSet>(profile::ProfileSet{{"card", profile}});
  schedule::Device device;
  device.key = {"n0", 0};
  device.type = "card";
  device.partitioning = "simulated";
  for (const int percent : {20, 40, 50, 60, 80, 100}) device.sizes.push_back(Share{percent});
  for (const std::uint32_t devices : {1U, 3U}) {
    request.cluster.devices.clear();
    for (std::uint32_t i = 0; i < devices; ++i) {
      device.key.device = i;
      request.cluster.devices.push_back(device);
    }
    for (const std::string_view name : research::policies().names()) {
      request.demands = {{"a", 10, 200, 8}, {"b", 10, 200, 8}, {"c", 10, 200, 8}};
      request.demands[1].alone = true;
      const planning::PlanResult made =
          planning::make_plan(request, *research::policies().make(name).value());
      for (const schedule::Violation& fault : made.faults)
        ADD_FAILURE() << name << ": " << to_string(fault);
      for (const schedule::PlannedGpulet& gpulet : made.plan.gpulets) {
        const bool holds_it =
            std::any_of(gpulet.assignments.begin(), gpulet.assignments.end(),
                        [](const schedule::Assignment& one) { return one.model == "b"; });
        EXPECT_TRUE(!holds_it || gpulet.assignments.size() == 1) << name;
      }
    }
  }
}

}  // namespace
}  // namespace gpulet::serve::crashes_test
