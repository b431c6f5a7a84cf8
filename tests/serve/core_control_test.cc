#include "serve/core_control.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace gpulet::serve::core_control_test {
namespace {

constexpr Time kBegin{};

ControlledInstance instance(std::uint64_t id, const std::string& model) {
  return {{id}, model, {"n0", 1}, 1.0};
}

ModelReading answered_after(double response_s) {
  ModelReading reading;
  reading.answered.on_cpu = 10;
  reading.answered.rest_s = 10 * response_s;
  reading.objective_s = 1;
  return reading;
}

class CoreControlTest : public ::testing::Test {
 protected:
  static control::Options options() {
    control::Options options;
    options.set_point = 0.5;
    options.least_cores = 0.02;
    return options;
  }
  void step(const std::map<std::string, ModelReading>& readings) {
    std::map<GpuletId, bool> alive;
    for (const auto& [id, instance] : control_.instances()) alive[id] = true;
    control_.step(readings, alive, control_.next_step());
  }

  CoreControl control_{options()};
};

TEST_F(CoreControlTest, SendsSmallChangesOfFewCores) {
  control_.set({instance(1, "small")}, kBegin);
  double sent = 1;
  for (int period = 0; sent > 0.05 && period < 200; ++period) {
    step({{"small", answered_after(0.01)}});
    for (const CoreControl::Change& change : control_.take_changes()) sent = change.cores;
  }
  ASSERT_LE(sent, 0.05);
  // The backend is never off by more than a hundredth of the assigned cores.
  for (int period = 0; period < 10; ++period) {
    step({{"small", answered_after(0.55)}});
    for (const CoreControl::Change& change : control_.take_changes()) sent = change.cores;
    const double given = control_.cores_of({1})->granted;
    EXPECT_NEAR(sent, given, 0.011 * given);
  }
}

TEST_F(CoreControlTest, DoesNotSendNegligibleChanges) {
  control_.set({instance(1, "steady")}, kBegin);
  EXPECT_EQ(control_.take_changes().size(), 1U) << "the initial cores";
  step({{"steady", answered_after(0.5)}});
  EXPECT_TRUE(control_.take_changes().empty());
}

TEST_F(CoreControlTest, AModelWithoutInstancesHasNoStatus) {
  control_.set({instance(1, "stays"), instance(2, "goes")}, kBegin);
  step({{"stays", answered_after(0.5)}, {"goes", answered_after(0.5)}});
  ASSERT_TRUE(control_.status_of("goes"));
  EXPECT_EQ(control_.status_of("goes")->on_cpu, 10U);
  EXPECT_FALSE(control_.status_of("unknown"));

  control_.set({instance(1, "stays")}, control_.next_step());
  EXPECT_FALSE(control_.status_of("goes"));
  EXPECT_TRUE(control_.status_of("stays"));

  control_.set({instance(1, "stays"), instance(3, "goes")}, control_.next_step());
  ASSERT_TRUE(control_.status_of("goes"));
  EXPECT_EQ(control_.status_of("goes")->on_cpu, 10U) << "counts are kept";
}

}  // namespace
}  // namespace gpulet::serve::core_control_test
