// Batches that share the cores of a process.
#include "simulate/shared_processor.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <map>
#include <utility>
#include <vector>

namespace gpulet::simulate::shared_processor_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A batch of so many core-seconds, `serial` of which run on one core.
SharedProcessor::TimeOn work(double core_s, double serial = 0) {
  return [=](double cores) { return from_seconds(core_s * (serial + (1 - serial) / cores)); };
}

double at_s(Time time) { return to_seconds(time.time_since_epoch()); }

TEST(SharedProcessor, ABatchAloneHasAllCores) {
  SharedProcessor processor(2);
  EXPECT_TRUE(processor.idle());
  EXPECT_EQ(processor.next_end(), kNever);
  processor.add(1, work(1), Time(seconds(10)));
  EXPECT_NEAR(at_s(processor.next_end()), 10.5, 1e-9);
  const SharedProcessor::Ended ended = processor.take_ended(processor.next_end());
  EXPECT_EQ(ended.id, 1U);
  EXPECT_NEAR(to_seconds(ended.took), 0.5, 1e-9);
  EXPECT_TRUE(processor.idle());
}

// The first is alone for 0.5 s, and has half of the core for the rest of its 1 s.
TEST(SharedProcessor, BatchesHaveEqualParts) {
  SharedProcessor processor(1);
  processor.add(1, work(1), Time{});
  processor.add(2, work(1), Time(milliseconds(500)));
  EXPECT_NEAR(at_s(processor.next_end()), 1.5, 1e-9);
  EXPECT_EQ(processor.take_ended(processor.next_end()).id, 1U);
  EXPECT_NEAR(at_s(processor.next_end()), 2, 1e-9);
  const SharedProcessor::Ended ended = processor.take_ended(processor.next_end());
  EXPECT_EQ(ended.id, 2U);
  EXPECT_NEAR(to_seconds(ended.took), 1.5, 1e-9);
}

TEST(SharedProcessor, AShortBatchOvertakesALongOne) {
  SharedProcessor processor(1);
  processor.add(1, work(10), Time{});
  processor.add(2, work(1), Time(seconds(1)));
  EXPECT_NEAR(at_s(processor.next_end()), 3, 1e-9);
  EXPECT_EQ(processor.take_ended(processor.next_end()).id, 2U);
  EXPECT_NEAR(at_s(processor.next_end()), 11, 1e-9);
}

TEST(SharedProcessor, TheRestOfABatchFollowsTheCores) {
  SharedProcessor processor(1);
  processor.add(1, work(1), Time{});
  processor.set_cores(2, Time(milliseconds(500)));
  EXPECT_NEAR(at_s(processor.next_end()), 0.75, 1e-9);
  processor.set_cores(0.5, Time(milliseconds(600)));
  EXPECT_NEAR(at_s(processor.next_end()), 1.2, 1e-9);
}

// What runs on one core only does not keep the others from the cores.
TEST(SharedProcessor, SerialPartsOverlap) {
  SharedProcessor processor(4);
  processor.add(1, work(1, 0.5), Time{});
  EXPECT_NEAR(at_s(processor.next_end()), 0.625, 1e-9);
  processor.add(2, work(1, 0.5), Time{});
  EXPECT_NEAR(at_s(processor.next_end()), 0.75, 1e-9) << "not twice as long";
}

TEST(SharedProcessor, EqualBatchesEndInTheirOrder) {
  SharedProcessor processor(1);
  for (std::uint64_t id = 1; id <= 3; ++id) processor.add(id, work(1), Time{});
  for (std::uint64_t id = 1; id <= 3; ++id) {
    EXPECT_NEAR(at_s(processor.next_end()), 3, 1e-6);
    EXPECT_EQ(processor.take_ended(processor.next_end()).id, id);
  }
}

// Work is neither lost nor gained: while any batch runs, all cores are busy.
RC_GTEST_PROP(SharedProcessor, AllCoresWorkUntilItIsIdle, ()) {
  const auto batches = *rc::gen::container<std::vector<std::pair<int, int>>>(
      rc::gen::pair(rc::gen::inRange(1, 500), rc::gen::inRange(0, 100)));
  const auto cores = *rc::gen::inRange(1, 12);
  RC_PRE(!batches.empty());
  SharedProcessor processor(cores);
  std::map<std::uint64_t, Time> began;
  Time now{};
  Duration idle{};
  double core_s = 0;
  std::uint64_t id = 0;
  const auto end_until = [&](Time until) {
    while (!processor.idle() && processor.next_end() <= until) {
      now = processor.next_end();
      const SharedProcessor::Ended ended = processor.take_ended(now);
      RC_ASSERT(now - ended.took == began.at(ended.id));
    }
  };
  for (const auto& [work_ms, pause_ms] : batches) {
    const Time next = (id == 0 ? Time{} : began.at(id)) + milliseconds(pause_ms);
    end_until(next);
    if (processor.idle()) idle += next - now;
    now = next;
    began[++id] = now;
    processor.add(id, work(work_ms / 1000.0), now);
    core_s += work_ms / 1000.0;
  }
  end_until(kNever);
  RC_ASSERT(processor.idle());
  const double busy_s = at_s(now) - to_seconds(idle);
  RC_ASSERT(std::abs(busy_s * cores - core_s) < 1e-6 * static_cast<double>(batches.size() + 1));
}

}  // namespace
}  // namespace gpulet::simulate::shared_processor_test
