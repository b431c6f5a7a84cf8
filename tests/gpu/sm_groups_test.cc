#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "gpulet/gpu/cuda_driver.h"

namespace gpulet::gpu {
namespace {

// Of an H200: 132 SMs in blocks of 8, of which four are in none.
constexpr SmGroups kH200{.sms = 132, .divisible = 128, .smallest = 8, .step = 8};

SmGroups any_groups() {
  const auto step = *rc::gen::element(1U, 2U, 4U, 8U);
  const auto blocks = *rc::gen::inRange(1U, 80U);
  const auto left = *rc::gen::inRange(0U, 2 * step);
  return {.sms = step * blocks + left, .divisible = step * blocks, .smallest = step, .step = step};
}

TEST(SmGroups, RoundsAShareDownToWholeBlocks) {
  EXPECT_EQ(kH200.sms_of(50), 64U);
  EXPECT_EQ(kH200.sms_of(20), 24U);
  EXPECT_EQ(kH200.sms_of(1), 8U);
  EXPECT_EQ(kH200.sms_of(99.9), 128U);
  EXPECT_EQ(kH200.sms_of(100), 132U);
  EXPECT_DOUBLE_EQ(kH200.percent_of(66), 50);
}

RC_GTEST_PROP(SmGroups, GivesABlockAtLeastAndNeverMoreThanThereAre, ()) {
  const SmGroups groups = any_groups();
  const double percent = *rc::gen::inRange(1, 100000) / 1000.0;
  const std::uint32_t sms = groups.sms_of(percent);
  RC_ASSERT(sms >= groups.smallest);
  RC_ASSERT(sms <= groups.divisible);
  RC_ASSERT(sms % groups.step == 0U);
  RC_ASSERT(sms == groups.smallest || groups.percent_of(sms) <= percent + 1e-3);
  RC_ASSERT(groups.sms_of(100) == groups.sms);
}

RC_GTEST_PROP(SmGroups, GrowsWithThePercentage, ()) {
  const SmGroups groups = any_groups();
  const int one = *rc::gen::inRange(1, 101);
  const int other = *rc::gen::inRange(one, 101);
  RC_ASSERT(groups.sms_of(one) <= groups.sms_of(other));
}

RC_GTEST_PROP(SmGroups, ASizeThatWasGrantedIsGrantedAgain, ()) {
  const SmGroups groups = any_groups();
  const std::uint32_t sms = groups.sms_of(*rc::gen::inRange(1, 101));
  RC_ASSERT(groups.sms_of(groups.percent_of(sms)) == sms);
}

TEST(CudaVersion, IsWrittenAsPeopleDo) {
  EXPECT_EQ(cuda_version_text(12040), "12.4");
  EXPECT_EQ(cuda_version_text(13000), "13.0");
}

}  // namespace
}  // namespace gpulet::gpu
