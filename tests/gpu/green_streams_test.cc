#include "gpulet/gpu/green_streams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/gpu/fake_gpus.h"
#include "tests/support/names.h"

namespace gpulet::gpu {
namespace {

using support::FakeGpus;
using support::Names;
using support::names;
using ::testing::Contains;
using ::testing::Not;

constexpr const char* kH200 = "gpu\nuuid GPU-00112233-4455-6677-8899-aabbccddeeff\n";

class GreenStreamsTest : public ::testing::Test {
 protected:
  GreenStreamPool make_pool() {
    auto driver = CudaDriver::load(FakeGpus::cuda());
    auto made = GreenStreamPool::make(driver.value(), 0);
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

TEST_F(GreenStreamsTest, StreamsHaveTheSmsOfTheirSharesAndDoNotOverlap) {
  auto pool = make_pool();
  auto small = pool.add({20});
  auto big = pool.add({80});
  ASSERT_TRUE(small.ok() && big.ok());
  EXPECT_EQ(small.value().sms(), 24U);
  EXPECT_EQ(big.value().sms(), 104U);
  EXPECT_EQ(small.value().shared_sms(), 0U);
  EXPECT_EQ(big.value().shared_sms(), 0U);
  EXPECT_NE(small.value().stream().stream(), big.value().stream().stream());
  EXPECT_EQ(pool.sizes().step, 8U);
  EXPECT_EQ(made("cuGreenCtxCreate"), 2);
  EXPECT_EQ(made("cuGreenCtxStreamCreate"), 2) << "no stream moves";
  EXPECT_EQ(pool.add({0}).status().code(), StatusCode::invalid);
}

TEST_F(GreenStreamsTest, TheWholeGpuIncludesTheSmsThatAreInNoBlock) {
  auto pool = make_pool();
  EXPECT_EQ(pool.add({100}).value().sms(), 132U);
  EXPECT_EQ(pool.add({99}).value().sms(), 128U);
}

TEST_F(GreenStreamsTest, AnOverlappingStreamMovesOnceThereIsRoom) {
  auto pool = make_pool();
  std::optional old_one = pool.add({50}).value();
  auto neighbour = pool.add({50}).value();
  auto new_one = pool.add({40}).value();
  const GreenStream before = new_one.stream();
  EXPECT_GT(new_one.shared_sms(), 0U);
  EXPECT_FALSE(new_one.move()) << "no free blocks";
  EXPECT_GT(old_one->shared_sms(), 0U) << "it has the lowest blocks";
  EXPECT_FALSE(new_one.move_due() && new_one.move_due()) << "nothing has changed";
  neighbour = pool.add({10}).value();  // drops the old stream
  EXPECT_TRUE(new_one.move_due());
  EXPECT_TRUE(new_one.move());
  EXPECT_NE(new_one.stream().stream(), before.stream());
  EXPECT_EQ(made("cuGreenCtxDestroy"), 1) << "the neighbour; before is still held";
  EXPECT_EQ(new_one.shared_sms(), 0U);
  EXPECT_EQ(new_one.sms(), 48U);
  old_one.reset();
  EXPECT_FALSE(new_one.move()) << "its blocks are its own";
  EXPECT_EQ(neighbour.shared_sms(), 0U);
}

TEST_F(GreenStreamsTest, AStreamThatReplacesAnotherStartsInItsPlaceAndGrowsLater) {
  const std::vector<std::string> shrinks{"a"};
  const std::vector<std::string> grows{"b", "c"};
  const std::vector<std::string> of_grown{"c"};
  auto pool = make_pool();
  std::optional large = pool.add({60}, shrinks).value();
  std::optional small = pool.add({40}, grows).value();
  auto shrunk = pool.add({30}, shrinks).value();
  auto grown = pool.add({70}, of_grown).value();
  EXPECT_EQ(shrunk.sms(), 32U);
  EXPECT_EQ(grown.sms(), 48U) << "as much as the one that it replaces";
  EXPECT_EQ(shrunk.shared_sms(), 24U) << "one block was free";
  EXPECT_EQ(small->shared_sms(), 48U);
  small.reset();
  EXPECT_EQ(grown.shared_sms(), 0U);
  EXPECT_FALSE(grown.move_due() && grown.move()) << "nothing is free";
  large.reset();
  EXPECT_TRUE(grown.move_due());
  EXPECT_TRUE(grown.move());
  EXPECT_EQ(grown.sms(), 88U);
  EXPECT_EQ(grown.shared_sms() + shrunk.shared_sms(), 0U);
}

TEST_F(GreenStreamsTest, AFurtherStreamOfAContextKeepsIt) {
  auto pool = make_pool();
  std::optional<GreenStream> beside;
  {
    const auto first = pool.add({50}).value();
    const GreenStream second = first.stream().beside().value();
    EXPECT_NE(second.stream(), first.stream().stream());
    EXPECT_EQ(second.sms(), first.sms());
    beside = second.beside().value();
    EXPECT_EQ(made("cuGreenCtxCreate"), 1);
    EXPECT_EQ(made("cuGreenCtxStreamCreate"), 3);
  }
  EXPECT_EQ(made("cuGreenCtxDestroy"), 0);
  EXPECT_NE(beside->stream(), nullptr);
  beside.reset();
  EXPECT_EQ(made("cuGreenCtxDestroy"), 1);
  EXPECT_THAT(machine_.calls(), Not(Contains(Names("streams left"))));
}

TEST_F(GreenStreamsTest, AStreamThatCannotMoveRetriesLater) {
  auto pool = make_pool();
  const auto old_one = pool.add({50});
  std::optional neighbour = pool.add({50}).value();
  auto new_one = pool.add({40}).value();
  void* const before = new_one.stream().stream();
  machine_.write(std::string("fail_cuGreenCtxCreate 2\n") + kH200);
  neighbour.reset();
  EXPECT_TRUE(new_one.move_due());
  EXPECT_FALSE(new_one.move());
  EXPECT_EQ(new_one.stream().stream(), before);
  EXPECT_GT(new_one.shared_sms(), 0U);
  EXPECT_EQ(new_one.sms(), 48U);
  machine_.write(kH200);
  // Without other changes it retries after a number of batches.
  int batches = 0;
  while (new_one.shared_sms() > 0 && ++batches < 2000) {
    if (new_one.move_due()) (void)new_one.move();
  }
  EXPECT_EQ(new_one.shared_sms(), 0U);
  EXPECT_GT(batches, 100);
}

TEST_F(GreenStreamsTest, ARefusedStreamTakesNoBlocks) {
  auto pool = make_pool();
  machine_.write(std::string("fail_cuGreenCtxCreate 2\n") + kH200);
  const Status refused = pool.add({50}).status();
  EXPECT_EQ(refused.code(), StatusCode::internal);
  EXPECT_TRUE(names(refused, "64 SMs"));
  machine_.write(kH200);
  EXPECT_EQ(pool.add({100}).value().shared_sms(), 0U);
}

TEST_F(GreenStreamsTest, StreamsOutliveThePoolAndLeaveNothing) {
  {
    std::optional<PooledGreenStream> stream;
    {
      auto pool = make_pool();
      stream = pool.add({50}).value();
    }
    EXPECT_EQ(made("cuDevicePrimaryCtxRelease_v2"), 0);
    EXPECT_NE(stream->stream().stream(), nullptr);
  }
  EXPECT_EQ(made("cuGreenCtxCreate"), made("cuGreenCtxDestroy"));
  EXPECT_EQ(made("cuDevicePrimaryCtxRelease_v2"), 1);
  EXPECT_THAT(machine_.calls(), Not(Contains(Names("streams left"))));
}

TEST_F(GreenStreamsTest, StreamsOnSeveralThreadsEndUpDisjoint) {
  auto pool = make_pool();
  std::vector<PooledGreenStream> stay;
  for (int i = 0; i < 2; ++i) stay.push_back(pool.add({25}).value());
  std::atomic<bool> leaving = false;
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (PooledGreenStream& stream : stay) {
    threads.emplace_back([&stream, &leaving] {
      while (!leaving) {
        if (stream.move_due()) (void)stream.move();
        EXPECT_NE(stream.stream().stream(), nullptr);
      }
    });
  }
  for (int worker = 0; worker < 2; ++worker) {
    threads.emplace_back([&pool] {
      for (int round = 0; round < 30; ++round) {
        auto passing = pool.add({60});
        ASSERT_TRUE(passing.ok());
        EXPECT_NE(passing.value().stream().stream(), nullptr);
        (void)passing.value().shared_sms();
      }
    });
  }
  threads[2].join();
  threads[3].join();
  leaving = true;
  threads[0].join();
  threads[1].join();
  for (PooledGreenStream& stream : stay) (void)stream.move();
  for (const PooledGreenStream& stream : stay) EXPECT_EQ(stream.shared_sms(), 0U);
  EXPECT_THAT(machine_.calls(), Not(Contains(Names("streams left"))));
}

}  // namespace
}  // namespace gpulet::gpu
