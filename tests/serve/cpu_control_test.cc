#include "serve/adapt/cpu_control.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace gpulet::serve::cpu_control_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

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

class CpuControlTest : public ::testing::Test {
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

  CpuControl control_{options()};
};

TEST_F(CpuControlTest, SendsSmallChangesOfFewCores) {
  control_.set({instance(1, "small")}, kBegin);
  double sent = 1;
  for (int period = 0; sent > 0.05 && period < 200; ++period) {
    step({{"small", answered_after(0.01)}});
    for (const CpuControl::Change& change : control_.take_changes()) sent = change.cores;
  }
  ASSERT_LE(sent, 0.05);
  // The backend is never off by more than a hundredth of the assigned cores.
  for (int period = 0; period < 10; ++period) {
    step({{"small", answered_after(0.55)}});
    for (const CpuControl::Change& change : control_.take_changes()) sent = change.cores;
    const double given = control_.cores_of({1})->granted;
    EXPECT_NEAR(sent, given, 0.011 * given);
  }
}

TEST_F(CpuControlTest, DoesNotSendNegligibleChanges) {
  control_.set({instance(1, "steady")}, kBegin);
  EXPECT_EQ(control_.take_changes().size(), 1U) << "the initial cores";
  step({{"steady", answered_after(0.5)}});
  EXPECT_TRUE(control_.take_changes().empty());
}

TEST_F(CpuControlTest, StepsOnlyWhileThereAreInstances) {
  EXPECT_EQ(control_.next_step(), kNever);
  control_.set({instance(1, "a")}, kBegin);
  EXPECT_EQ(control_.next_step(), kBegin + seconds(1));
  control_.set({instance(1, "a"), instance(2, "b")}, kBegin + milliseconds(500));
  EXPECT_EQ(control_.next_step(), kBegin + seconds(1)) << "the first one came before";
  control_.set({}, kBegin + milliseconds(600));
  EXPECT_EQ(control_.next_step(), kNever);
  control_.set({instance(1, "a")}, kBegin + seconds(5));
  EXPECT_EQ(control_.next_step(), kBegin + seconds(6));
}

TEST_F(CpuControlTest, CountsTheCoreSecondsBetweenTheSteps) {
  control_.set({instance(1, "late")}, kBegin);
  step({{"late", answered_after(100)}});
  EXPECT_EQ(control_.status_of("late")->cores_granted, 1);
  EXPECT_EQ(control_.status_of("late")->core_seconds, 0);
  // This step is late, so the next one is a whole period after it.
  control_.step({{"late", answered_after(100)}}, {{GpuletId{1}, true}},
                kBegin + milliseconds(4500));
  EXPECT_DOUBLE_EQ(control_.status_of("late")->core_seconds, 3.5);
  EXPECT_EQ(control_.next_step(), kBegin + milliseconds(5500));
}

TEST_F(CpuControlTest, ReportsTheCoresOfEachNode) {
  ControlledInstance other = instance(3, "other");
  other.device = {"n1", 0};
  other.device_cores = 4;
  control_.set({instance(1, "a"), instance(2, "b"), other}, kBegin);
  step({{"a", answered_after(100)}, {"b", answered_after(100)}, {"other", answered_after(100)}});
  const std::vector<NodeControlStatus> nodes = control_.nodes();
  ASSERT_EQ(nodes.size(), 2U);
  EXPECT_EQ(nodes[0].key, (schedule::DeviceKey{"n0", 1}));
  EXPECT_EQ(nodes[0].cores, 1);
  EXPECT_DOUBLE_EQ(nodes[0].cores_requested, 2) << "each wants all of it";
  EXPECT_DOUBLE_EQ(nodes[0].cores_granted, 1);
  EXPECT_DOUBLE_EQ(nodes[0].contention, 0.5);
  EXPECT_EQ(nodes[1].key, (schedule::DeviceKey{"n1", 0}));
  EXPECT_EQ(nodes[1].cores, 4);
  EXPECT_DOUBLE_EQ(nodes[1].cores_requested, 4);
  EXPECT_DOUBLE_EQ(nodes[1].cores_granted, 4);
  EXPECT_DOUBLE_EQ(nodes[1].contention, 1);
}

TEST_F(CpuControlTest, TheResponseTimeIsTheMeanOverTheWindow) {
  control::Options with_window = options();
  with_window.window = seconds(3);
  control_ = CpuControl(with_window);
  control_.set({instance(1, "a")}, kBegin);
  const auto response_after = [this](double response_s) {
    step({{"a", answered_after(response_s)}});
    return control_.status_of("a")->response_ms;
  };
  EXPECT_DOUBLE_EQ(response_after(0.3), 300);
  EXPECT_DOUBLE_EQ(response_after(0.6), 450);
  EXPECT_DOUBLE_EQ(response_after(0.9), 600);
  EXPECT_DOUBLE_EQ(response_after(0.9), 800) << "the first period has left the window";
  // Each response counts once, and a period without any does not count.
  ModelReading few = answered_after(0);
  few.answered.on_cpu = 5;
  few.answered.rest_s = 5 * 2.4;
  step({{"a", few}});
  EXPECT_DOUBLE_EQ(control_.status_of("a")->response_ms, 1200);
  ModelReading none;
  none.objective_s = 1;
  none.age_s = 9;
  step({{"a", none}});
  EXPECT_DOUBLE_EQ(control_.status_of("a")->response_ms, 1400);
  EXPECT_EQ(control_.status_of("a")->on_cpu, 45U) << "counts are those of single periods";
}

TEST_F(CpuControlTest, TheOverheadIsPartOfTheResponseTime) {
  control::Options with_overhead = options();
  with_overhead.overhead = milliseconds(120);
  control_ = CpuControl(with_overhead);
  control_.set({instance(1, "a")}, kBegin);
  step({{"a", answered_after(0.3)}});
  EXPECT_DOUBLE_EQ(control_.status_of("a")->response_ms, 420);
  ModelReading idle;
  idle.objective_s = 1;
  step({{"a", idle}});
  EXPECT_EQ(control_.status_of("a")->response_ms, 0) << "there was no request";
  idle.age_s = 0.5;
  step({{"a", idle}});
  EXPECT_DOUBLE_EQ(control_.status_of("a")->response_ms, 620);
}

TEST_F(CpuControlTest, WithoutAnswersTheAgeOfTheRequestsCountsUnlessGpuletsServeThem) {
  control_.set({instance(1, "alone"), instance(2, "beside")}, kBegin);
  ModelReading alone;
  alone.age_s = 3;
  alone.objective_s = 1;
  ModelReading beside = alone;
  beside.spills = true;
  beside.answered.on_gpu = 10;
  beside.answered.gpu_s = 20;
  step({{"alone", alone}, {"beside", beside}});
  EXPECT_EQ(control_.status_of("alone")->response_ms, 3000);
  EXPECT_EQ(control_.status_of("alone")->gpu_part, 0);
  EXPECT_EQ(control_.status_of("alone")->periods, 1U);
  EXPECT_EQ(control_.status_of("alone")->violated_periods, 1U);
  EXPECT_EQ(control_.status_of("beside")->response_ms, 0) << "no request was left for the instance";
  EXPECT_EQ(control_.status_of("beside")->gpu_part, 1);
  EXPECT_EQ(control_.status_of("beside")->on_gpu, 10U);
  EXPECT_EQ(control_.status_of("beside")->periods, 0U);
  EXPECT_EQ(control_.status_of("beside")->violated_periods, 0U);
}

TEST_F(CpuControlTest, AModelWithoutInstancesHasNoStatus) {
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
}  // namespace gpulet::serve::cpu_control_test
