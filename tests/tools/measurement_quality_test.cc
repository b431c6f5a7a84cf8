// Sustained times, cells in doubt, and the use of cores by others.
#include "tools/measure/measurement_quality.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace gpulet::tools {
namespace {

SustainedTime time_of(const std::vector<double>& intervals_ms, double block_ms) {
  SustainedTime time(from_ms(block_ms));
  for (const double interval : intervals_ms) time.add(from_ms(interval));
  return time;
}

TEST(SustainedTime, AveragesTheThrottlingOfAQuotaOverBatches) {
  std::vector<double> quota;  // four batches of 2 ms, then 32 ms without progress
  for (int period = 0; period < 20; ++period)
    for (const double interval : {2.0, 2.0, 2.0, 34.0}) quota.push_back(interval);
  EXPECT_NEAR(time_of(quota, 80).median_ms(), 10, 0.01);
  EXPECT_NEAR(time_of(quota, 80).p99_ms(), 34, 0.01);
}

TEST(SustainedTime, HasTheVariationOfIndependentBatches) {
  std::vector<double> alternating;
  for (int batch = 0; batch < 40; ++batch) alternating.push_back(batch % 2 == 0 ? 8 : 12);
  EXPECT_NEAR(time_of(alternating, 5).cv(), 0.2, 0.005) << "each batch is a block";
  EXPECT_NEAR(time_of(alternating, 15).cv(), 0, 1e-9) << "what one gains the next one loses";
  EXPECT_EQ(time_of({1, 3}, 50).cv(), 0);
}

TEST(SustainedTime, WorksWithLessThanABlock) {
  EXPECT_NEAR(time_of({1, 3}, 50).median_ms(), 2, 1e-9);
  EXPECT_TRUE(std::isinf(time_of({1, 3}, 50).spread()));
}

TEST(SustainedTime, SpreadFallsWithMoreBlocksAndIgnoresAnOutlier) {
  std::vector<double> some;
  for (int i = 0; i < 8; ++i) some.push_back(i % 2 == 0 ? 10 : 11);
  std::vector<double> more;
  for (int i = 0; i < 25; ++i) more.insert(more.end(), some.begin(), some.end());
  EXPECT_GT(time_of(some, 1).spread(), 0.03);
  EXPECT_LT(time_of(more, 1).spread(), 0.03);
  std::vector<double> even(20, 10.0);
  even.push_back(500);
  EXPECT_EQ(time_of(even, 1).spread(), 0);
}

using profile::Doubt;
using profile::LatencySample;

// Latencies with a part `fixed_ms` that does not grow with the batch, scaled by the share.
std::vector<LatencySample> even_samples(double fixed_ms) {
  std::vector<LatencySample> samples;
  for (const int size : {20, 40, 60, 80, 100}) {
    for (const std::uint32_t batch : {1U, 2U, 4U, 8U, 16U, 32U})
      samples.push_back({batch, Share{size}, (fixed_ms + batch) * 100 / size});
  }
  return samples;
}

TEST(CellDoubts, AcceptsWorkThatGrowsWithTheBatch) {
  for (const double fixed_ms : {0.0, 1.0, 10.0}) {
    std::vector<LatencySample> samples = even_samples(fixed_ms);
    doubt_by_neighbours(samples);
    for (const LatencySample& sample : samples) EXPECT_EQ(sample.doubt, Doubt::none);
  }
  std::vector<LatencySample> one{{1, Share{100}, 5}};
  doubt_by_neighbours(one);
  EXPECT_EQ(one[0].doubt, Doubt::none);
}

TEST(CellDoubts, AcceptsADeviceThatIsNotFasterWithALargerShare) {
  std::vector<LatencySample> samples;
  for (const int size : {20, 40, 100}) samples.push_back({4, Share{size}, 7});
  doubt_by_neighbours(samples);
  for (const LatencySample& sample : samples) EXPECT_EQ(sample.doubt, Doubt::none);
}

RC_GTEST_PROP(CellDoubtsProperty, MarksAnyCellThatIsTwiceTooHigh, ()) {
  std::vector<LatencySample> samples = even_samples(*rc::gen::inRange(0, 3));
  const auto cell = *rc::gen::inRange<std::size_t>(0, samples.size());
  samples[cell].latency_ms *= 2;
  doubt_by_neighbours(samples);
  for (std::size_t i = 0; i < samples.size(); ++i)
    RC_ASSERT((samples[i].doubt == Doubt::neighbours) == (i == cell));
}

RC_GTEST_PROP(CellDoubtsProperty, MarksASizeThatIsTwiceTooSlow, ()) {
  std::vector<LatencySample> samples = even_samples(*rc::gen::inRange(0, 3));
  const Share slow = *rc::gen::element(Share{20}, Share{40}, Share{60}, Share{80}, Share{100});
  for (LatencySample& sample : samples) {
    if (sample.share == slow) sample.latency_ms *= 2;
  }
  doubt_by_neighbours(samples);
  for (const LatencySample& sample : samples)
    RC_ASSERT((sample.doubt == Doubt::neighbours) == (sample.share == slow));
}

TEST(CellDoubts, KeepsADoubtFromTheMeasurement) {
  std::vector<LatencySample> samples{{1, Share{50}, 9, std::nullopt, std::nullopt, Doubt::busy},
                                     {1, Share{100}, 1}};
  doubt_by_neighbours(samples);
  EXPECT_EQ(samples[0].doubt, Doubt::busy);
}

TEST(CellDoubts, PrefersAMeasurementWithoutDoubtThenTheFaster) {
  const LatencySample fast{1, Share{50}, 1};
  const LatencySample slow{1, Share{50}, 2};
  const LatencySample fast_and_busy{1, Share{50}, 1, std::nullopt, std::nullopt, Doubt::busy};
  const LatencySample slow_and_busy{1, Share{50}, 2, std::nullopt, std::nullopt, Doubt::unsteady};
  for (const auto& [a, b, better] :
       std::vector<std::array<LatencySample, 3>>{{fast, slow, fast},
                                                 {fast_and_busy, slow, slow},
                                                 {fast_and_busy, slow_and_busy, fast_and_busy}}) {
    EXPECT_EQ(better_of(a, b), better);
    EXPECT_EQ(better_of(b, a), better);
  }
}

// A fake /proc with two cores and two processes.
class CoreUsageTest : public testing::Test {
 protected:
  struct Core {
    int user = 0;
    int idle = 0;
    int stolen = 0;
  };
  void write(Core first, Core second, int measured, int measuring) const {
    std::string text = "cpu  9 9 9 9 9 9 9 9 0 0\n";
    int number = 0;
    for (const Core& core : {first, second}) {
      text += "cpu" + std::to_string(number++) + " " + std::to_string(core.user) + " 0 0 " +
              std::to_string(core.idle) + " 0 0 0 " + std::to_string(core.stolen) + " 0 0\n";
    }
    folder_.write("stat", text + "intr 1 2 3\n");
    const auto process = [](int ticks) {
      return "7 (a) b) S 1 1 1 0 -1 0 0 0 0 0 " + std::to_string(ticks) + " 0 0 0 20 0 1 0 5";
    };
    folder_.write("77/stat", process(measured));
    folder_.write("self/stat", process(measuring));
  }
  std::optional<double> used_by_others(std::vector<std::uint32_t> cores, Core first, Core second,
                                       int measured, int measuring, bool shared = true) const {
    write({1000, 1000, 50}, {1000, 1000, 50}, 500, 20);
    CoreUsageMonitor monitor(std::move(cores), shared, folder_.path());
    monitor.start(77);
    write({1000 + first.user, 1000 + first.idle, 50 + first.stolen},
          {1000 + second.user, 1000 + second.idle, 50 + second.stolen}, 500 + measured,
          20 + measuring);
    return monitor.used_by_others();
  }

  const support::TemporaryFolder folder_;
};

TEST_F(CoreUsageTest, CountsTheUseOfTheCoresByOthers) {
  EXPECT_DOUBLE_EQ(used_by_others({0}, {100, 0, 0}, {100, 0, 0}, 90, 10).value(), 0);
  EXPECT_DOUBLE_EQ(used_by_others({0}, {100, 0, 0}, {100, 0, 0}, 50, 10).value(), 0.4);
  EXPECT_DOUBLE_EQ(used_by_others({0}, {40, 60, 0}, {100, 0, 0}, 10, 0).value(), 0.3);
  EXPECT_DOUBLE_EQ(used_by_others({0}, {100, 0, 0}, {100, 0, 0}, 50, 90, false).value(), 0.5)
      << "the time of this process on other cores does not count";
  EXPECT_DOUBLE_EQ(used_by_others({0, 1}, {100, 0, 0}, {50, 50, 0}, 100, 0).value(), 0.25);
}

TEST_F(CoreUsageTest, CountsTimeStolenByTheHypervisor) {
  EXPECT_DOUBLE_EQ(used_by_others({0}, {80, 0, 20}, {0, 100, 0}, 80, 0).value(), 0.2);
}

TEST_F(CoreUsageTest, IsEmptyWithoutData) {
  EXPECT_EQ(used_by_others({0}, {10, 10, 0}, {10, 10, 0}, 0, 0), std::nullopt) << "too short";
  EXPECT_EQ(used_by_others({}, {100, 0, 0}, {100, 0, 0}, 0, 0), std::nullopt)
      << "no cores of its own";
  EXPECT_EQ(used_by_others({7}, {100, 0, 0}, {100, 0, 0}, 0, 0), std::nullopt)
      << "a core that /proc/stat does not list";
  CoreUsageMonitor monitor({0}, false, folder_.path());
  monitor.start(78);
  EXPECT_EQ(monitor.used_by_others(), std::nullopt) << "no such process";
}

TEST(CoreAvoidance, MovesTheThreadToOtherCoresDuringItsLifetime) {
  cpu_set_t before{};
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  std::vector<std::uint32_t> all;
  for (std::uint32_t core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &before)) all.push_back(core);
  }
  const auto now_is = [](const cpu_set_t& expected) {
    cpu_set_t now{};
    EXPECT_EQ(::sched_getaffinity(0, sizeof now, &now), 0);
    return CPU_EQUAL(&now, &expected) != 0;
  };
  {
    const CoreAvoidance avoidance(all);
    EXPECT_FALSE(avoidance.active());
    EXPECT_TRUE(now_is(before));
  }
  if (all.size() < 2) return;
  {
    const CoreAvoidance avoidance({all[0]});
    EXPECT_TRUE(avoidance.active());
    cpu_set_t others = before;
    CPU_CLR(all[0], &others);
    EXPECT_TRUE(now_is(others));
  }
  EXPECT_TRUE(now_is(before));
}

TEST_F(CoreUsageTest, ReadsTheProcOfThisMachine) {
  CoreUsageMonitor monitor({0}, false);
  monitor.start(::getpid());
  EXPECT_EQ(monitor.used_by_others(), std::nullopt) << "no time has passed";
}

}  // namespace
}  // namespace gpulet::tools
