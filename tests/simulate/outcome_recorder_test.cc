#include <gtest/gtest.h>

#include "gpulet/base/time.h"
#include "simulate/clients.h"

namespace gpulet::simulate::outcome_recorder_test {
namespace {

schedule::Plan plan_of(std::initializer_list<std::uint32_t> devices) {
  schedule::Plan plan;
  for (const std::uint32_t device : devices) {
    schedule::PlannedGpulet gpulet;
    gpulet.device = {"n0", device};
    gpulet.size = Share{50};
    plan.gpulets.push_back(gpulet);
  }
  return plan;
}

// A plan of the seconds in which the last requests are answered.
TEST(OutcomeRecorder, CountsNoPlanAfterTheLoad) {
  SimulationInput input;
  for (const std::uint32_t device : {0U, 1U}) {
    schedule::Device cpu;
    cpu.key = {"n0", device};
    cpu.cores = 8;
    input.cluster.devices.push_back(cpu);
  }
  SimulationOptions options;
  options.seconds = 10;
  OutcomeRecorder recorder(input, options);
  const Time start{};
  recorder.plan_in_force(plan_of({0}), start);
  recorder.start(start);
  recorder.load_ended();
  recorder.plan_in_force(plan_of({0, 1}), start + from_seconds(12));
  Outcome outcome;
  recorder.finish(start + from_seconds(10), outcome);
  EXPECT_DOUBLE_EQ(outcome.core_seconds, 10 * 4);
  EXPECT_DOUBLE_EQ(outcome.devices_mean, 1);
  EXPECT_EQ(outcome.devices_used, 1U);
  EXPECT_EQ(outcome.reorganisations.size(), 1U);
}

}  // namespace
}  // namespace gpulet::simulate::outcome_recorder_test
