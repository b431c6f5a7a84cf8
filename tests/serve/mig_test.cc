// Plans for devices that MIG divides, and their way into force, in virtual time.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <variant>

#include "gpulet/serve/frontend_core.h"
#include "tests/support/serve/traffic.h"

namespace gpulet::serve::mig_test {
namespace {

using testing::at_s;
using testing::byte_model;
using testing::card_profile;
using testing::load;
using testing::Outcome;
using testing::outcome;
using testing::was_told;
using testing::World;

// What stands on devices as the frontend's orders and the backends' reports have it: no two
// instances that exclude each other.
class Instances {
 public:
  void see(const FrontendEvent& event, const FrontendEffects& effects) {
    if (const auto* said = std::get_if<BackendMessageReceived>(&event)) {
      const auto* report = std::get_if<GpuletReport>(&said->message);
      if (report != nullptr && report->state == GpuletState::gone) there_.erase(report->id);
    }
    for (const FrontendEffect& effect : effects) {
      const auto* tell = std::get_if<SendToBackend>(&effect);
      const auto* create = tell == nullptr ? nullptr : std::get_if<CreateGpulet>(&tell->command);
      if (create != nullptr) place(tell->backend, *create);
    }
  }

  [[nodiscard]] std::size_t conflicts() const { return conflicts_; }
  [[nodiscard]] std::size_t created() const { return created_; }

 private:
  struct There {
    BackendId backend;
    std::uint32_t device = 0;
    partition::MigInstance instance;
  };

  void place(BackendId backend, const CreateGpulet& create) {
    ++created_;
    ASSERT_TRUE(create.instance);
    for (const auto& [id, there] : there_) {
      if (there.backend != backend || there.device != create.device) continue;
      if (there.instance == *create.instance ||
          !geometry_.compatible(there.instance, *create.instance)) {
        ++conflicts_;
      }
    }
    there_[create.id] = {backend, create.device, *create.instance};
  }

  partition::MigGeometry geometry_ = partition::MigGeometry::of("a100-80").value();
  std::map<GpuletId, There> there_;
  std::size_t conflicts_ = 0;
  std::size_t created_ = 0;
};

FrontendOptions two_phase() {
  FrontendOptions options;
  options.policy = "mig-two-phase";
  return options;
}

TEST(Mig, InstancesFollowTheLoadWithoutLoss) {
  World world(two_phase(), {byte_model("a", 200, 20), byte_model("b", 300, 20)},
              card_profile({{"a", 3}, {"b", 6}}));
  Instances instances;
  world.observe([&](const FrontendEvent& event, Time, const FrontendEffects& effects) {
    instances.see(event, effects);
  });
  world.add_mig_backend("n0", 4);
  world.add_mig_backend("n1", 4);
  std::uint64_t tag = 1;
  for (const auto& [rate_of_a, rate_of_b, from_s, to_s] :
       {std::tuple{20.0, 300.0, 2, 40}, {600.0, 20.0, 40, 80}, {20.0, 300.0, 80, 120}}) {
    tag = load(world, "a", rate_of_a, from_s, to_s, tag, 1 + tag);
    tag = load(world, "b", rate_of_b, from_s, to_s, tag, 2 + tag);
  }
  world.run_until(at_s(125));
  EXPECT_EQ(instances.conflicts(), 0U);
  EXPECT_GT(instances.created(), 4U);
  EXPECT_TRUE(was_told(world, "stages")) << "of which one takes what another needs";
  const Outcome result = outcome(world, 1, tag);
  EXPECT_EQ(result.errors.count(StatusCode::unavailable), 0U);
  EXPECT_GT(static_cast<double>(result.good), 0.9 * static_cast<double>(tag));
}

// A stage whose gpulet does not come up takes nothing away: a plan is made anew from what serves.
TEST(Mig, ServingContinuesAfterAFailedStage) {
  World world(two_phase(), {byte_model("a", 200, 20), byte_model("b", 300, 20)},
              card_profile({{"a", 3}, {"b", 6}}));
  Instances instances;
  world.observe([&](const FrontendEvent& event, Time, const FrontendEffects& effects) {
    instances.see(event, effects);
  });
  world.add_mig_backend("n0", 3);
  std::uint64_t tag = load(world, "a", 60, 2, 90, 1, 1);
  const std::uint64_t end_of_a = tag;
  tag = load(world, "b", 10, 2, 30, tag, 2);
  tag = load(world, "b", 250, 30, 90, tag, 3);
  world.run_until(at_s(31));
  ASSERT_TRUE(world.kill_proxy("n0"));
  world.run_until(at_s(32));
  world.set_load_failure("b", {StatusCode::unavailable, "no"});
  world.run_until(at_s(45));
  world.set_load_failure("b", {});
  world.run_until(at_s(95));
  EXPECT_EQ(instances.conflicts(), 0U);
  EXPECT_TRUE(world.status().schedulable);
  const Outcome of_a = outcome(world, 1, end_of_a);
  EXPECT_GT(static_cast<double>(of_a.good), 0.9 * static_cast<double>(end_of_a));
}

}  // namespace
}  // namespace gpulet::serve::mig_test
