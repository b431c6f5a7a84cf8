#include "gpulet/access/gate.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "access/quota.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::access {
namespace {

// ---- Quota

using std::chrono::milliseconds;
using std::chrono::seconds;

Time at_second(double after_s) { return Time() + from_seconds(after_s); }

TEST(Quota, AdmitsABurstThenTheRate) {
  Quota quota({10, 0, 0}, at_second(0));
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(quota.check_rates({}, at_second(0)).admitted()) << i;
    quota.pay({}, at_second(0));
  }
  const QuotaVerdict full = quota.check_rates({}, at_second(0));
  EXPECT_EQ(full.reached, QuotaLimit::requests);
  EXPECT_NEAR(to_seconds(full.retry_after), 0.1, 1e-6);
  EXPECT_FALSE(quota.check_rates({}, at_second(0.09)).admitted());
  EXPECT_TRUE(quota.check_rates({}, at_second(0.1)).admitted());
}

TEST(Quota, CountsDeviceTime) {
  Quota quota({0, 500, 0}, at_second(0));
  const QuotaUse use{4, milliseconds(300)};
  EXPECT_TRUE(quota.check_rates(use, at_second(0)).admitted());
  quota.pay(use, at_second(0));
  const QuotaVerdict full = quota.check_rates(use, at_second(0));
  EXPECT_EQ(full.reached, QuotaLimit::device_time);
  EXPECT_NEAR(to_seconds(full.retry_after), 0.2, 1e-6);  // 100 ms are missing, at 500 ms/s
}

TEST(Quota, CountsRequestsInFlight) {
  Quota quota({0, 0, 4}, at_second(0));
  EXPECT_EQ(quota.check_in_flight(5).reached, QuotaLimit::in_flight);
  quota.enter(3);
  EXPECT_TRUE(quota.check_in_flight(1).admitted());
  EXPECT_EQ(quota.check_in_flight(2).reached, QuotaLimit::in_flight);
  quota.leave(3);
  EXPECT_TRUE(quota.check_in_flight(4).admitted());
}

TEST(Quota, ACallLargerThanTheBucketPassesWhenItIsFull) {
  Quota quota({2, 0, 0}, at_second(0));
  ASSERT_TRUE(quota.check_rates({10, {}}, at_second(0)).admitted());
  quota.pay({10, {}}, at_second(0));
  EXPECT_FALSE(quota.check_rates({1, {}}, at_second(4)).admitted());
  EXPECT_TRUE(quota.check_rates({1, {}}, at_second(4.6)).admitted());
}

RC_GTEST_PROP(Quota, NeverAdmitsMoreThanTheBound, ()) {
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
    if (!quota.check_rates(use, at_second(now)).admitted()) continue;
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

// A client that waits for retry_after is admitted.
RC_GTEST_PROP(Quota, WaitingForRetryAfterSuffices, ()) {
  const config::ClientLimits limits{*rc::gen::inRange(1, 100) / 10.0,
                                    static_cast<double>(*rc::gen::inRange(1, 1000)), 0};
  Quota quota(limits, at_second(0));
  Time now = at_second(0);
  for (int i = 0; i < 50; ++i) {
    const QuotaUse use{*rc::gen::inRange<std::uint32_t>(1, 20),
                       milliseconds(*rc::gen::inRange(0, 3000))};
    // One wait for each of the two rates at most.
    for (int waits = 0; waits < 2; ++waits) now += quota.check_rates(use, now).retry_after;
    RC_ASSERT(quota.check_rates(use, now).admitted());
    quota.pay(use, now);
  }
}

TEST(QuotaBook, KeepsALimitedNumberOfClients) {
  QuotaBook book(3);
  const config::ClientLimits limits{1, 0, 2};
  book.of("a", limits, at_second(0))->pay({}, at_second(0));
  EXPECT_FALSE(book.of("a", limits, at_second(0))->check_rates({}, at_second(0)).admitted());
  EXPECT_TRUE(book.of("b", limits, at_second(0))->check_rates({}, at_second(0)).admitted());
  const auto held = book.of("c", limits, at_second(0));
  held->enter(1);
  for (int i = 0; i < 100; ++i) (void)book.of("other" + std::to_string(i), limits, at_second(1));
  EXPECT_LE(book.size(), 3U);
  EXPECT_EQ(book.of("c", limits, at_second(1)), held) << "requests in flight are not forgotten";
}

TEST(QuotaBook, AppliesChangedLimits) {
  QuotaBook book;
  const auto quota = book.of("a", {1, 0, 0}, at_second(0));
  quota->pay({}, at_second(0));
  EXPECT_TRUE(book.of("a", {100, 0, 0}, at_second(0))->check_rates({}, at_second(0)).admitted());
}

// ---- Gate

const std::string kPlain = "plain-0123456789abcdef";
const std::string kBounded = "bounded-0123456789abcdef";

class GateTest : public ::testing::Test {
 protected:
  std::shared_ptr<const Tokens> tokens(const std::string& text) const {
    const std::filesystem::path file = folder_.write("tokens", text);
    std::filesystem::permissions(file, std::filesystem::perms::owner_read);
    return std::make_shared<const Tokens>(Tokens::read({{}, file}).value());
  }
  static PeerIdentity peer(const Gate& gate, const std::string& token,
                           const std::string& address = "10.0.0.1") {
    PeerIdentity one{address};
    one.token_shown = !token.empty();
    one.token = gate.tokens()->find(token);
    return one;
  }
  // Admits a call as the endpoints do.
  static Access call(Gate& gate, PeerIdentity& one, std::size_t rows = 1) {
    Access admission = gate.announce(one, "m");
    return admission.status.ok() ? gate.enter(one, "m", rows) : admission;
  }

  support::TemporaryFolder folder_;
};

TEST_F(GateTest, GuardsNothingWithoutTokensAndLimits) {
  Gate gate;
  EXPECT_FALSE(gate.guards_inference());
  EXPECT_FALSE(gate.limits_addresses());
}

TEST_F(GateTest, LimitsEachTokenSeparately) {
  Gate gate(tokens("name=b max_requests=2 " + kBounded + "\nname=p " + kPlain));
  EXPECT_TRUE(gate.guards_inference());
  PeerIdentity bounded = peer(gate, kBounded);
  PeerIdentity elsewhere = peer(gate, kBounded, "10.0.0.2");
  PeerIdentity plain = peer(gate, kPlain);
  Access first = call(gate, bounded, 2);
  ASSERT_TRUE(first.status.ok());
  ASSERT_NE(first.permit, nullptr);
  const Access second = call(gate, elsewhere);
  EXPECT_EQ(second.status.code(), StatusCode::limited);
  EXPECT_GT(second.retry_after, Duration::zero());
  const Access other = call(gate, plain, 100);
  EXPECT_TRUE(other.status.ok());
  EXPECT_EQ(other.permit, nullptr);
  first.permit.reset();
  EXPECT_TRUE(call(gate, elsewhere).status.ok());
  EXPECT_EQ(gate.counters().at("b").requests, 3U);
  EXPECT_EQ(gate.counters().at("b").limited_in_flight, 1U);
  EXPECT_EQ(gate.counters().at("p").requests, 100U);
}

TEST_F(GateTest, ChargesEachRowOnce) {
  Gate gate(tokens("name=b requests_per_s=4 " + kBounded));
  PeerIdentity one = peer(gate, kBounded);
  EXPECT_TRUE(call(gate, one, 4).status.ok());
  const Access more = call(gate, one);
  EXPECT_EQ(more.status.code(), StatusCode::limited);
  EXPECT_GT(more.retry_after, Duration::zero());
  EXPECT_LE(more.retry_after, std::chrono::milliseconds(250));
  EXPECT_EQ(gate.counters().at("b").limited_requests, 1U);
}

TEST_F(GateTest, LimitsPlannedDeviceTime) {
  Gate gate(tokens("name=b device_ms_per_s=100 " + kBounded));
  gate.set_device_time([](std::string_view model) {
    return model == "m" ? Duration(std::chrono::milliseconds(30)) : Duration::zero();
  });
  PeerIdentity one = peer(gate, kBounded);
  EXPECT_TRUE(call(gate, one, 3).status.ok());
  EXPECT_EQ(call(gate, one).status.code(), StatusCode::limited);
  EXPECT_EQ(gate.counters().at("b").limited_device_time, 1U);
  EXPECT_DOUBLE_EQ(gate.counters().at("b").device_s, 0.09);
}

TEST_F(GateTest, LimitsAddresses) {
  Gate gate(std::make_shared<const Tokens>(), {0, 0, 1});
  EXPECT_TRUE(gate.guards_inference());
  PeerIdentity one{"2001:db8::1"};
  PeerIdentity neighbour{"2001:db8::ffff"};
  PeerIdentity other{"2001:db8:0:1::1"};
  const Access held = call(gate, one);
  EXPECT_TRUE(held.status.ok());
  EXPECT_EQ(call(gate, neighbour).status.code(), StatusCode::limited) << "same /64 network";
  EXPECT_TRUE(call(gate, other).status.ok());
  PeerIdentity unknown;
  EXPECT_TRUE(call(gate, unknown).status.ok());
}

TEST_F(GateTest, RefusesBeforeCharging) {
  Gate gate(tokens("name=b models=other requests_per_s=1 " + kBounded));
  PeerIdentity bounded = peer(gate, kBounded);
  PeerIdentity stranger = peer(gate, "nobody-0123456789abcdef");
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(gate.announce(bounded, "m").status.code(), StatusCode::forbidden);
    EXPECT_EQ(gate.announce(stranger, "m").status.code(), StatusCode::unauthenticated);
  }
  EXPECT_TRUE(gate.announce(bounded, "other").status.ok());
  EXPECT_EQ(gate.counters().at("b").denied, 5U);
  EXPECT_EQ(gate.counters().at("").denied, 5U);
}

TEST_F(GateTest, KnowsATokenThatWasRemoved) {
  Gate gate(tokens("name=p " + kPlain + "\nname=b " + kBounded));
  PeerIdentity stays = peer(gate, kPlain);
  PeerIdentity leaves = peer(gate, kBounded);
  const PeerIdentity stranger = peer(gate, "nobody-0123456789abcdef");
  gate.replace(tokens("name=p models=other " + kPlain));
  EXPECT_FALSE(gate.revoked(stays));
  EXPECT_TRUE(gate.revoked(leaves));
  EXPECT_FALSE(gate.revoked(stranger)) << "it never had one";
  EXPECT_EQ(gate.announce(stays, "m").status.code(), StatusCode::forbidden)
      << "the new rights hold for earlier identities";
  EXPECT_EQ(gate.announce(leaves, "m").status.code(), StatusCode::unauthenticated);
}

TEST_F(GateTest, ReportsRefusedCallsAndResultsToTheAudit) {
  Gate gate(tokens("name=b models=other " + kBounded));
  std::vector<AuditRecord> called;
  std::vector<AuditRecord> refused;
  gate.set_audit([&](const AuditRecord& record) { called.push_back(record); },
                 [&](const AuditRecord& record) { refused.push_back(record); });
  PeerIdentity bounded = peer(gate, kBounded);
  EXPECT_EQ(gate.check({Right::inference, "infer", "m"}, bounded).code(), StatusCode::forbidden);
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(refused[0].action, "infer");
  EXPECT_EQ(refused[0].target, "m");
  EXPECT_EQ(refused[0].peer.token_name(), "b");
  EXPECT_EQ(refused[0].result.code(), StatusCode::forbidden);
  gate.called({Right::admin, "shared_memory_register", "", "region"}, bounded, {});
  ASSERT_EQ(called.size(), 1U);
  EXPECT_EQ(called[0].target, "region");
  EXPECT_TRUE(called[0].result.ok());
}

TEST_F(GateTest, APermitCountsUntilItsLastCopyEnds) {
  Gate gate(tokens("name=b max_requests=2 " + kBounded));
  PeerIdentity one = peer(gate, kBounded);
  Access first = call(gate, one, 2);
  ASSERT_TRUE(first.status.ok());
  Permit copy = first.permit;
  first.permit.reset();
  EXPECT_EQ(call(gate, one).status.code(), StatusCode::limited);
  EXPECT_EQ(gate.counters().at("b").limited_in_flight, 1U);
  copy.reset();
  EXPECT_TRUE(call(gate, one).status.ok());
}

TEST_F(GateTest, HoldsItsLimitsForCallsOfSeveralThreads) {
  constexpr std::size_t kThreads = 4;
  constexpr std::size_t kCalls = 500;
  Gate gate(tokens("name=b max_requests=3 " + kBounded + "\nname=p " + kPlain));
  gate.set_device_time([](std::string_view) { return milliseconds(1); });
  std::atomic<int> in_flight = 0;
  std::atomic<int> most = 0;
  std::atomic<std::uint64_t> admitted = 0;
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      PeerIdentity bounded = peer(gate, kBounded);
      PeerIdentity plain = peer(gate, kPlain);
      for (std::size_t j = 0; j < kCalls; ++j) {
        EXPECT_TRUE(call(gate, plain).status.ok());
        Access access = call(gate, bounded);
        if (!access.status.ok()) continue;
        ++admitted;
        const int now = ++in_flight;
        int before = most;
        while (now > before && !most.compare_exchange_weak(before, now)) {
        }
        --in_flight;
        access.permit.reset();
      }
    });
  }
  for (int i = 0; i < 50; ++i) {
    gate.replace(tokens("name=b max_requests=3 " + kBounded + "\nname=p " + kPlain));
    static_cast<void>(gate.counters());
  }
  threads.clear();
  EXPECT_LE(most, 3);
  EXPECT_EQ(gate.counters().at("p").requests, kThreads * kCalls);
  const ClientCounters bounded = gate.counters().at("b");
  EXPECT_EQ(bounded.requests, admitted);
  EXPECT_EQ(bounded.requests + bounded.limited_in_flight, kThreads * kCalls);
}

}  // namespace
}  // namespace gpulet::access
