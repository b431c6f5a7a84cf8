// Cores of executables, period by period: what is told to backends, and what status says.
#include "gpulet/serve/core_control.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace gpulet::serve {
namespace {

constexpr Time kBegin{};

ControlledExecutable executable(std::uint64_t id, const std::string& model) {
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
    for (const auto& [id, executable] : control_.executables()) alive[id] = true;
    control_.step(readings, alive, control_.next_step());
  }

  CoreControl control_{options()};
};

TEST_F(CoreControlTest, WhoeverHasFewCoresIsToldOfLittle) {
  control_.set({executable(1, "small")}, kBegin);
  double told = 1;
  for (int period = 0; told > 0.05 && period < 200; ++period) {
    step({{"small", answered_after(0.01)}});
    for (const CoreControl::Change& change : control_.take_changes()) told = change.cores;
  }
  ASSERT_LE(told, 0.05);
  // Its backend's picture is never further off than a hundredth of what it has.
  for (int period = 0; period < 10; ++period) {
    step({{"small", answered_after(0.55)}});
    for (const CoreControl::Change& change : control_.take_changes()) told = change.cores;
    const double given = control_.cores_of({1})->given;
    EXPECT_NEAR(told, given, 0.011 * given);
  }
}

TEST_F(CoreControlTest, WhatIsHardlyAChangeIsNotTold) {
  control_.set({executable(1, "steady")}, kBegin);
  EXPECT_EQ(control_.take_changes().size(), 1U) << "where it begins";
  step({{"steady", answered_after(0.5)}});
  EXPECT_TRUE(control_.take_changes().empty());
}

TEST_F(CoreControlTest, AModelWithoutExecutablesHasNoStatus) {
  control_.set({executable(1, "stays"), executable(2, "goes")}, kBegin);
  step({{"stays", answered_after(0.5)}, {"goes", answered_after(0.5)}});
  ASSERT_TRUE(control_.status_of("goes"));
  EXPECT_EQ(control_.status_of("goes")->on_cpu, 10U);
  EXPECT_FALSE(control_.status_of("unheard"));

  control_.set({executable(1, "stays")}, control_.next_step());
  EXPECT_FALSE(control_.status_of("goes"));
  EXPECT_TRUE(control_.status_of("stays"));

  control_.set({executable(1, "stays"), executable(3, "goes")}, control_.next_step());
  ASSERT_TRUE(control_.status_of("goes"));
  EXPECT_EQ(control_.status_of("goes")->on_cpu, 10U) << "counts go on";
}

}  // namespace
}  // namespace gpulet::serve
