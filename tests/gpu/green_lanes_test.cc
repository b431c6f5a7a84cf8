#include "gpulet/gpu/green_lanes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "tests/support/gpu/fake_gpus.h"

namespace gpulet::gpu {
namespace {

using support::FakeGpus;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kH200 = "gpu\nuuid GPU-00112233-4455-6677-8899-aabbccddeeff\n";

class GreenLanesTest : public ::testing::Test {
 protected:
  GreenLanes lanes() {
    auto driver = CudaDriver::load(FakeGpus::cuda());
    auto made = GreenLanes::make(driver.value(), 0);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return std::move(made).value();
  }
  [[nodiscard]] long made(const std::string& what) const {
    const auto calls = machine_.calls();
    return std::count_if(calls.begin(), calls.end(),
                         [&what](const std::string& call) { return call.starts_with(what + ' '); });
  }

  FakeGpus machine_{kH200};
};

TEST_F(GreenLanesTest, LanesHaveTheSmsOfTheirSharesAndNoneInCommon) {
  auto device = lanes();
  auto small = device.add({20});
  auto big = device.add({80});
  ASSERT_TRUE(small.ok() && big.ok());
  EXPECT_EQ(small.value().sms(), 24U);
  EXPECT_EQ(big.value().sms(), 104U);
  EXPECT_FALSE(small.value().overlaps());
  EXPECT_FALSE(big.value().overlaps());
  EXPECT_NE(small.value().stream(), big.value().stream());
  EXPECT_EQ(device.sizes().step, 8U);
  EXPECT_EQ(made("cuGreenCtxCreate"), 2);
  EXPECT_EQ(made("cuGreenCtxStreamCreate"), 2) << "nothing moves that is well placed";
  EXPECT_EQ(device.add({0}).status().code(), StatusCode::invalid);
}

TEST_F(GreenLanesTest, TheWholeGpuTakesAlsoTheSmsThatAreInNoBlock) {
  auto device = lanes();
  EXPECT_EQ(device.add({100}).value().sms(), 132U);
  EXPECT_EQ(device.add({99}).value().sms(), 128U);
}

TEST_F(GreenLanesTest, ALaneBesideTheOneThatItReplacesMovesAwayOnceThereIsRoom) {
  auto device = lanes();
  std::optional old_one = device.add({50}).value();
  auto neighbour = device.add({50}).value();
  auto new_one = device.add({40}).value();
  void* const before = new_one.stream();
  EXPECT_TRUE(new_one.overlaps());
  EXPECT_EQ(new_one.stream(), before) << "there is nowhere to go";
  EXPECT_TRUE(old_one->overlaps()) << "of the two it is the one with the lowest blocks";
  neighbour = device.add({10}).value();  // the old lane of it is dropped
  EXPECT_NE(new_one.stream(), before);
  EXPECT_FALSE(new_one.overlaps());
  EXPECT_EQ(new_one.sms(), 48U);
  old_one.reset();
  void* const now = new_one.stream();
  EXPECT_EQ(new_one.stream(), now);
  EXPECT_FALSE(neighbour.overlaps());
}

TEST_F(GreenLanesTest, ALaneThatCannotMoveStaysAndTriesAgainLater) {
  auto device = lanes();
  const auto old_one = device.add({50});
  std::optional neighbour = device.add({50}).value();
  auto new_one = device.add({40}).value();
  void* const before = new_one.stream();
  machine_.write(std::string("fail_cuGreenCtxCreate 2\n") + kH200);
  neighbour.reset();
  EXPECT_EQ(new_one.stream(), before);
  EXPECT_TRUE(new_one.overlaps());
  EXPECT_EQ(new_one.sms(), 48U);
  machine_.write(kH200);
  // Nothing else changes: it asks again by itself, and not at every batch.
  int batches = 0;
  while (new_one.overlaps() && ++batches < 2000) (void)new_one.stream();
  EXPECT_FALSE(new_one.overlaps());
  EXPECT_GT(batches, 100);
}

TEST_F(GreenLanesTest, ALaneThatTheDriverRefusesIsNotThereAndTakesNoRoom) {
  auto device = lanes();
  machine_.write(std::string("fail_cuGreenCtxCreate 2\n") + kH200);
  const Status refused = device.add({50}).status();
  EXPECT_EQ(refused.code(), StatusCode::internal);
  EXPECT_THAT(refused.message(), HasSubstr("64 SMs cannot be made"));
  machine_.write(kH200);
  EXPECT_FALSE(device.add({100}).value().overlaps());
}

TEST_F(GreenLanesTest, LanesOutliveWhatMadeThemAndLeaveNothing) {
  {
    std::optional<GreenLane> lane;
    {
      auto device = lanes();
      lane = device.add({50}).value();
    }
    EXPECT_EQ(made("cuDevicePrimaryCtxRelease_v2"), 0);
    EXPECT_NE(lane->stream(), nullptr);
  }
  EXPECT_EQ(made("cuGreenCtxCreate"), made("cuGreenCtxDestroy"));
  EXPECT_EQ(made("cuDevicePrimaryCtxRelease_v2"), 1);
  EXPECT_THAT(machine_.calls(), Not(Contains(HasSubstr("streams left"))));
}

TEST_F(GreenLanesTest, LanesOnTheirOwnThreadsComeAndGoAndThoseThatStayEndUpAlone) {
  auto device = lanes();
  std::vector<GreenLane> stay;
  for (int i = 0; i < 2; ++i) stay.push_back(device.add({25}).value());
  std::atomic<bool> leaving = false;
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (GreenLane& lane : stay) {
    threads.emplace_back([&lane, &leaving] {
      while (!leaving) EXPECT_NE(lane.stream(), nullptr);
    });
  }
  for (int worker = 0; worker < 2; ++worker) {
    threads.emplace_back([&device] {
      for (int round = 0; round < 30; ++round) {
        auto passing = device.add({60});
        ASSERT_TRUE(passing.ok());
        EXPECT_NE(passing.value().stream(), nullptr);
        (void)passing.value().overlaps();
      }
    });
  }
  threads[2].join();
  threads[3].join();
  leaving = true;
  threads[0].join();
  threads[1].join();
  for (GreenLane& lane : stay) (void)lane.stream();
  for (const GreenLane& lane : stay) EXPECT_FALSE(lane.overlaps());
  EXPECT_THAT(machine_.calls(), Not(Contains(HasSubstr("streams left"))));
}

}  // namespace
}  // namespace gpulet::gpu
