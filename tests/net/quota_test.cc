#include "gpulet/net/quota.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace gpulet::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Time at_second(double after_s) { return Time() + from_seconds(after_s); }

TEST(Quota, lets_through_what_a_second_brings_and_then_the_rate) {
  Quota quota({10, 0, 0}, at_second(0));
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(quota.judge_rates({}, at_second(0)).admitted()) << i;
    quota.pay({}, at_second(0));
  }
  const QuotaVerdict full = quota.judge_rates({}, at_second(0));
  EXPECT_EQ(full.reached, QuotaLimit::requests);
  EXPECT_NEAR(to_seconds(full.retry_after), 0.1, 1e-6);
  EXPECT_FALSE(quota.judge_rates({}, at_second(0.09)).admitted());
  EXPECT_TRUE(quota.judge_rates({}, at_second(0.1)).admitted());
}

TEST(Quota, counts_the_time_of_devices) {
  Quota quota({0, 500, 0}, at_second(0));
  const QuotaUse use{4, milliseconds(300)};
  EXPECT_TRUE(quota.judge_rates(use, at_second(0)).admitted());
  quota.pay(use, at_second(0));
  const QuotaVerdict full = quota.judge_rates(use, at_second(0));
  EXPECT_EQ(full.reached, QuotaLimit::device_time);
  EXPECT_NEAR(to_seconds(full.retry_after), 0.2, 1e-6);  // 100 ms are missing, at 500 ms/s
}

TEST(Quota, counts_what_is_under_way) {
  Quota quota({0, 0, 4}, at_second(0));
  EXPECT_EQ(quota.judge_place(5).reached, QuotaLimit::under_way);
  quota.enter(3);
  EXPECT_TRUE(quota.judge_place(1).admitted());
  EXPECT_EQ(quota.judge_place(2).reached, QuotaLimit::under_way);
  quota.leave(3);
  EXPECT_TRUE(quota.judge_place(4).admitted());
}

TEST(Quota, a_call_larger_than_its_bucket_passes_when_that_is_full_and_is_paid_for_afterwards) {
  Quota quota({2, 0, 0}, at_second(0));
  ASSERT_TRUE(quota.judge_rates({10, {}}, at_second(0)).admitted());
  quota.pay({10, {}}, at_second(0));
  EXPECT_FALSE(quota.judge_rates({1, {}}, at_second(4)).admitted());
  EXPECT_TRUE(quota.judge_rates({1, {}}, at_second(4.6)).admitted());
}

RC_GTEST_PROP(Quota, never_lets_more_through_than_a_second_and_the_rate, ()) {
  const double rate = *rc::gen::map(rc::gen::inRange(1, 2000), [](int n) { return n / 10.0; });
  const double burst = std::max(1.0, rate);
  Quota quota({rate, 0, 0}, at_second(0));
  std::vector<std::pair<double, double>> passed;  // when, how much
  double now = 0;
  double largest = 0;
  const int calls = *rc::gen::inRange(1, 200);
  for (int i = 0; i < calls; ++i) {
    now += *rc::gen::inRange(0, 500) / 1000.0;
    const QuotaUse use{*rc::gen::inRange<std::uint32_t>(1, 30), {}};
    if (!quota.judge_rates(use, at_second(now)).admitted()) continue;
    quota.pay(use, at_second(now));
    passed.emplace_back(now, use.requests);
    largest = std::max<double>(largest, use.requests);
  }
  for (std::size_t first = 0; first < passed.size(); ++first) {
    double sum = 0;
    for (std::size_t last = first; last < passed.size(); ++last) {
      sum += passed[last].second;
      const double length = passed[last].first - passed[first].first;
      RC_ASSERT(sum <= burst + rate * length + std::max(0.0, largest - burst) + 1e-3);
    }
  }
}

// Whoever waits as long as it is told to gets through.
RC_GTEST_PROP(Quota, never_starves_who_waits, ()) {
  const config::ClientLimits limits{*rc::gen::inRange(1, 100) / 10.0,
                                    static_cast<double>(*rc::gen::inRange(1, 1000)), 0};
  Quota quota(limits, at_second(0));
  Time now = at_second(0);
  for (int i = 0; i < 50; ++i) {
    const QuotaUse use{*rc::gen::inRange<std::uint32_t>(1, 20),
                       milliseconds(*rc::gen::inRange(0, 3000))};
    // One wait for each of the two rates at most.
    for (int waits = 0; waits < 2; ++waits) now += quota.judge_rates(use, now).retry_after;
    RC_ASSERT(quota.judge_rates(use, now).admitted());
    quota.pay(use, now);
  }
}

TEST(QuotaBook, remembers_each_client_and_a_bounded_number_of_them) {
  QuotaBook book(3);
  const config::ClientLimits limits{1, 0, 2};
  book.of("a", limits, at_second(0))->pay({}, at_second(0));
  EXPECT_FALSE(book.of("a", limits, at_second(0))->judge_rates({}, at_second(0)).admitted());
  EXPECT_TRUE(book.of("b", limits, at_second(0))->judge_rates({}, at_second(0)).admitted());
  const auto held = book.of("c", limits, at_second(0));
  held->enter(1);
  for (int i = 0; i < 100; ++i) (void)book.of("other" + std::to_string(i), limits, at_second(1));
  EXPECT_LE(book.size(), 3U);
  EXPECT_EQ(book.of("c", limits, at_second(1)), held) << "what is under way is not forgotten";
}

TEST(QuotaBook, takes_other_limits_over) {
  QuotaBook book;
  const auto quota = book.of("a", {1, 0, 0}, at_second(0));
  quota->pay({}, at_second(0));
  EXPECT_TRUE(book.of("a", {100, 0, 0}, at_second(0))->judge_rates({}, at_second(0)).admitted());
}

}  // namespace
}  // namespace gpulet::net
