#include "gpulet/gpu/cuda_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "tests/support/gpu/fake_gpus.h"
#include "tests/support/names.h"

namespace gpulet::gpu::cuda_driver_test {
namespace {

using support::FakeGpus;
using support::Names;
using support::names;
using ::testing::ElementsAre;
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

TEST(CudaDriver, ReportsAMissingLibraryOrDriver) {
  const auto nowhere = CudaDriver::load("libcuda-of-nobody.so.1");
  EXPECT_EQ(nowhere.status().code(), StatusCode::unavailable);
  EXPECT_TRUE(names(nowhere.status(), "libcuda-of-nobody.so.1"));
  const FakeGpus machine("cuda_init 100\n");
  const auto none = loaded();
  EXPECT_EQ(none.status().code(), StatusCode::unavailable);
  EXPECT_TRUE(names(none.status(), "no CUDA-capable device", "CUDA_ERROR_NO_DEVICE"));
}

TEST(CudaDriver, FindsVisibleGpusByUuid) {
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
  EXPECT_TRUE(names(hidden, "CUDA_VISIBLE_DEVICES"));
  EXPECT_EQ(driver.value().usable_sms(2).status().code(), StatusCode::not_found);
}

Result<GreenStream> over(const SmBlocks& blocks, const std::vector<std::uint32_t>& numbers) {
  return blocks.stream_over(numbers);
}

// Disjoint groups of these sizes, in that order; a size of all SMs is the whole GPU.
Result<std::vector<GreenStream>> divide(const CudaDriver& driver,
                                        const std::vector<std::uint32_t>& sizes) {
  const auto blocks = driver.cut(0);
  if (!blocks.ok()) return blocks.status();
  const SmGroups& groups = blocks.value().sizes();
  std::vector<GreenStream> streams;
  std::uint32_t next = 0;
  for (const std::uint32_t sms : sizes) {
    std::vector<std::uint32_t> own(sms / groups.step);
    for (std::uint32_t& block : own) block = next++;
    auto stream = sms == groups.sms ? blocks.value().stream_over_all() : over(blocks.value(), own);
    if (!stream.ok()) return stream.status();
    streams.push_back(std::move(stream).value());
  }
  return streams;
}

TEST(GreenContexts, GroupsAreDisjointAndInTheRequestedOrder) {
  const FakeGpus machine(kH200);
  const auto driver = loaded();
  const auto streams = divide(driver.value(), {24, 64, 40});
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

TEST(GreenContexts, DestroysEverythingOnceStreamsBeforeContexts) {
  const FakeGpus machine(kH200);
  {
    std::vector<GreenStream> kept;
    {
      const auto driver = loaded();
      auto streams = divide(driver.value(), {64, 32});
      ASSERT_TRUE(streams.ok());
      kept = std::move(streams).value();
      kept.erase(kept.begin());  // moves the second over the first
    }
    EXPECT_EQ(count(machine.calls(), "cuGreenCtxDestroy"), 1);
    // The streams outlive the driver object.
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
  EXPECT_THAT(calls, ::testing::Not(::testing::Contains(Names("streams left"))));
}

TEST(GreenContexts, TheWholeGpuIsMoreThanItsBlocks) {
  const FakeGpus machine(kH200);
  const auto streams = divide(loaded().value(), {132});
  ASSERT_TRUE(streams.ok()) << streams.status().to_string();
  EXPECT_EQ(streams.value()[0].sms(), 132U);
}

TEST(GreenContexts, RefusesGroupsThatTheGpuLacksAndLeavesNothing) {
  const FakeGpus machine(kH200);
  const auto driver = loaded();
  for (const std::vector<std::uint32_t>& sizes : {std::vector<std::uint32_t>{64, 72}, {64, 0}})
    EXPECT_EQ(divide(driver.value(), sizes).status().code(), StatusCode::invalid);
  const auto calls = machine.calls();
  EXPECT_EQ(count(calls, "cuGreenCtxCreate"), count(calls, "cuGreenCtxDestroy"));
  EXPECT_EQ(count(calls, "cuDevicePrimaryCtxRetain"), count(calls, "cuDevicePrimaryCtxRelease_v2"));
}

TEST(GreenContexts, NamesTheRequiredVersionForAnOldDriver) {
  const FakeGpus machine(std::string("cuda_version 12020\n") + kH200);
  const auto driver = loaded();
  ASSERT_TRUE(driver.ok());
  EXPECT_EQ(driver.value().version().value(), 12020U);
  EXPECT_EQ(driver.value().usable_sms(0).value(), 132U);
  for (const Status& refused :
       {divide(driver.value(), {64}).status(), driver.value().sm_groups(0).status()}) {
    EXPECT_EQ(refused.code(), StatusCode::unavailable);
    EXPECT_TRUE(names(refused, "12.4", "12.2"));
  }
}

TEST(GreenContexts, TheFirstSupportedDriverCreatesStreamsInTheCurrentContext) {
  const FakeGpus machine(std::string("cuda_version 12040\n") + kH200 + "tells_step 0\n");
  const auto streams = divide(loaded().value(), {8, 120});
  ASSERT_TRUE(streams.ok()) << streams.status().to_string();
  EXPECT_EQ(streams.value()[1].sms(), 120U);
  EXPECT_EQ(count(machine.calls(), "cuStreamCreate"), 2);
  EXPECT_EQ(count(machine.calls(), "cuGreenCtxStreamCreate"), 0);
}

TEST(GreenContexts, AFailedGroupDestroysTheOthers) {
  const FakeGpus machine(std::string("fail_cuGreenCtxStreamCreate 2\n") + kH200);
  const Status failed = divide(loaded().value(), {64, 64}).status();
  EXPECT_EQ(failed.code(), StatusCode::internal);
  EXPECT_TRUE(names(failed, "64 SMs"));
  EXPECT_EQ(count(machine.calls(), "cuGreenCtxDestroy"), 1);
  EXPECT_EQ(count(machine.calls(), "cuDevicePrimaryCtxRelease_v2"), 1);
}

TEST(GreenContexts, SizesFollowFromTheDriversBlocks) {
  const FakeGpus machine(std::string(kH200) + "sms 108\nstep 4\ncompute_major 8\nscattered 8\n");
  const auto groups = loaded().value().sm_groups(0);
  ASSERT_TRUE(groups.ok()) << groups.status().to_string();
  EXPECT_EQ(groups.value().sms, 108U);
  EXPECT_EQ(groups.value().divisible, 100U);
  EXPECT_EQ(groups.value().step, 4U);
  EXPECT_EQ(groups.value().smallest, 4U);
}

TEST(GreenContexts, ReplacesOneGroupWhileAnotherStays) {
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

TEST(GreenContexts, RefusesUnknownAndRepeatedBlocks) {
  const FakeGpus machine(kH200);
  const auto blocks = loaded().value().cut(0);
  ASSERT_TRUE(blocks.ok()) << blocks.status().to_string();
  for (const std::vector<std::uint32_t>& wrong :
       {std::vector<std::uint32_t>{}, {16}, {3, 3}, {0, 99}}) {
    EXPECT_EQ(over(blocks.value(), wrong).status().code(), StatusCode::invalid);
  }
  EXPECT_EQ(blocks.value().stream_over_all().value().sms(), 132U);
}

constexpr const char* kOneGpu = "gpu\nuuid GPU-00112233-4455-6677-8899-aabbccddeeff\n";

TEST(RegisteredMemory, StaysRegisteredUntilReleased) {
  const FakeGpus machine(kOneGpu);
  auto driver = CudaDriver::load(FakeGpus::cuda());
  ASSERT_TRUE(driver.ok()) << driver.status().to_string();
  std::array<std::byte, 4096> memory{};
  {
    std::optional<CudaDriver> dropped_first(std::move(driver).value());
    const auto registered = dropped_first->register_memory(0, memory);
    ASSERT_TRUE(registered.ok()) << registered.status().to_string();
    dropped_first.reset();
  }
  EXPECT_THAT(machine.calls(),
              ElementsAre("cuInit", "cuDevicePrimaryCtxRetain 0", "cuMemHostRegister_v2 4096",
                          "cuMemHostUnregister", "cuDevicePrimaryCtxRelease_v2 0"));
}

TEST(RegisteredMemory, ReportsARefusalAndLeavesNothing) {
  const FakeGpus machine(std::string("fail_cuMemHostRegister_v2 801\n") + kOneGpu);
  const auto driver = CudaDriver::load(FakeGpus::cuda());
  std::array<std::byte, 64> memory{};
  const Status refused = driver.value().register_memory(0, memory).status();
  EXPECT_EQ(refused.code(), StatusCode::unavailable);
  EXPECT_THAT(machine.calls(), ElementsAre("cuInit", "cuDevicePrimaryCtxRetain 0",
                                           "cuDevicePrimaryCtxRelease_v2 0"));
}

TEST(CopiesToAGpu, AreTimedAfterAFirstOne) {
  const FakeGpus machine(kOneGpu);
  const auto driver = CudaDriver::load(FakeGpus::cuda());
  const std::array<std::byte, 64> memory{};
  const auto took = driver.value().time_copies(0, memory, 2);
  ASSERT_TRUE(took.ok()) << took.status().to_string();
  EXPECT_GE(took.value(), Duration(0));
  EXPECT_THAT(machine.calls(),
              ElementsAre("cuInit", "cuDevicePrimaryCtxRetain 0", "cuMemAlloc_v2 64",
                          "cuMemcpyHtoD_v2 64", "cuMemcpyHtoD_v2 64", "cuMemcpyHtoD_v2 64",
                          "cuMemFree_v2", "cuDevicePrimaryCtxRelease_v2 0"));
}

TEST(CopiesToAGpu, ReportAFailureAndFreeTheMemory) {
  const FakeGpus machine(std::string("fail_cuMemcpyHtoD_v2 700\n") + kOneGpu);
  const auto driver = CudaDriver::load(FakeGpus::cuda());
  const std::array<std::byte, 64> memory{};
  EXPECT_EQ(driver.value().time_copies(0, memory, 2).status().code(), StatusCode::internal);
  EXPECT_THAT(machine.calls(),
              ElementsAre("cuInit", "cuDevicePrimaryCtxRetain 0", "cuMemAlloc_v2 64",
                          "cuMemFree_v2", "cuDevicePrimaryCtxRelease_v2 0"));
}

TEST(CudaDriver, IsHeldAsAnMpsClient) {
  const FakeGpus machine(std::string(kOneGpu) + "gpu\nuuid GPU-1\nin_mps 1\nsms 66\n");
  const auto driver = CudaDriver::load(FakeGpus::cuda());
  EXPECT_FALSE(driver.value().is_held(0).value());
  EXPECT_TRUE(driver.value().is_held(1).value());
  EXPECT_EQ(driver.value().is_held(2).status().code(), StatusCode::not_found);
}

TEST(CudaDriver, IsHeldOnItsMigInstanceAloneOrInADaemon) {
  const std::string instance = "MIG-00112233-4455-6677-8899-aabbccddeeff";
  const FakeGpus machine("gpu\nuuid " + instance + "\nsms 16\n");
  const auto driver = CudaDriver::load(FakeGpus::cuda());
  ::setenv("CUDA_VISIBLE_DEVICES", instance.c_str(), 1);
  EXPECT_FALSE(driver.value().is_held(0).value())
      << "an instance for several processes needs a daemon";
  ::setenv("CUDA_MPS_PIPE_DIRECTORY", kNoMpsDirectory, 1);
  EXPECT_TRUE(driver.value().is_held(0).value());
  ::unsetenv("CUDA_MPS_PIPE_DIRECTORY");
  machine.write("gpu\nuuid " + instance + "\nsms 16\nin_mps 1\n");
  EXPECT_TRUE(driver.value().is_held(0).value());
  machine.write("gpu\nuuid GPU-ffffffff-0000-0000-0000-000000000000\n");
  EXPECT_EQ(driver.value().is_held(0).status().code(), StatusCode::not_found) << "the whole GPU";
  ::unsetenv("CUDA_VISIBLE_DEVICES");
}

const std::string kUuid = "GPU-00112233-4455-6677-8899-aabbccddeeff";

TEST(QueryCuda, ReportsTheSmsOfEachGpuWithoutAContext) {
  const FakeGpus machine("gpu\nuuid " + kUuid + "\nsms 108\nstep 4\n");
  const auto results = query_cuda({.uuids = {kUuid, "GPU-7"}, .library = FakeGpus::cuda()});
  ASSERT_THAT(results, SizeIs(2));
  ASSERT_TRUE(results[0].groups.ok()) << results[0].groups.status().to_string();
  EXPECT_EQ(results[0].sms.value(), 108U);
  EXPECT_EQ(results[0].groups.value().step, 4U);
  EXPECT_EQ(results[0].groups.value().divisible, 108U);
  EXPECT_EQ(results[1].sms.status().code(), StatusCode::not_found);
  EXPECT_EQ(count(machine.calls(), "cuDevicePrimaryCtxRetain"), 0);
}

TEST(QueryCuda, AnOldDriverStillReportsTheSms) {
  const FakeGpus machine("cuda_version 12020\ngpu\nuuid " + kUuid + "\n");
  const auto results = query_cuda({.uuids = {kUuid}, .library = FakeGpus::cuda()});
  EXPECT_EQ(results.at(0).sms.value(), 132U);
  EXPECT_TRUE(names(results.at(0).groups.status(), "12.4", "mps"));
}

TEST(QueryCuda, ReportsAMissingLibrary) {
  const auto results = query_cuda({.uuids = {kUuid}, .library = "libcuda-of-nobody.so.1"});
  EXPECT_EQ(results.at(0).groups.status().code(), StatusCode::unavailable);
  EXPECT_TRUE(names(results.at(0).groups.status(), "libcuda-of-nobody.so.1"));
}

TEST(QueryCuda, SurvivesADriverThatHangsOrCrashes) {
  const FakeGpus machine("cuda_init hang\ngpu\nuuid " + kUuid + "\n");
  const auto hung = query_cuda(
      {.uuids = {kUuid}, .library = FakeGpus::cuda(), .patience = std::chrono::milliseconds(50)});
  EXPECT_EQ(hung.at(0).sms.status().code(), StatusCode::unavailable);
  machine.write("cuda_init crash\ngpu\nuuid " + kUuid + "\n");
  const auto crashed = query_cuda({.uuids = {kUuid}, .library = FakeGpus::cuda()});
  EXPECT_EQ(crashed.at(0).groups.status().code(), StatusCode::unavailable);
}

// An H200: 132 SMs in blocks of 8, with four SMs in no block.
constexpr SmGroups kH200Groups{.sms = 132, .divisible = 128, .smallest = 8, .step = 8};

SmGroups any_groups() {
  const auto step = *rc::gen::element(1U, 2U, 4U, 8U);
  const auto blocks = *rc::gen::inRange(1U, 80U);
  const auto left = *rc::gen::inRange(0U, 2 * step);
  return {.sms = step * blocks + left, .divisible = step * blocks, .smallest = step, .step = step};
}

TEST(SmGroups, RoundsAShareDownToWholeBlocks) {
  EXPECT_EQ(kH200Groups.sms_of(50), 64U);
  EXPECT_EQ(kH200Groups.sms_of(20), 24U);
  EXPECT_EQ(kH200Groups.sms_of(1), 8U);
  EXPECT_EQ(kH200Groups.sms_of(99.9), 128U);
  EXPECT_EQ(kH200Groups.sms_of(100), 132U);
  EXPECT_DOUBLE_EQ(kH200Groups.percent_of(66), 50);
}

RC_GTEST_PROP(SmGroups, GivesAtLeastOneBlockAndAtMostAll, ()) {
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

RC_GTEST_PROP(SmGroups, AGrantedSizeIsStable, ()) {
  const SmGroups groups = any_groups();
  const std::uint32_t sms = groups.sms_of(*rc::gen::inRange(1, 101));
  RC_ASSERT(groups.sms_of(groups.percent_of(sms)) == sms);
}

TEST(CudaVersion, HasAMajorAndAMinorNumber) {
  EXPECT_EQ(cuda_version_text(12040), "12.4");
  EXPECT_EQ(cuda_version_text(13000), "13.0");
}

}  // namespace

}  // namespace gpulet::gpu::cuda_driver_test
