// Frontends of one cluster in virtual time: who leads, what the others do, and how the leadership
// changes. The test says who leads, as a store of the cluster would.
#include "serve/cluster/leadership.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <memory>
#include <set>

#include "tests/support/serve/frontend_parts.h"
#include "tests/support/serve/traffic.h"

namespace gpulet::serve::leadership_test {
namespace {

using testing::at_ms;
using testing::at_s;
using testing::byte_model;
using testing::card_profile;
using testing::commands;
using testing::FrontendParts;
using testing::only;
using testing::World;

FrontendOptions member(std::uint64_t run) {
  FrontendOptions options;
  options.clustered = true;
  options.run = run;
  options.policy = "elastic";
  return options;
}

// Frontends 0 and 1, nodes n0 and n1 with a device each, model a at 20/s.
struct Cluster {
  Cluster() {
    world.cluster().add_frontend(member(2));
    world.add_backend("n0", 1);
    world.add_backend("n1", 1);
  }
  void lead(std::size_t frontend, std::uint64_t term) {
    world.cluster().inject(LeadershipWon{{term}}, frontend);
  }
  // The frontend hears that another one leads.
  void follow(std::size_t frontend, std::size_t leader) {
    world.cluster().inject(LeadershipLost{"f" + std::to_string(leader), "host:7000"}, frontend);
  }
  // Requests every 50 ms in [from, to).
  void load(int from_s, int to_s) {
    for (Time time = at_s(from_s); time < at_s(to_s); time += std::chrono::milliseconds(50))
      world.request_at(time, "a", ++sent);
  }
  // Replies with that code to the requests so far.
  [[nodiscard]] std::size_t answered(StatusCode code) const {
    return static_cast<std::size_t>(std::count_if(
        world.replies().begin(), world.replies().end(),
        [code](const auto& entry) { return entry.second.front().reply.status.code() == code; }));
  }
  [[nodiscard]] FrontendStatus status(std::size_t frontend) {
    return world.cluster().frontend(frontend).status(world.now());
  }
  [[nodiscard]] std::set<GpuletId> gpulets(std::size_t frontend) {
    std::set<GpuletId> ids;
    for (const GpuletStatus& one : status(frontend).gpulets) ids.insert(one.id);
    return ids;
  }

  World world{member(1), {byte_model("a", 100, 20)}, card_profile({{"a", 4}})};
  std::uint64_t sent = 0;
};

TEST(Leadership, WithoutALeaderNothingIsPlannedAndRequestsWaitInVain) {
  Cluster cluster;
  cluster.load(1, 3);
  cluster.world.run_until(at_s(3));
  EXPECT_TRUE(cluster.world.replies().empty());
  EXPECT_EQ(cluster.status(0).forwarding.waiting, cluster.sent);
  cluster.world.run_until(at_s(15));
  EXPECT_TRUE(cluster.world.plans().empty());
  EXPECT_EQ(cluster.answered(StatusCode::unavailable), cluster.sent);
  EXPECT_EQ(cluster.status(0).forwarding.failed, cluster.sent);
  EXPECT_FALSE(cluster.world.cluster().frontend(0).serving());
  EXPECT_EQ(cluster.status(0).state, "standby");
  EXPECT_EQ(cluster.status(0).backends.size(), 2U) << "nodes are connected to every frontend";
}

TEST(Leadership, TheLeaderServesAndTheOtherForwardsToIt) {
  Cluster cluster;
  cluster.lead(0, 5);
  cluster.follow(1, 0);
  cluster.world.run_until(at_s(3));
  EXPECT_TRUE(cluster.world.cluster().frontend(0).serving());
  EXPECT_TRUE(cluster.world.cluster().frontend(1).serving());
  EXPECT_EQ(cluster.status(0).leadership.term, Term{5});
  EXPECT_EQ(cluster.status(1).state, "forwarding");
  EXPECT_EQ(cluster.status(1).leadership.leader, "f0 at host:7000");
  cluster.load(3, 5);
  cluster.world.run_until(at_s(5));
  cluster.world.cluster().set_entry(1);
  const std::uint64_t to_leader = cluster.sent;
  cluster.load(5, 6);
  cluster.world.run_until(at_s(7));
  EXPECT_EQ(cluster.answered(StatusCode::ok), cluster.sent);
  const ForwardingStatus forwarding = cluster.status(1).forwarding;
  EXPECT_EQ(forwarding.route, "f0");
  EXPECT_EQ(forwarding.answered, cluster.sent - to_leader);
  EXPECT_EQ(forwarding.sent, forwarding.answered);
  EXPECT_EQ(cluster.status(0).models.at(0).counters.served, cluster.sent);
  // Its clients see the states of the models at the leader.
  EXPECT_EQ(cluster.world.cluster().frontend(1).model("a")->state, ModelState::ready);
}

TEST(Leadership, RequestsWaitForTheNextLeader) {
  Cluster cluster;
  cluster.lead(0, 1);
  cluster.follow(1, 0);
  cluster.load(3, 12);
  cluster.world.run_until(at_s(5));
  cluster.world.cluster().set_entry(1);
  cluster.world.run_until(at_s(8));
  cluster.world.cluster().kill_frontend(0);
  cluster.world.run_until(at_s(10));
  EXPECT_GT(cluster.status(1).forwarding.waiting, 30U);
  cluster.lead(1, 2);
  cluster.world.run_until(at_s(13));
  EXPECT_EQ(cluster.answered(StatusCode::ok), cluster.sent);
  EXPECT_EQ(cluster.status(1).forwarding.waiting, 0U);
}

TEST(Leadership, ARequestWithATimeoutOfItsOwnWaitsNoLonger) {
  Cluster cluster;
  cluster.follow(1, 0);  // nobody leads
  cluster.world.cluster().set_entry(1);
  cluster.world.request_at(at_s(3), "a", 1, std::chrono::milliseconds(40));
  cluster.world.run_until(at_s(3) + std::chrono::milliseconds(42));
  EXPECT_EQ(cluster.answered(StatusCode::too_late), 1U);
}

TEST(Leadership, TheNextLeaderGoesOnWithTheGpuletsThatRun) {
  Cluster cluster;
  cluster.lead(0, 1);
  cluster.load(3, 10);
  cluster.world.run_until(at_s(10));
  const std::set<GpuletId> before = cluster.gpulets(0);
  ASSERT_FALSE(before.empty());
  cluster.world.cluster().kill_frontend(0);
  cluster.world.cluster().set_entry(1);
  cluster.lead(1, 2);
  const std::uint64_t answered_before = cluster.answered(StatusCode::ok);
  const std::uint64_t sent_before = cluster.sent;
  cluster.world.run_until(at_s(10) + std::chrono::milliseconds(20));
  cluster.load(11, 14);
  cluster.world.run_until(at_s(15));
  EXPECT_EQ(cluster.answered(StatusCode::ok) - answered_before, cluster.sent - sent_before);
  EXPECT_EQ(cluster.gpulets(1), before) << "the same rate needs no other gpulets";
  EXPECT_GE(cluster.status(1).epoch.value, 1U) << "it has made a plan of its own";
}

TEST(Leadership, AFormerLeaderHandsOnWhatWaitsAndAnswersWhatRuns) {
  Cluster cluster;
  cluster.lead(0, 1);
  cluster.follow(1, 0);
  cluster.load(3, 10);
  cluster.world.run_until(at_s(10));
  EXPECT_EQ(cluster.answered(StatusCode::ok), cluster.sent);
  cluster.load(10, 11);
  for (int i = 0; i < 50; ++i)  // more than one batch: some wait
    cluster.world.request_at(at_s(10) + std::chrono::milliseconds(1), "a", ++cluster.sent);
  cluster.world.run_until(at_s(10) + std::chrono::milliseconds(2));
  cluster.lead(1, 2);
  cluster.follow(0, 1);
  cluster.world.run_until(at_s(12));
  EXPECT_EQ(cluster.world.replies().size(), cluster.sent) << "each has an answer";
  EXPECT_EQ(cluster.answered(StatusCode::ok), cluster.sent);
  EXPECT_GT(cluster.status(0).forwarding.answered, 20U);
  EXPECT_TRUE(cluster.world.cluster().frontend(1).serving());
}

// Both forward to each other for a moment: nobody forwards what was forwarded.
TEST(Leadership, RequestsForwardedToAFormerLeaderFindTheNextOne) {
  Cluster cluster;
  cluster.lead(0, 1);
  cluster.follow(1, 0);
  cluster.world.cluster().set_entry(1);
  cluster.load(3, 6);
  cluster.world.run_until(at_s(4));
  cluster.follow(0, 1);  // before frontend 1 knows that it leads
  cluster.world.run_until(at_s(5));
  EXPECT_GT(cluster.status(1).forwarding.elsewhere, 0U);
  cluster.lead(1, 2);
  cluster.world.run_until(at_s(7));
  EXPECT_EQ(cluster.answered(StatusCode::ok), cluster.sent);
}

// A planned change, as at a restart one by one: no request fails.
TEST(Leadership, ALeaderThatDrainsServesThroughTheNextOne) {
  Cluster cluster;
  cluster.lead(0, 1);
  cluster.follow(1, 0);
  cluster.load(3, 8);
  cluster.world.run_until(at_s(5));
  cluster.world.cluster().inject(Drain{true, at_s(6)}, 0);
  EXPECT_FALSE(cluster.world.cluster().frontend(0).serving()) << "no new clients";
  cluster.world.run_until(at_s(5) + std::chrono::milliseconds(10));
  cluster.follow(0, 1);
  cluster.lead(1, 2);
  cluster.world.run_until(at_s(6) - std::chrono::milliseconds(1));
  EXPECT_FALSE(cluster.world.drained());
  cluster.world.cluster().set_entry(1);
  cluster.world.run_until(at_s(9));
  EXPECT_TRUE(cluster.world.drained());
  EXPECT_EQ(cluster.answered(StatusCode::ok), cluster.sent);
}

TEST(Leadership, APausedLeaderIsObeyedByNobodyAfterwards) {
  Cluster cluster;
  cluster.lead(0, 1);
  cluster.load(3, 30);
  cluster.world.run_until(at_s(10));
  const std::set<GpuletId> before = cluster.gpulets(0);
  cluster.world.cluster().pause_frontend(0);
  cluster.world.run_until(at_s(11));
  cluster.lead(1, 2);
  cluster.world.run_until(at_s(16));
  cluster.world.cluster().resume_frontend(0);  // it believes that it leads
  cluster.world.run_until(at_s(31));
  EXPECT_EQ(cluster.gpulets(1), before);
  for (const auto& [id, backend] : cluster.status(0).backends) EXPECT_FALSE(backend.commanded);
  EXPECT_FALSE(cluster.world.cluster().superseded().empty());
  for (const Term term : cluster.world.cluster().superseded()) EXPECT_EQ(term, Term{2});
  EXPECT_EQ(cluster.world.replies().size(), cluster.sent);
}

// The old leader still reaches n0, the new one both nodes.
TEST(Leadership, ADoubtfulLeaderReplacesTheGpuletsOfALostNode) {
  Cluster cluster;
  cluster.lead(0, 1);
  cluster.load(1, 12);
  cluster.world.run_until(at_s(5));
  const FrontendStatus before = cluster.status(0);
  ASSERT_EQ(before.gpulets.size(), 1U);
  cluster.world.cluster().inject(LeadershipDoubted{true}, 0);
  const std::string node = before.gpulets[0].gpulet.device.node;
  cluster.world.cluster().cut(node, 0);
  cluster.world.run_until(at_s(12));
  const FrontendStatus after = cluster.status(0);
  ASSERT_EQ(after.gpulets.size(), 1U);
  EXPECT_NE(after.gpulets[0].gpulet.device.node, node);
}

TEST(Leadership, ALeaderCutFromANodeLosesBothToTheNextTerm) {
  Cluster cluster;
  cluster.lead(0, 1);
  cluster.world.run_until(at_s(5));
  cluster.world.cluster().cut("n1", 0);
  cluster.world.run_until(at_s(10));
  EXPECT_EQ(cluster.status(0).backends.size(), 1U) << "four heartbeats were missed";
  cluster.lead(1, 2);
  cluster.world.run_until(at_s(12));
  EXPECT_EQ(cluster.world.cluster().superseded(), std::vector<Term>{{2}});
  cluster.world.cluster().heal("n1", 0);
  cluster.world.run_until(at_s(14));
  EXPECT_EQ(cluster.world.cluster().superseded(), (std::vector<Term>{{2}, {2}}))
      << "a Hello tells of the higher term, too";
  for (const auto& [id, backend] : cluster.status(0).backends) EXPECT_FALSE(backend.commanded);
  for (const auto& [id, backend] : cluster.status(1).backends) EXPECT_TRUE(backend.commanded);
}

TEST(Leadership, ALeaderThatReconnectsLeadsOnInItsTerm) {
  Cluster cluster;
  cluster.lead(0, 3);
  cluster.world.run_until(at_s(5));
  cluster.world.cluster().heal("n0", 0);
  cluster.load(6, 9);
  cluster.world.run_until(at_s(10));
  EXPECT_EQ(cluster.answered(StatusCode::ok), cluster.sent);
  EXPECT_EQ(cluster.status(0).leadership.term, Term{3});
  EXPECT_TRUE(cluster.world.cluster().superseded().empty());
}

// Any order of elections, pauses and cuts, with requests to any frontend.
RC_GTEST_PROP(Leadership, EveryRequestIsAnsweredOnceAndTheLastLeaderServes, ()) {
  Cluster cluster;
  std::uint64_t term = 1;
  std::size_t leader = 0;
  cluster.lead(0, term);
  cluster.follow(1, 0);
  cluster.load(2, 20);
  const auto steps = *rc::gen::container<std::vector<int>>(8, rc::gen::inRange(0, 6));
  int second = 3;
  for (const int step : steps) {
    cluster.world.run_until(at_s(second));
    second += 2;
    switch (step) {
      case 0:  // an election that the former leader hears of
      case 1:  // one that it does not hear of
        leader = 1 - leader;
        cluster.lead(leader, ++term);
        cluster.world.cluster().set_entry(*rc::gen::inRange<std::size_t>(0, 2));
        if (step == 0) cluster.follow(1 - leader, leader);
        break;
      case 2:
        cluster.world.cluster().cut("n0", leader);
        break;
      case 3:
        cluster.world.cluster().heal("n0", leader);
        break;
      case 4:
        cluster.world.cluster().pause_frontend(1 - leader);
        break;
      default:
        cluster.world.cluster().resume_frontend(1 - leader);
        break;
    }
    if (step <= 1) cluster.world.cluster().resume_frontend(leader);
  }
  for (const std::size_t frontend : {0U, 1U}) {
    cluster.world.cluster().resume_frontend(frontend);
    cluster.world.cluster().heal("n0", frontend);
  }
  cluster.follow(1 - leader, leader);
  cluster.world.run_until(at_s(27));
  RC_ASSERT(cluster.world.replies().size() == cluster.sent);
  for (const auto& [tag, replies] : cluster.world.replies()) RC_ASSERT(replies.size() == 1U);
  const std::size_t served = cluster.answered(StatusCode::ok);
  const std::uint64_t before = cluster.sent;
  cluster.load(28, 30);
  cluster.world.run_until(at_s(32));
  RC_ASSERT(cluster.answered(StatusCode::ok) - served == cluster.sent - before);
}

// ---- a frontend without others

TEST(StandaloneLeadership, TakesATermAboveThatOfAnEarlierRun) {
  FrontendParts parts;
  parts.models.add(byte_model("a", 1000, 10), at_ms(0));
  const auto first = commands<TakeLeadership>(parts.send(
      1, Hello{"n0", {FrontendParts::device("n0", 0)}, {}, kProtocolLevel, {}}, at_ms(0)));
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].term, Term{1});
  parts.send(1, BackendState{{1}, {}}, at_ms(1));
  EXPECT_TRUE(parts.backends.commanded(BackendId{1}));
  // n1 obeyed an earlier run: both nodes are taken under a higher term.
  const auto both = commands<TakeLeadership>(parts.send(
      2, Hello{"n1", {FrontendParts::device("n1", 0)}, {}, kProtocolLevel, {7}}, at_ms(2)));
  ASSERT_EQ(both.size(), 2U);
  EXPECT_EQ(both[0].term, Term{8});
  EXPECT_EQ(both[1].term, Term{8});
  EXPECT_FALSE(parts.backends.commanded(BackendId{2}));
  EXPECT_EQ(parts.backends.cluster().devices.size(), 1U) << "plans use what obeys";
  parts.send(2, BackendState{{8}, {}}, at_ms(3));
  EXPECT_EQ(parts.backends.cluster().devices.size(), 2U);
}

TEST(StandaloneLeadership, GpuletsThatABackendNoLongerListsAreGone) {
  FrontendParts parts;
  parts.models.add(byte_model("a", 1000, 10), at_ms(0));
  parts.send(1, Hello{"n0", {FrontendParts::device("n0", 0)}, {}, kProtocolLevel, {}}, at_ms(0));
  GpuletReport listed;
  listed.size = Share{50};
  listed.models = {{"a", 16, version_of(byte_model("a", 1000, 10))}};
  listed.state = GpuletState::ready;
  for (const std::uint64_t id : {3U, 4U}) {
    listed.id = {id};
    parts.backends.claim(BackendId{1}, {listed}, at_ms(0));
  }
  parts.send(1, BackendState{{1}, {listed}}, at_ms(1));
  EXPECT_EQ(parts.backends.find(GpuletId{3}), nullptr);
  EXPECT_NE(parts.backends.find(GpuletId{4}), nullptr);
}

TEST(StandaloneLeadership, ABackendThatObeysAnotherIsLeftOutOfPlans) {
  FrontendParts parts;
  parts.models.add(byte_model("a", 1000, 10), at_ms(0));
  parts.send(1, Hello{"n0", {FrontendParts::device("n0", 0)}, {}, kProtocolLevel, {}}, at_ms(0));
  parts.send(1, BackendState{{1}, {}}, at_ms(1));
  const FrontendEffects effects = parts.send(1, Superseded{{4}}, at_ms(2));
  EXPECT_TRUE(parts.backends.cluster().devices.empty());
  EXPECT_EQ(only<SupersededBy>(effects).size(), 1U);
}

TEST(ClusteredLeadership, RefusesABackendThatKnowsNoTerms) {
  FrontendOptions options = member(1);
  FrontendParts parts(options);
  const FrontendEffects effects = parts.join(1, "n0", at_ms(0));
  ASSERT_EQ(only<DisconnectBackend>(effects).size(), 1U);
  EXPECT_EQ(only<DisconnectBackend>(effects)[0].reason.code(), StatusCode::unavailable);
}

TEST(ClusteredLeadership, ABackendCannotUseUpTheTerms) {
  constexpr Term kFar{std::uint64_t{1} << 63U};
  FrontendParts parts;
  const Hello far{"n0", {FrontendParts::device("n0", 0)}, {}, kProtocolLevel, kFar};
  EXPECT_EQ(only<DisconnectBackend>(parts.send(1, far, at_ms(0))).size(), 1U);
  parts.send(2, Hello{"n1", {FrontendParts::device("n1", 0)}, {}, kProtocolLevel, {}}, at_ms(0));
  parts.send(2, BackendState{{1}, {}}, at_ms(1));
  EXPECT_EQ(only<DisconnectBackend>(parts.send(2, Superseded{kFar}, at_ms(2))).size(), 1U);
  EXPECT_EQ(parts.backends.term(), Term{1});
}

// After a restart, a frontend meets honest backends that obeyed a term which another backend made
// its earlier run take. Each is commanded in a term above its own.
TEST(StandaloneLeadership, ATermFarAheadConcernsItsBackendAlone) {
  for (const std::uint64_t far : {(std::uint64_t{1} << 40U) - 1, std::uint64_t{1} << 40U,
                                  (std::uint64_t{1} << 40U) + 2, (std::uint64_t{1} << 63U) - 2}) {
    FrontendParts parts;
    parts.models.add(byte_model("a", 1000, 10), at_ms(0));
    parts.send(1, Hello{"n0", {FrontendParts::device("n0", 0)}, {}, kProtocolLevel, {}}, at_ms(0));
    parts.send(1, BackendState{{1}, {}}, at_ms(1));
    const FrontendEffects joined = parts.send(
        2, Hello{"n1", {FrontendParts::device("n1", 0)}, {}, kProtocolLevel, {far}}, at_ms(2));
    EXPECT_TRUE(only<DisconnectBackend>(joined).empty()) << far;
    const auto taken = commands<TakeLeadership>(joined);
    ASSERT_EQ(taken.size(), 1U) << far;
    EXPECT_EQ(taken[0].term, Term{far + 1});
    parts.send(2, BackendState{{far + 1}, {}}, at_ms(3));
    EXPECT_TRUE(parts.backends.commanded(BackendId{1}));
    EXPECT_TRUE(parts.backends.commanded(BackendId{2}));
    EXPECT_EQ(parts.backends.term_for(BackendId{1}), Term{1});
    EXPECT_EQ(parts.backends.term(), Term{1});
    EXPECT_EQ(parts.backends.cluster().devices.size(), 2U);
  }
}

// A frontend that does not lead meets backends of any leader.
TEST(ClusteredLeadership, AMemberTakesBackendsOfAnyTermBelowTheHighest) {
  FrontendParts parts(member(1));
  const Hello far{
      "n0", {FrontendParts::device("n0", 0)}, {}, kProtocolLevel, {(std::uint64_t{1} << 60U) + 7}};
  EXPECT_TRUE(only<DisconnectBackend>(parts.send(1, far, at_ms(0))).empty());
}

TEST(ClusteredLeadership, AStateWithAGpuletOnAnUnknownDeviceEndsTheConnection) {
  FrontendParts parts;
  parts.send(1, Hello{"n0", {FrontendParts::device("n0", 0)}, {}, kProtocolLevel, {}}, at_ms(0));
  GpuletReport impossible;
  impossible.id = {3};
  impossible.device = 9;
  impossible.size = Share{50};
  const FrontendEffects effects = parts.send(1, BackendState{{1}, {impossible}}, at_ms(1));
  EXPECT_EQ(only<DisconnectBackend>(effects).size(), 1U);
}

}  // namespace
}  // namespace gpulet::serve::leadership_test
