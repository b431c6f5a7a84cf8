#include "gpulet/partition/drivers/green.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpulet::partition {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const GreenGpu kH200{"GPU-1", {.sms = 132, .divisible = 128, .smallest = 8, .step = 8}};

TEST(GreenDriver, TellsWhatItCanDo) {
  const auto driver = make_green_driver(kH200);
  EXPECT_EQ(driver->mechanism(), "green");
  EXPECT_NEAR(driver->traits().step_percent, 6.06, 0.01);
  EXPECT_EQ(driver->traits().change, ChangeOfSize::in_place);
  EXPECT_EQ(driver->traits().fault, FaultReach::device);
  EXPECT_FALSE(driver->traits().limits_memory);
  EXPECT_TRUE(driver->ready());
}

TEST(GreenDriver, TheProcessSeesOneGpuOutsideAnyMpsDaemonAndKnowsItsShare) {
  const auto driver = make_green_driver(kH200);
  const auto granted = driver->grant({{1}, {20}});
  ASSERT_TRUE(granted.ok()) << granted.status().to_string();
  const auto& variables = granted.value().environment;
  EXPECT_EQ(variables.at("CUDA_VISIBLE_DEVICES"), "GPU-1");
  EXPECT_EQ(variables.at("GPULET_DEVICE"), "cuda:0");
  EXPECT_EQ(variables.at("GPULET_EXPECTED_SHARE"), "20");
  EXPECT_EQ(variables.at("GPULET_DEVICE_SMS"), "132");
  EXPECT_THAT(variables.at("CUDA_MPS_PIPE_DIRECTORY"), StartsWith("/nonexistent/"));
}

TEST(GreenDriver, ASizeBelowABlockIsRefusedWithTheLeastThereIs) {
  const auto driver = make_green_driver(kH200);
  const Status refused = driver->grant({{1}, {6}}).status();
  EXPECT_EQ(refused.code(), StatusCode::invalid);
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("6 %"), HasSubstr("8 of 132"), HasSubstr("7 %")));
  EXPECT_EQ(driver->grant({{1}, {101}}).status().code(), StatusCode::invalid);
  EXPECT_TRUE(driver->grant({{1}, {7}}).ok());
  EXPECT_EQ(driver->grant({{1}, {7}}).status().code(), StatusCode::internal);
}

TEST(GreenDriver, RefusesMoreLanesThanTwoForEachBlockUntilSomeHaveGone) {
  const auto driver = make_green_driver(kH200);
  for (std::uint64_t id = 1; id <= 32; ++id) ASSERT_TRUE(driver->grant({{id}, {7}}).ok());
  const Status refused = driver->grant({{33}, {7}}).status();
  EXPECT_EQ(refused.code(), StatusCode::unavailable);
  EXPECT_THAT(refused.message(), HasSubstr("plan fewer gpulets"));
  driver->release({5});
  driver->release({99});
  EXPECT_TRUE(driver->grant({{33}, {7}}).ok());
}

}  // namespace
}  // namespace gpulet::partition
