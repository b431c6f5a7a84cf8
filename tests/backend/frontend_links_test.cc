#include "node/frontend_links.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/backend/core_bench.h"

namespace gpulet::node::frontend_links_test {
namespace {

using namespace std::chrono_literals;

constexpr FrontendId kOne{1};
constexpr FrontendId kTwo{2};
constexpr std::uint32_t kKnowsTerms = 1;

class FrontendLinksTest : public ::testing::Test {
 protected:
  // What `act` causes.
  template <typename Act>
  BackendEffects effects(Act act) {
    BackendEffects caused;
    act(Turn{now_, caused});
    return caused;
  }
  bool welcome(FrontendId from, std::uint32_t level = 0, const std::string& member = {},
               Duration every = 1s) {
    bool leads = false;
    Welcome command{every};
    command.level = level;
    command.member = member;
    last_ = effects([&](Turn turn) { leads = links_.welcome(from, command, turn); });
    return leads;
  }
  void connect(FrontendId frontend, std::uint32_t level = 0, const std::string& member = {}) {
    links_.connect(frontend, now_);
    static_cast<void>(welcome(frontend, level, member));
  }
  bool lead(FrontendId from, std::uint64_t term) {
    bool leads = false;
    last_ = effects([&](Turn turn) { leads = links_.take_leadership(from, {term}, turn); });
    return leads;
  }
  BackendEffects check() {
    return effects([this](Turn turn) { links_.check([] { return Heartbeat{}; }, turn); });
  }
  // The frontends that a message goes to.
  static std::vector<FrontendId> receivers(const BackendEffects& caused) {
    std::vector<FrontendId> found;
    for (const auto& send : all<SendToFrontend>(caused)) found.push_back(send.frontend);
    return found;
  }

  Time now_{1h};
  FrontendLinks links_{10s};
  BackendEffects last_;
};

using Receivers = std::vector<FrontendId>;

TEST_F(FrontendLinksTest, KnowsWhoIsConnected) {
  EXPECT_FALSE(links_.any());
  EXPECT_FALSE(links_.heard(kOne, now_));
  links_.connect(kOne, now_);
  EXPECT_TRUE(links_.any());
  EXPECT_TRUE(links_.heard(kOne, now_));
  links_.disconnect(kOne);
  EXPECT_FALSE(links_.any());
  EXPECT_EQ(links_.next_check(), kNever);
}

TEST_F(FrontendLinksTest, DisconnectsAFrontendWithoutAWelcomeOnce) {
  links_.connect(kOne, now_);
  EXPECT_EQ(links_.next_check(), now_ + 10s);
  now_ += 10s - 1ns;
  EXPECT_TRUE(check().empty());
  now_ += 1ns;
  const auto ended = all<DisconnectFrontend>(check());
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].frontend, kOne);
  EXPECT_EQ(ended[0].reason.code(), StatusCode::timeout);
  EXPECT_TRUE(check().empty());
  EXPECT_EQ(links_.next_check(), kNever);
}

TEST_F(FrontendLinksTest, SendsHeartbeatsAndExpectsThem) {
  connect(kOne);
  EXPECT_EQ(links_.next_check(), now_ + 1s);
  now_ += 1s;
  EXPECT_EQ(receivers(check()), Receivers{kOne});
  EXPECT_TRUE(check().empty());
  now_ += 2s;
  ASSERT_TRUE(links_.heard(kOne, now_));
  now_ += 4s - 1ns;
  EXPECT_TRUE(all<DisconnectFrontend>(check()).empty());
  now_ += 1ns;
  EXPECT_EQ(all<DisconnectFrontend>(check()).size(), 1U);
}

TEST_F(FrontendLinksTest, BoundsTheIntervalOfHeartbeats) {
  for (const auto& [asked, kept] :
       {std::pair(Duration(0), Duration(1ms)), std::pair(Duration(-1s), Duration(1ms)),
        std::pair(Duration::max(), Duration(1h)), std::pair(Duration(2s), Duration(2s))}) {
    links_.connect(kOne, now_);
    static_cast<void>(welcome(kOne, 0, {}, asked));
    EXPECT_EQ(links_.next_check(), now_ + kept);
  }
}

TEST_F(FrontendLinksTest, ExcusesASilenceDuringItsOwnStandstill) {
  connect(kOne);
  now_ += 5s;
  links_.excuse_silence(4s, now_);
  EXPECT_TRUE(all<DisconnectFrontend>(check()).empty());
  now_ += 3s;
  EXPECT_EQ(all<DisconnectFrontend>(check()).size(), 1U);
}

TEST_F(FrontendLinksTest, AnExcuseReachesNoFurtherThanNow) {
  connect(kOne);
  links_.excuse_silence(1h, now_);
  links_.excuse_silence(-1h, now_);
  now_ += 4s;
  EXPECT_EQ(all<DisconnectFrontend>(check()).size(), 1U);
}

TEST_F(FrontendLinksTest, ASecondWelcomeEndsTheConnection) {
  connect(kOne, kKnowsTerms, "a");
  EXPECT_FALSE(welcome(kOne, kKnowsTerms, "b"));
  const auto ended = all<DisconnectFrontend>(last_);
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].reason.code(), StatusCode::invalid);
  EXPECT_EQ(links_.frontend_of("a"), kOne);
  EXPECT_EQ(links_.frontend_of("b"), std::nullopt) << "it would take over another's gpulets";
}

// ---- who commands

TEST_F(FrontendLinksTest, AFrontendWithoutTermsLeadsWhileNoOtherDoes) {
  links_.connect(kOne, now_);
  EXPECT_TRUE(welcome(kOne));
  EXPECT_EQ(links_.leader(), kOne);
  links_.connect(kTwo, now_);
  EXPECT_FALSE(welcome(kTwo));
  EXPECT_EQ(links_.leader(), kOne);
  links_.disconnect(kOne);
  EXPECT_EQ(links_.leader(), std::nullopt);
}

TEST_F(FrontendLinksTest, TheHighestTermLeads) {
  connect(kOne, kKnowsTerms);
  connect(kTwo, kKnowsTerms);
  EXPECT_TRUE(lead(kOne, 3));
  EXPECT_EQ(links_.term(), Term{3});
  EXPECT_FALSE(lead(kTwo, 3));
  ASSERT_EQ(receivers(last_), Receivers{kTwo});
  const auto answer = std::get<Superseded>(all<SendToFrontend>(last_)[0].message);
  EXPECT_EQ(answer.term, Term{3});
  EXPECT_EQ(links_.commands_refused(), 1U);
  EXPECT_TRUE(lead(kTwo, 4));
  EXPECT_EQ(links_.leader(), kTwo);
}

TEST_F(FrontendLinksTest, CommandsOfAnOldTermAreAnsweredWithTheNewOne) {
  connect(kOne, kKnowsTerms);
  ASSERT_TRUE(lead(kOne, 3));
  const auto admitted = [this](FrontendId from, std::uint64_t term) {
    bool admits = false;
    last_ = effects([&](Turn turn) { admits = links_.admits(from, {term}, turn); });
    return admits;
  };
  EXPECT_TRUE(admitted(kOne, 3));
  EXPECT_TRUE(last_.empty());
  EXPECT_FALSE(admitted(kOne, 2));
  EXPECT_EQ(receivers(last_), Receivers{kOne});
  connect(kTwo);  // knows no terms, so that it would not understand the answer
  EXPECT_FALSE(admitted(kTwo, 0));
  EXPECT_TRUE(last_.empty());
  EXPECT_EQ(links_.commands_refused(), 2U);
}

TEST_F(FrontendLinksTest, TheNewestConnectionOfAMemberCounts) {
  connect(kOne, kKnowsTerms, "a");
  connect(kTwo, kKnowsTerms, "a");
  EXPECT_EQ(links_.frontend_of("a"), kTwo);
  EXPECT_EQ(links_.frontend_of(""), std::nullopt);
  links_.disconnect(kTwo);
  EXPECT_EQ(links_.frontend_of("a"), kOne);
}

// ---- messages

TEST_F(FrontendLinksTest, MessagesGoToTheLeaderOrToAll) {
  connect(kOne, kKnowsTerms);
  connect(kTwo, kKnowsTerms);
  const auto send = [this](Turn turn) { links_.send(Heartbeat{}, turn); };
  EXPECT_EQ(receivers(effects(send)), (Receivers{kOne, kTwo}));
  ASSERT_TRUE(lead(kTwo, 1));
  EXPECT_EQ(receivers(effects(send)), Receivers{kTwo});
  links_.disconnect(kTwo);
  EXPECT_EQ(receivers(effects(send)), Receivers{kOne});
  EXPECT_TRUE(effects([this](Turn turn) { links_.send_to(kTwo, Heartbeat{}, turn); }).empty());
}

TEST_F(FrontendLinksTest, AReportGoesToTheLeaderAndTheOwnerOnceEach) {
  connect(kOne, kKnowsTerms, "a");
  connect(kTwo, kKnowsTerms, "b");
  const auto receivers_of = [this](const std::string& owner) {
    GpuletReport report;
    report.owner = owner;
    return receivers(effects([&](Turn turn) { links_.send_report(report, turn); }));
  };
  EXPECT_EQ(receivers_of("b"), (Receivers{kOne, kTwo})) << "no frontend leads";
  ASSERT_TRUE(lead(kOne, 1));
  EXPECT_EQ(receivers_of("b"), (Receivers{kTwo, kOne}));
  EXPECT_EQ(receivers_of("a"), Receivers{kOne});
  EXPECT_EQ(receivers_of("gone"), Receivers{kOne});
}

}  // namespace
}  // namespace gpulet::node::frontend_links_test
