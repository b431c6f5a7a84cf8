#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "gpulet/gpu/cuda_driver.h"
#include "tests/support/gpu/fake_gpus.h"

namespace gpulet::gpu {
namespace {

using support::FakeGpus;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr const char* kH200 = "gpu\nuuid GPU-00112233-4455-6677-8899-aabbccddeeff\n";

Result<CudaDriver> loaded() { return CudaDriver::load(FakeGpus::cuda()); }

// The SMs of every green context that was made, by its handle.
std::map<std::string, std::set<int>> contexts_made(const std::vector<std::string>& calls) {
  std::map<std::string, std::set<int>> made;
  for (const std::string& call : calls) {
    std::istringstream words(call);
    std::string function;
    std::string handle;
    std::string colon;
    words >> function >> handle >> colon;
    if (function != "cuGreenCtxCreate") continue;
    for (int sm = 0; words >> sm;) made[handle].insert(sm);
  }
  return made;
}

long count(const std::vector<std::string>& calls, const std::string& function) {
  return std::count_if(calls.begin(), calls.end(), [&function](const std::string& call) {
    return call == function || call.starts_with(function + ' ');
  });
}

TEST(CudaDriver, WithoutALibraryOrADriverOneLineSaysWhy) {
  const auto nowhere = CudaDriver::load("libcuda-of-nobody.so.1");
  EXPECT_EQ(nowhere.status().code(), StatusCode::unavailable);
  EXPECT_THAT(nowhere.status().message(), HasSubstr("libcuda-of-nobody.so.1"));
  const FakeGpus machine("cuda_init 100\n");
  const auto none = loaded();
  EXPECT_EQ(none.status().code(), StatusCode::unavailable);
  EXPECT_THAT(none.status().message(),
              AllOf(HasSubstr("no CUDA-capable device"), HasSubstr("CUDA_ERROR_NO_DEVICE")));
}

TEST(CudaDriver, FindsAGpuByItsUuidUnlessItIsHidden) {
  const FakeGpus machine(
      "gpu\nuuid GPU-ffffffff-0000-0000-0000-000000000000\n"
      "gpu\nuuid GPU-00112233-4455-6677-8899-aabbccddeeff\nsms 108\n");
  const auto driver = loaded();
  ASSERT_TRUE(driver.ok()) << driver.status().to_string();
  const auto number = driver.value().number_of("GPU-00112233-4455-6677-8899-AABBCCDDEEFF");
  ASSERT_TRUE(number.ok()) << number.status().to_string();
  EXPECT_EQ(number.value(), 1U);
  EXPECT_EQ(driver.value().usable_sms(1).value(), 108U);
  const Status hidden = driver.value().number_of("GPU-7").status();
  EXPECT_EQ(hidden.code(), StatusCode::not_found);
  EXPECT_THAT(hidden.message(), HasSubstr("CUDA_VISIBLE_DEVICES"));
  EXPECT_EQ(driver.value().usable_sms(2).status().code(), StatusCode::not_found);
}

Result<GreenStream> over(const SmBlocks& blocks, const std::vector<std::uint32_t>& numbers) {
  return blocks.stream_over(numbers);
}

TEST(GreenContexts, GroupsAreDisjointAndInTheOrderAsked) {
  const FakeGpus machine(kH200);
  const auto driver = loaded();
  const auto streams = driver.value().divide(0, {24, 64, 40});
  ASSERT_TRUE(streams.ok()) << streams.status().to_string();
  ASSERT_THAT(streams.value(), SizeIs(3));
  EXPECT_EQ(streams.value()[0].sms(), 24U);
  EXPECT_EQ(streams.value()[1].sms(), 64U);
  EXPECT_EQ(streams.value()[2].sms(), 40U);
  EXPECT_NE(streams.value()[0].stream(), streams.value()[1].stream());
  std::set<int> all;
  std::size_t sum = 0;
  for (const auto& [handle, sms] : contexts_made(machine.calls())) {
    all.insert(sms.begin(), sms.end());
    sum += sms.size();
  }
  EXPECT_EQ(sum, 128U);
  EXPECT_THAT(all, SizeIs(128));
}

TEST(GreenContexts, EverythingIsDestroyedOnceStreamsBeforeTheirContexts) {
  const FakeGpus machine(kH200);
  {
    std::vector<GreenStream> kept;
    {
      const auto driver = loaded();
      auto streams = driver.value().divide(0, {64, 32});
      ASSERT_TRUE(streams.ok());
      kept = std::move(streams).value();
      kept.erase(kept.begin());  // moves the second over the first
    }
    EXPECT_EQ(count(machine.calls(), "cuGreenCtxDestroy"), 1);
    // The driver object is gone; what it made goes on.
    EXPECT_EQ(kept[0].sms(), 32U);
    EXPECT_EQ(count(machine.calls(), "cuDevicePrimaryCtxRelease_v2"), 0);
  }
  const auto calls = machine.calls();
  EXPECT_EQ(count(calls, "cuGreenCtxCreate"), 2);
  EXPECT_EQ(count(calls, "cuGreenCtxDestroy"), 2);
  EXPECT_EQ(count(calls, "cuGreenCtxStreamCreate"), 2);
  EXPECT_EQ(count(calls, "cuStreamDestroy_v2"), 2);
  EXPECT_EQ(count(calls, "cuDevicePrimaryCtxRetain"), 1);
  EXPECT_EQ(count(calls, "cuDevicePrimaryCtxRelease_v2"), 1);
  EXPECT_THAT(calls, ::testing::Not(::testing::Contains(HasSubstr("streams left"))));
}

TEST(GreenContexts, AllOfTheGpuAreMoreThanItsBlocks) {
  const FakeGpus machine(kH200);
  const auto streams = loaded().value().divide(0, {132});
  ASSERT_TRUE(streams.ok()) << streams.status().to_string();
  EXPECT_EQ(streams.value()[0].sms(), 132U);
}

TEST(GreenContexts, WhatIsTooMuchIsRefusedAndLeavesNothing) {
  const FakeGpus machine(kH200);
  const auto driver = loaded();
  const Status beyond = driver.value().divide(0, {64, 72}).status();
  EXPECT_EQ(beyond.code(), StatusCode::overloaded);
  EXPECT_THAT(beyond.message(), AllOf(HasSubstr("72 SMs"), HasSubstr("128"), HasSubstr("64 are")));
  EXPECT_EQ(driver.value().divide(0, {8, 132}).status().code(), StatusCode::overloaded);
  EXPECT_EQ(driver.value().divide(0, {132, 8}).status().code(), StatusCode::overloaded);
  for (const std::uint32_t odd : {0U, 12U, 131U}) {
    EXPECT_EQ(driver.value().divide(0, {odd}).status().code(), StatusCode::invalid) << odd;
  }
  const auto calls = machine.calls();
  EXPECT_EQ(count(calls, "cuGreenCtxCreate"), count(calls, "cuGreenCtxDestroy"));
  EXPECT_EQ(count(calls, "cuDevicePrimaryCtxRetain"), count(calls, "cuDevicePrimaryCtxRelease_v2"));
}

TEST(GreenContexts, ADriverThatIsTooOldNamesTheVersionItTakes) {
  const FakeGpus machine(std::string("cuda_version 12020\n") + kH200);
  const auto driver = loaded();
  ASSERT_TRUE(driver.ok());
  EXPECT_EQ(driver.value().version().value(), 12020U);
  EXPECT_EQ(driver.value().usable_sms(0).value(), 132U);
  for (const Status& refused :
       {driver.value().divide(0, {64}).status(), driver.value().sm_groups(0).status()}) {
    EXPECT_EQ(refused.code(), StatusCode::unavailable);
    EXPECT_THAT(refused.message(), AllOf(HasSubstr("12.4"), HasSubstr("12.2")));
  }
}

TEST(GreenContexts, TheFirstDriverThatHasThemMakesStreamsInTheCurrentContext) {
  const FakeGpus machine(std::string("cuda_version 12040\n") + kH200 + "tells_step 0\n");
  const auto streams = loaded().value().divide(0, {8, 120});
  ASSERT_TRUE(streams.ok()) << streams.status().to_string();
  EXPECT_EQ(streams.value()[1].sms(), 120U);
  EXPECT_EQ(count(machine.calls(), "cuStreamCreate"), 2);
  EXPECT_EQ(count(machine.calls(), "cuGreenCtxStreamCreate"), 0);
}

TEST(GreenContexts, AGroupThatCannotBeMadeTakesTheOthersWithIt) {
  const FakeGpus machine(std::string("fail_cuGreenCtxStreamCreate 2\n") + kH200);
  const Status failed = loaded().value().divide(0, {64, 64}).status();
  EXPECT_EQ(failed.code(), StatusCode::internal);
  EXPECT_THAT(failed.message(), HasSubstr("64 SMs"));
  EXPECT_EQ(count(machine.calls(), "cuGreenCtxDestroy"), 1);
  EXPECT_EQ(count(machine.calls(), "cuDevicePrimaryCtxRelease_v2"), 1);
}

TEST(GreenContexts, SizesAreThoseOfTheBlocksThatTheDriverMakes) {
  const FakeGpus machine(std::string(kH200) + "sms 108\nstep 4\ncompute_major 8\nscattered 8\n");
  const auto groups = loaded().value().sm_groups(0);
  ASSERT_TRUE(groups.ok()) << groups.status().to_string();
  EXPECT_EQ(groups.value().sms, 108U);
  EXPECT_EQ(groups.value().divisible, 100U);
  EXPECT_EQ(groups.value().step, 4U);
  EXPECT_EQ(groups.value().smallest, 4U);
}

TEST(GreenContexts, OneGroupOfACutIsMadeAnewWhileAnotherStays) {
  const FakeGpus machine(kH200);
  const auto driver = loaded();
  const auto blocks = driver.value().cut(0);
  ASSERT_TRUE(blocks.ok()) << blocks.status().to_string();
  EXPECT_EQ(blocks.value().count(), 16U);
  const auto stays = over(blocks.value(), {0, 2, 4, 6, 8, 10, 12, 14});
  auto changes = over(blocks.value(), {1, 3, 5, 7, 9, 11, 13, 15});
  ASSERT_TRUE(stays.ok() && changes.ok());
  changes = over(blocks.value(), {15, 1});
  ASSERT_TRUE(changes.ok()) << changes.status().to_string();
  std::vector<std::size_t> sizes;
  for (const auto& [handle, sms] : contexts_made(machine.calls())) sizes.push_back(sms.size());
  std::sort(sizes.begin(), sizes.end());
  EXPECT_THAT(sizes, ElementsAre(16U, 64U, 64U));
  EXPECT_EQ(count(machine.calls(), "cuGreenCtxDestroy"), 1);
}

TEST(GreenContexts, ABlockThatIsNotThereOrNamedTwiceIsRefused) {
  const FakeGpus machine(kH200);
  const auto blocks = loaded().value().cut(0);
  ASSERT_TRUE(blocks.ok()) << blocks.status().to_string();
  for (const std::vector<std::uint32_t>& wrong :
       {std::vector<std::uint32_t>{}, {16}, {3, 3}, {0, 99}}) {
    EXPECT_EQ(over(blocks.value(), wrong).status().code(), StatusCode::invalid);
  }
  EXPECT_EQ(blocks.value().stream_over_all().value().sms(), 132U);
}

}  // namespace
}  // namespace gpulet::gpu
