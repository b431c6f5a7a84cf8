// The latency of a queued task and the search for the largest batch.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <optional>
#include <vector>

#include "schedule/batch_planner.h"

namespace gpulet::schedule {
namespace {

TEST(TaskLatency, CountsTheBatchesAheadWhereABatchIsFull) {
  EXPECT_DOUBLE_EQ(task_latency_ms({.queued = 8, .batch = 8, .remaining_ms = 3, .execution_ms = 5}),
                   8);
  EXPECT_DOUBLE_EQ(task_latency_ms({.queued = 9, .batch = 8, .remaining_ms = 3, .execution_ms = 5}),
                   13);
}

TEST(TaskLatency, WaitsForTheBatchToFillOrForTheRunningOne) {
  // Six more at 1000 a second.
  EXPECT_DOUBLE_EQ(task_latency_ms({2, 8, 1000, 3, 5}), 11);
  EXPECT_DOUBLE_EQ(task_latency_ms({2, 8, 1000, 9, 5}), 14);
}

TEST(TaskLatency, IsInfiniteWithoutFurtherArrivals) {
  EXPECT_TRUE(std::isinf(task_latency_ms({2, 8, 0, 3, 5})));
}

RC_GTEST_PROP(SearchBatch, FindsTheLargestOfAll, ()) {
  const auto most = *rc::gen::inRange<std::uint32_t>(0, 40);
  const auto fitting = *rc::gen::inRange<std::uint32_t>(0, 45);
  const auto kept = *rc::gen::container<std::vector<bool>>(40, rc::gen::arbitrary<bool>());
  std::optional<std::uint32_t> largest;
  for (std::uint32_t batch = 1; batch <= most; ++batch) {
    if (batch <= fitting && kept[batch - 1]) largest = batch;
  }
  int asked = 0;
  const auto found = search_batch(
      most, [&](std::uint32_t batch) { return ++asked, batch <= fitting; },
      [&](std::uint32_t batch) { return kept[batch - 1]; });
  RC_ASSERT(found == largest);
  RC_ASSERT(asked <= 6);  // one for each halving of 40
}

}  // namespace
}  // namespace gpulet::schedule
