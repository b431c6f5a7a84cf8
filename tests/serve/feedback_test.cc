// Plans that follow what batches really take, in virtual time.
#include "serve/adapt/feedback.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "gpulet/base/random.h"
#include "gpulet/serve/values/problems.h"
#include "tests/support/serve/traffic.h"

namespace gpulet::serve::feedback_test {
namespace {

using testing::at_s;
using testing::byte_model;
using testing::card_profile;
using testing::was_told;
using testing::World;

// Times of arrival by tag.
using Sent = std::map<std::uint64_t, Time>;

// Poisson arrivals of one model; the tags continue those of `sent`.
void load(World& world, Sent& sent, const std::string& model, double rate, double from_s,
          double to_s) {
  std::uint64_t tag = sent.empty() ? 1 : sent.rbegin()->first + 1;
  Random random(tag);
  for (double time = from_s + random.exponential(1 / rate); time < to_s;
       time += random.exponential(1 / rate)) {
    sent.emplace(tag, at_s(time));
    world.request_at(at_s(time), model, tag++);
  }
}

// The fraction without an answer in time, of those that arrived in that time.
double violated(const World& world, const Sent& sent, double slo_ms, double from_s, double to_s) {
  std::size_t all = 0;
  std::size_t bad = 0;
  for (const auto& [tag, arrived] : sent) {
    if (arrived < at_s(from_s) || arrived >= at_s(to_s)) continue;
    const auto found = world.replies().find(tag);
    const bool good = found != world.replies().end() && found->second.front().reply.status.ok() &&
                      to_ms(found->second.front().time - arrived) <= slo_ms;
    ++all;
    bad += good ? 0 : 1;
  }
  EXPECT_GT(all, 50U);
  return static_cast<double>(bad) / static_cast<double>(all);
}

std::uint32_t devices_in_use(const World& world) { return world.frontend().plan().devices_used(); }

const CorrectionStatus* correction_of(const FrontendStatus& status, const std::string& model) {
  const auto found = std::find_if(status.corrections.begin(), status.corrections.end(),
                                  [&model](const auto& one) { return one.model == model; });
  return found == status.corrections.end() ? nullptr : &*found;
}

TEST(Feedback, ASlowDeviceGetsAnotherPlanWithinSeconds) {
  World world({}, {byte_model("a", 180, 50)}, card_profile({{"a", 12}}));
  world.add_backend("n0", 4);
  world.set_pace("n0", 1.3);
  Sent sent;
  load(world, sent, "a", 50, 2, 90);
  world.run_until(at_s(92));
  EXPECT_LT(violated(world, sent, 180, 30, 90), 0.01);
  const FrontendStatus status = world.status();
  ASSERT_NE(correction_of(status, "a"), nullptr);
  EXPECT_NEAR(correction_of(status, "a")->factor, 1.3, 0.05);
  EXPECT_NEAR(correction_of(status, "a")->planned, 1.3, 0.05);
  EXPECT_TRUE(was_told(world, "a runs 1.3 times slower than its profile on n0/"));
  EXPECT_LE(world.plans().size(), 6U);
}

TEST(Feedback, ASlowDeviceDoesNotMakeItsTypeSlow) {
  World world({}, {byte_model("a", 180, 170)}, card_profile({{"a", 12}}));
  world.add_backend("n0", 1);
  world.add_backend("n1", 3);
  Sent sent;
  load(world, sent, "a", 170, 2, 200);
  world.run_until(at_s(20));
  const std::uint32_t before = devices_in_use(world);
  ASSERT_GE(before, 2U) << "no device can be compared";
  world.set_pace("n0", 1.6);
  world.run_until(at_s(202));
  const FrontendStatus status = world.status();
  EXPECT_LE(devices_in_use(world), before + 1);
  EXPECT_LT(violated(world, sent, 180, 100, 200), 0.01);
  ASSERT_NE(correction_of(status, "a"), nullptr);
  for (const DeviceStatus& device : status.devices)
    EXPECT_LT(std::abs(device.slowness - (device.key.node == "n0" ? 1.6 : 1)), 0.2)
        << device.key.node << device.key.device;
}

TEST(Feedback, AFastDeviceGivesDevicesBackWithinThreePeriods) {
  World world({}, {byte_model("a", 180, 170)}, card_profile({{"a", 12}}));
  world.add_backend("n0", 4);
  Sent sent;
  load(world, sent, "a", 170, 2, 140);
  world.run_until(at_s(40));
  const std::uint32_t before = devices_in_use(world);
  ASSERT_GE(before, 2U);
  world.set_pace("n0", 0.6);
  world.run_until(at_s(100));
  EXPECT_LT(devices_in_use(world), before);
  world.run_until(at_s(142));
  EXPECT_LT(violated(world, sent, 180, 40, 140), 0.01);
}

TEST(Feedback, RecoversWhenADeviceIsAsProfiledAgain) {
  World world({}, {byte_model("a", 180, 75)}, card_profile({{"a", 12}}));
  world.add_backend("n0", 4);
  Sent sent;
  load(world, sent, "a", 75, 2, 200);
  world.run_until(at_s(20));
  const std::uint32_t before = devices_in_use(world);
  world.set_pace("n0", 1.8);
  world.run_until(at_s(60));
  EXPECT_GT(devices_in_use(world), before);
  world.set_pace("n0", 1);
  world.run_until(at_s(200));
  EXPECT_EQ(devices_in_use(world), before);
  EXPECT_NEAR(correction_of(world.status(), "a")->factor, 1, 0.04);
}

TEST(Feedback, AModelThatBlocksOthersGetsAGpuletOfItsOwn) {
  World world({}, {byte_model("heavy", 100, 20), byte_model("a", 60, 30), byte_model("b", 60, 30)},
              card_profile({{"heavy", 1}, {"a", 3}, {"b", 3}}));
  world.add_backend("n0", 2);
  // One request in ten.
  for (int input = 0; input < 256; input += 10)
    world.slow_on("heavy", static_cast<std::byte>(input), std::chrono::milliseconds(300));
  Sent heavy_requests;
  load(world, heavy_requests, "heavy", 20, 2, 60);
  Sent others{{1'000'000, at_s(0)}};
  load(world, others, "a", 30, 2, 60);
  load(world, others, "b", 30, 2, 60);
  world.run_until(at_s(2));
  const auto shares = [&world] {
    const auto& gpulets = world.frontend().plan().gpulets;
    return std::any_of(gpulets.begin(), gpulets.end(), [](const schedule::PlannedGpulet& gpulet) {
      return gpulet.assignments.size() > 1 &&
             std::any_of(gpulet.assignments.begin(), gpulet.assignments.end(),
                         [](const auto& one) { return one.model == "heavy"; });
    });
  };
  ASSERT_TRUE(shares()) << "otherwise the case shows nothing";
  world.run_until(at_s(62));
  EXPECT_FALSE(shares());
  EXPECT_LT(violated(world, others, 60, 12, 60), 0.01);
  const FrontendStatus status = world.status();
  const auto heavy = std::find_if(status.models.begin(), status.models.end(),
                                  [](const auto& one) { return one.name == "heavy"; });
  EXPECT_FALSE(heavy->disturbs.empty());
  EXPECT_LT(heavy->correction, 2) << "most of its batches are as profiled";
  EXPECT_GT(correction_of(status, "heavy")->tail, 20);
  const std::vector<Problem> problems = find_problems(status);
  EXPECT_TRUE(std::any_of(problems.begin(), problems.end(), [](const Problem& one) {
    return one.cause == ProblemCause::disturbs && one.model == "heavy";
  }));
}

TEST(Feedback, NoiseAloneMakesNoPlan) {
  simulate::VirtualTimings timings;
  timings.batch_cv = 0.05;
  World world({}, {byte_model("a", 180, 33), byte_model("b", 240, 20)},
              card_profile({{"a", 12}, {"b", 15}}), timings);
  world.add_backend("n0", 4);
  Sent sent;
  load(world, sent, "a", 33, 2, 600);
  load(world, sent, "b", 20, 2, 600);
  world.run_until(at_s(602));
  EXPECT_FALSE(was_told(world, "its profile"));
  EXPECT_FALSE(was_told(world, "headroom"));
  const FrontendStatus status = world.status();
  for (const CorrectionStatus& one : status.corrections)
    EXPECT_EQ(one.factor, 1) << one.model << " at " << one.size.percent;
}

TEST(Feedback, OffItOnlyObserves) {
  FrontendOptions options;
  options.feedback = false;
  World world(options, {byte_model("a", 180, 50)}, card_profile({{"a", 12}}));
  world.add_backend("n0", 4);
  world.set_pace("n0", 1.6);
  Sent sent;
  load(world, sent, "a", 50, 2, 30);
  world.run_until(at_s(31));
  EXPECT_FALSE(was_told(world, "its profile"));
  ASSERT_NE(correction_of(world.status(), "a"), nullptr);
  EXPECT_NEAR(correction_of(world.status(), "a")->factor, 1.6, 0.06);
  EXPECT_EQ(correction_of(world.status(), "a")->planned, 1);
}

}  // namespace
}  // namespace gpulet::serve::feedback_test
