// Plans of executables (policy roma) as people and programs read them.
#include "tools/plan_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"
#include "tools/plan_json.h"

namespace gpulet::tools {
namespace {

using schedule::PlannedGpulet;
using schedule::Service;

// A card for both models, and each on CPU cores.
schedule::Plan plan_of_executables() {
  const schedule::Assignment lenet{"lenet", 0, 1, 6.1, 1, 50};
  const schedule::Assignment bert{"bert", 0, 1, 20, 1, 200};
  schedule::Plan plan;
  plan.policy = "roma";
  plan.gpulets = {
      PlannedGpulet{{"n0", 0}, Share{100}, 0, {lenet, bert}, {}, Service::by_need},
      PlannedGpulet{{"n0", 1}, Share{1}, 0, {lenet}, {}, Service::controlled},
      PlannedGpulet{{"n0", 1}, Share{1}, 0, {bert}, {}, Service::controlled},
      PlannedGpulet{{"n1", 0}, Share{40}, 12.5, {{"lenet", 100, 5, 6.1, 1, 50}}, {}, {}}};
  return plan;
}

TEST(PlanOutput, AnExecutableHasNoRateAndAControlledOneNoSize) {
  ::testing::internal::CaptureStdout();
  print_plan({plan_of_executables(), 12}, 3, /*json=*/false);
  EXPECT_EQ(
      ::testing::internal::GetCapturedStdout(),
      R"(DEVICE      SIZE %  CYCLE ms  MODEL                            RATE /s  BATCH  LATENCY ms  SLO ms
------  ----------  --------  -------------------------------  -------  -----  ----------  ------
n0/0           100         -  2 models, whoever needs it most        -      -           -       -
n0/1    controlled         -  lenet                                  -      1           -      50
n0/1    controlled         -  bert                                   -      1           -     200
n1/0            40     12.50  lenet                                100      5        6.10      50

roma: schedulable, 3 of 3 devices, planned in 12 us
)");
}

TEST(PlanOutput, SaysHowDevicesAreFilledWithExecutables) {
  ::testing::internal::CaptureStdout();
  print_fillings({plan_of_executables(), 12}, 3, /*json=*/false);
  const std::string printed = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(printed, ::testing::HasSubstr("100 % 2 models, whoever needs it most"));
  EXPECT_THAT(printed, ::testing::HasSubstr("controlled bert, controlled lenet"));
}

TEST(PlanOutput, TheDocumentNamesTheServiceWhereItIsNotRoundsAndIsReadBack) {
  const schedule::Plan plan = plan_of_executables();
  const nlohmann::ordered_json document = to_json(plan, 12);
  EXPECT_EQ(document["gpulets"][0]["service"], "by_need");
  EXPECT_EQ(document["gpulets"][1]["service"], "controlled");
  EXPECT_FALSE(document["gpulets"][3].contains("service"));
  const support::TemporaryFolder folder;
  const Result<schedule::Plan> read = read_plan(folder.write("plan.json", document.dump()));
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read.value(), plan);
}

}  // namespace
}  // namespace gpulet::tools
