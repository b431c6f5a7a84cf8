// Traces: what their files say, and when requests arrive.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>

#include "gpulet/config/cluster_config.h"
#include "tests/support/names.h"

namespace gpulet::config::trace_test {
namespace {

using support::names;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Trace, TheHeaderSelectsArrivalsOrRates) {
  const Trace arrivals = parse_trace("time_s,model,count\n0,a,2\n0.5,b,1\n1,a,3\n", "f").value();
  EXPECT_THAT(arrivals.arrivals.at("a"), ElementsAre(Arrival{0, 2}, Arrival{1, 3}));
  EXPECT_THAT(arrivals.arrivals.at("b"), ElementsAre(Arrival{0.5, 1}));
  EXPECT_THAT(arrivals.rates, IsEmpty());

  const Trace singles = parse_trace("model,time_s\na,0.25\n", "f").value();
  EXPECT_THAT(singles.arrivals.at("a"), ElementsAre(Arrival{0.25, 1}));

  const Trace rates = parse_trace("time_s,model,rate\n0,a,10\n20,a,0\n", "f").value();
  EXPECT_THAT(rates.rates.at("a"), ElementsAre(RateStep{0, 10}, RateStep{20, 0}));
  EXPECT_THAT(rates.arrivals, IsEmpty());
}

TEST(Trace, RefusesInvalidRows) {
  const auto error = [](const char* text) {
    const Status status = parse_trace(text, "load.csv").status();
    EXPECT_EQ(status.code(), StatusCode::invalid) << text;
    return status.message();
  };
  EXPECT_TRUE(names(error("time_s,model\n2,a\n1,a\n"), "load.csv: line 3"));
  EXPECT_TRUE(names(error("time_s,model,rate\n0,a,-1\n"), "load.csv: line 2"));
  EXPECT_TRUE(names(error("time_s,model,rate\n0,a,nan\n"), "load.csv: line 2"));
  EXPECT_TRUE(names(error("time_s,model,rate,count\n"), "load.csv"));
  EXPECT_TRUE(names(error("time,model\n"), "time_s"));
  EXPECT_TRUE(names(error("time_s,model\n"), "load.csv"));
  EXPECT_EQ(read_trace("/nowhere/load.csv").status().code(), StatusCode::not_found);
}

TEST(Trace, IsScaled) {
  const Trace rates = scaled_trace({.arrivals = {}, .rates = {{"a", {{0, 10}, {30, 4}}}}}, 3, 2);
  EXPECT_THAT(rates.rates.at("a"), ElementsAre(RateStep{0, 20}, RateStep{10, 8}));
  const Trace arrivals = scaled_trace({.arrivals = {{"a", {{6, 5}}}}, .rates = {}}, 3, 2);
  EXPECT_THAT(arrivals.arrivals.at("a"), ElementsAre(Arrival{2, 5}));
}

// The arrivals before `end_s`.
std::vector<double> arrivals_before(TraceArrivals arrivals, double end_s) {
  std::vector<double> times;
  for (double at_s = arrivals.next_s(); at_s < end_s; at_s = arrivals.next_s())
    times.push_back(at_s);
  return times;
}

TEST(TraceArrivals, AreTheGivenOnes) {
  const Trace trace{.arrivals = {{"a", {{1, 2}, {2, 0}, {2.5, 1}}}}, .rates = {}};
  TraceArrivals named(trace, "a", 100, 1);
  EXPECT_THAT(arrivals_before(named, 1e9), ElementsAre(1, 1, 2.5));
  EXPECT_TRUE(std::isinf(TraceArrivals(trace, "b", 100, 1).next_s()))
      << "a trace of arrivals replaces the rates of all";
}

TEST(TraceArrivals, FollowTheRates) {
  const Trace trace{.arrivals = {}, .rates = {{"a", {{100, 50}, {200, 0}, {300, 10}}}}};
  const std::vector<double> times = arrivals_before(TraceArrivals(trace, "a", 20, 7), 400);
  const auto between = [&times](double from_s, double to_s) {
    return std::count_if(times.begin(), times.end(),
                         [=](double at_s) { return at_s >= from_s && at_s < to_s; });
  };
  EXPECT_NEAR(static_cast<double>(between(0, 100)), 2000, 250) << "the rate before the first row";
  EXPECT_NEAR(static_cast<double>(between(100, 200)), 5000, 400);
  EXPECT_EQ(between(200, 300), 0);
  EXPECT_NEAR(static_cast<double>(between(300, 400)), 1000, 180);
  EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
}

TEST(TraceArrivals, DependOnTheSeed) {
  const Trace none;
  const auto with_seed = [&none](std::uint64_t seed) {
    return arrivals_before(TraceArrivals(none, "a", 20, seed), 10);
  };
  EXPECT_EQ(with_seed(1), with_seed(1));
  EXPECT_NE(with_seed(1), with_seed(2));
  EXPECT_TRUE(std::isinf(TraceArrivals(none, "a", 0, 1).next_s()));
}

RC_GTEST_PROP(TraceArrivals, OfAFasterTraceAreTheSameInLessTime, ()) {
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const auto speed = *rc::gen::inRange(1, 20);
  const auto change_s = *rc::gen::inRange(0, 10);
  const Trace trace{.arrivals = {}, .rates = {{"a", {{change_s * 1.0, 30}}}}};
  const Trace fast = scaled_trace(trace, speed, speed);
  const std::vector<double> times = arrivals_before(TraceArrivals(trace, "a", 5, seed), 10);
  TraceArrivals faster(fast, "a", 5.0 * speed, seed);
  for (const double at_s : times) RC_ASSERT(std::abs(faster.next_s() * speed - at_s) < 1e-6);
}

}  // namespace
}  // namespace gpulet::config::trace_test
