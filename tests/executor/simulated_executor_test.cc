#include "gpulet/executor/simulated_executor.h"

#include <gtest/gtest.h>

#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gpulet::executor {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

TensorSpec bytes(std::int64_t size) {
  return {.name = "bytes", .type = DataType::uint8, .shape = {size}};
}

ModelToLoad model(std::vector<TensorSpec> inputs, std::vector<TensorSpec> outputs) {
  return {.name = "m",
          .file = "/nowhere/m.pt",
          .inputs = std::move(inputs),
          .outputs = std::move(outputs),
          .max_batch = 4};
}

Result<std::string> run(SimulatedExecutor& executor, std::uint32_t count, std::string_view input,
                        std::size_t capacity, Duration latency = {}) {
  std::string output(capacity, '.');
  const Result<std::size_t> written =
      executor.run({.model = "m",
                    .count = count,
                    .input = std::as_bytes(std::span(input)),
                    .output = std::as_writable_bytes(std::span(output)),
                    .simulated_latency = latency});
  if (!written.ok()) return written.status();
  EXPECT_LE(written.value(), capacity);
  output.resize(written.value());
  return output;
}

TEST(SimulatedExecutor, AnswersEveryRequestWithItsOwnInput) {
  SimulatedExecutor executor;
  ASSERT_TRUE(executor.load(model({bytes(2)}, {bytes(2)})).ok());
  EXPECT_EQ(run(executor, 3, "aabbcc", 6).value(), "aabbcc");
}

TEST(SimulatedExecutor, RepeatsOrCutsTheInputToEachOutputsSize) {
  SimulatedExecutor executor;
  ASSERT_TRUE(executor.load(model({bytes(3)}, {bytes(5), bytes(1)})).ok());
  EXPECT_EQ(run(executor, 2, "abcxyz", 12).value(), "abcabxyzxyax");
}

TEST(SimulatedExecutor, ReadsEachInputOfABatch) {
  SimulatedExecutor executor;
  ASSERT_TRUE(executor.load(model({bytes(2), bytes(1)}, {bytes(3)})).ok());
  EXPECT_EQ(run(executor, 2, "aabb12", 6).value(), "aa1bb2");
}

TEST(SimulatedExecutor, RepeatsStringsOrReturnsEmptyOnes) {
  SimulatedExecutor executor;
  const TensorSpec in{"text", DataType::bytes, {1}, 8};
  const TensorSpec out{"word", DataType::bytes, {1}, 6};
  ASSERT_TRUE(executor.load(model({in}, {out})).ok());
  const std::string input("\1\0\0\0a\0\0\0\3\0\0\0abc\0", 16);
  EXPECT_EQ(run(executor, 2, input, 12).value(), std::string("\1\0\0\0a\0\0\0\0\0\0\0", 12));
}

TEST(SimulatedExecutor, AnswersAfterTheLatency) {
  std::vector<Clock::time_point> waits;
  SimulatedExecutor executor([&waits](Clock::time_point end) { waits.push_back(end); });
  ASSERT_TRUE(executor.load(model({bytes(1)}, {bytes(1)})).ok());
  const auto before = Clock::now();
  ASSERT_TRUE(run(executor, 1, "a", 1, 5s).ok());
  ASSERT_EQ(waits.size(), 1U);
  EXPECT_GE(waits.front(), before + 5s);
  EXPECT_LE(waits.front(), Clock::now() + 5s);

  ASSERT_TRUE(run(executor, 1, "a", 1, 0s).ok());
  EXPECT_EQ(waits.size(), 1U) << "a latency of zero answers at once";
}

TEST(SimulatedExecutor, SleepsAtLeastUntilTheEnd) {
  const auto end = Clock::now() + 1ms;
  sleep_until_precisely(end);
  EXPECT_GE(Clock::now(), end);
}

TEST(SimulatedExecutor, RejectsBatchesThatDoNotFitTheModel) {
  SimulatedExecutor executor;
  EXPECT_EQ(run(executor, 1, "a", 1).status().code(), StatusCode::not_found);
  ASSERT_TRUE(executor.load(model({bytes(2)}, {bytes(2)})).ok());
  EXPECT_EQ(run(executor, 0, "", 0).status().code(), StatusCode::internal);
  EXPECT_EQ(run(executor, 2, "abc", 4).status().code(), StatusCode::internal);
  EXPECT_EQ(run(executor, 2, "abcd", 3).status().code(), StatusCode::internal);
  EXPECT_EQ(run(executor, 4'000'000'000U, "abcd", 4).status().code(), StatusCode::internal);
  EXPECT_EQ(executor.load(model({bytes(0)}, {bytes(1)})).status().code(), StatusCode::invalid);
  EXPECT_EQ(executor.load(model({}, {bytes(1)})).status().code(), StatusCode::invalid);
}

}  // namespace
}  // namespace gpulet::executor
