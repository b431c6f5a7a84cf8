// Which frontend a backend obeys: the fence by itself, in every state that it can reach, and in the
// backend's core.
#include "node/fence.h"

#include <gtest/gtest.h>

#include <deque>
#include <tuple>
#include <vector>

#include "tests/backend/core_bench.h"

namespace gpulet::node::fence_test {
namespace {

// Connections 1 and 3 are of one member of the cluster, 2 of another, 4 of a frontend of level 0.
constexpr std::uint64_t kConnections = 4;
constexpr std::uint64_t kOld = 4;
// Every term belongs to one member, as the election guarantees: odd ones to the first.
constexpr std::uint64_t kTerms = 4;
bool may_claim(std::uint64_t connection, std::uint64_t term) {
  return connection != kOld && connection % 2 == term % 2;
}

// Every order of welcomes, claims and ends of connections.
TEST(Fence, ObeysOneFrontendAndNeverReturnsToAnEarlierTerm) {
  std::deque<Fence> open{Fence{}};
  std::vector<Fence> seen{Fence{}};
  const auto visit = [&](const Fence& from, const Fence& to) {
    ASSERT_GE(to.term(), from.term());
    std::size_t obeyed = 0;
    for (std::uint64_t connection = 1; connection <= kConnections; ++connection) {
      bool admitted = false;
      for (std::uint64_t term = 0; term <= kTerms; ++term) {
        if (!to.admits({connection}, {term})) continue;
        admitted = true;
        if (connection == kOld) continue;
        EXPECT_EQ(Term{term}, to.term());
        EXPECT_TRUE(may_claim(connection, term));
      }
      obeyed += admitted ? 1U : 0U;
    }
    EXPECT_LE(obeyed, 1U);
    EXPECT_EQ(obeyed == 1, to.leader().has_value());
    if (std::find(seen.begin(), seen.end(), to) != seen.end()) return;
    seen.push_back(to);
    open.push_back(to);
  };
  while (!open.empty()) {
    const Fence from = open.front();
    open.pop_front();
    for (std::uint64_t connection = 1; connection <= kConnections; ++connection) {
      Fence welcomed = from;
      welcomed.welcomed({connection}, connection == kOld ? 0 : 1);
      visit(from, welcomed);
      Fence ended = from;
      ended.disconnected({connection});
      visit(from, ended);
      for (std::uint64_t term = 1; term <= kTerms; ++term) {
        if (!may_claim(connection, term)) continue;
        Fence claimed = from;
        const bool accepted = claimed.take_leadership({connection}, {term});
        EXPECT_EQ(accepted, claimed.admits({connection}, {term}));
        EXPECT_TRUE(accepted || claimed == from);
        EXPECT_TRUE(accepted || Term{term} <= from.term());
        visit(from, claimed);
      }
    }
  }
  EXPECT_GT(seen.size(), 10U);
}

TEST(Fence, TermZeroLeadsNothing) {
  Fence fence;
  EXPECT_FALSE(fence.take_leadership({1}, {0}));
  EXPECT_FALSE(fence.leader());
}

// ---- in the backend's core

// Two frontends that know terms, connected to one backend. The first leads in term 1.
struct TwoFrontends {
  static constexpr FrontendId kFirst{1};
  static constexpr FrontendId kSecond{2};

  TwoFrontends() {
    for (const FrontendId frontend : {kFirst, kSecond}) {
      bench.on(FrontendConnected{frontend});
      from(frontend,
           Welcome{std::chrono::seconds(1), kProtocolLevel, frontend == kFirst ? "f1" : "f2"});
    }
    from(kFirst, TakeLeadership{{1}});
    CreateGpulet asked = create(1, {"a"});
    asked.term = {1};
    from(kFirst, GpuletRequested{asked, {{"sha-a", "/store/a.pt"}}});
    bench.load(1);
  }
  BackendEffects from(FrontendId frontend, FrontendCommand command) {
    return bench.on(CommandReceived{frontend, std::move(command)});
  }
  BackendEffects send_batch(FrontendId frontend, std::uint64_t id, std::uint64_t term) {
    Batch made = batch(id, 1);
    made.term = {term};
    return from(frontend, BatchArrived{std::move(made), bench.now(), true});
  }

  CoreBench bench;
};

// The frontends to which messages of that kind were sent, in their order.
template <typename Message>
std::vector<FrontendId> told(const BackendEffects& effects) {
  std::vector<FrontendId> found;
  for (const SendToFrontend& one : all<SendToFrontend>(effects)) {
    if (std::holds_alternative<Message>(one.message)) found.push_back(one.frontend);
  }
  return found;
}

TEST(BackendFence, ListsWhatRunsWhenTheLeadershipIsTaken) {
  TwoFrontends two;
  const auto effects = two.from(TwoFrontends::kSecond, TakeLeadership{{2}});
  ASSERT_EQ(told<BackendState>(effects), std::vector{TwoFrontends::kSecond});
  const auto states = sent<BackendState>(effects);
  EXPECT_EQ(states[0].term, Term{2});
  ASSERT_EQ(states[0].gpulets.size(), 1U);
  EXPECT_EQ(states[0].gpulets[0].state, GpuletState::ready);
  EXPECT_EQ(told<Superseded>(effects), std::vector{TwoFrontends::kFirst});
  EXPECT_EQ(sent<Superseded>(effects)[0].term, Term{2});
}

TEST(BackendFence, ExecutesNoCommandOfAFormerLeader) {
  TwoFrontends two;
  two.from(TwoFrontends::kSecond, TakeLeadership{{2}});
  CreateGpulet asked = create(2, {"a"});
  asked.term = {1};
  const std::vector<FrontendCommand> commands{GpuletRequested{asked, {{"sha-a", "/store/a.pt"}}},
                                              AssignGpulet{{1}, {}, {1}}, SetCores{{1}, 1, {1}},
                                              RetireGpulet{{1}, {1}}, TakeLeadership{{1}}};
  for (const FrontendCommand& command : commands) {
    const auto effects = two.from(TwoFrontends::kFirst, command);
    EXPECT_EQ(effects.size(), 1U);
    EXPECT_EQ(told<Superseded>(effects), std::vector{TwoFrontends::kFirst});
  }
  const auto effects = two.send_batch(TwoFrontends::kFirst, 9, 1);
  EXPECT_TRUE(all<RunOnProxy>(effects).empty());
  ASSERT_EQ(told<BatchResult>(effects), std::vector{TwoFrontends::kFirst});
  EXPECT_EQ(sent<BatchResult>(effects)[0].status.code(), StatusCode::unavailable);
  EXPECT_EQ(two.bench.core().commands_refused(), commands.size() + 1);
  EXPECT_EQ(two.bench.phase(1), GpuletPhase::ready);
  EXPECT_FALSE(two.bench.phase(2));
  EXPECT_FALSE(two.bench.core().takes_batches(TwoFrontends::kFirst, {1}));
  EXPECT_FALSE(two.bench.core().obeys(TwoFrontends::kFirst));
}

TEST(BackendFence, ACommandOfAnEarlierTermOfTheLeaderItselfIsRefused) {
  TwoFrontends two;
  two.from(TwoFrontends::kFirst, TakeLeadership{{3}});
  EXPECT_TRUE(all<RunOnProxy>(two.send_batch(TwoFrontends::kFirst, 9, 1)).empty());
  EXPECT_EQ(all<RunOnProxy>(two.send_batch(TwoFrontends::kFirst, 10, 3)).size(), 1U);
}

TEST(BackendFence, BatchesAcceptedBeforeAreAnsweredToTheirSender) {
  TwoFrontends two;
  two.send_batch(TwoFrontends::kFirst, 9, 1);
  two.from(TwoFrontends::kSecond, TakeLeadership{{2}});
  two.send_batch(TwoFrontends::kSecond, 10, 2);
  EXPECT_EQ(told<BatchResult>(two.bench.ran(1, 9)), std::vector{TwoFrontends::kFirst});
  EXPECT_EQ(told<BatchResult>(two.bench.ran(1, 10)), std::vector{TwoFrontends::kSecond});
}

TEST(BackendFence, ABatchOfANumberThatIsHeldIsRefused) {
  TwoFrontends two;
  two.send_batch(TwoFrontends::kFirst, 9, 1);
  const auto again = sent<BatchResult>(two.send_batch(TwoFrontends::kFirst, 9, 1));
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].status.code(), StatusCode::invalid);
}

TEST(BackendFence, OnlyTheLeaderIsToldOfGpulets) {
  TwoFrontends two;
  EXPECT_EQ(told<GpuletReport>(two.bench.end(1)), std::vector{TwoFrontends::kFirst});
  two.from(TwoFrontends::kSecond, TakeLeadership{{2}});
  two.bench.wake();
  two.bench.on(ProxyStarted{{1}});
  two.bench.on(ProxyLoaded{{1}, {}});
  EXPECT_EQ(told<GpuletReport>(two.bench.on(ShareActive{{1}, {}})),
            std::vector{TwoFrontends::kSecond});
}

TEST(BackendOwner, SendsTheBatchesAloneWhoeverLeads) {
  TwoFrontends two;
  const auto effects = two.from(TwoFrontends::kFirst, SetOwner{{1}, "f2", {1}});
  ASSERT_EQ(told<GpuletReport>(effects), std::vector{TwoFrontends::kSecond});
  EXPECT_EQ(sent<GpuletReport>(effects)[0].owner, "f2");
  EXPECT_TRUE(two.bench.core().takes_batches(TwoFrontends::kSecond, {1}));
  EXPECT_FALSE(two.bench.core().takes_batches(TwoFrontends::kFirst, {1}));
  EXPECT_EQ(all<RunOnProxy>(two.send_batch(TwoFrontends::kSecond, 9, 0)).size(), 1U);
  const auto refused = two.send_batch(TwoFrontends::kFirst, 10, 1);
  EXPECT_TRUE(all<RunOnProxy>(refused).empty());
  ASSERT_EQ(told<BatchResult>(refused), std::vector{TwoFrontends::kFirst});
  EXPECT_TRUE(sent<BatchResult>(refused)[0].elsewhere);
  EXPECT_EQ(sent<BatchResult>(refused)[0].status.code(), StatusCode::unavailable);
  EXPECT_EQ(told<BatchResult>(two.bench.ran(1, 9)), std::vector{TwoFrontends::kSecond});
  // The leader still decides on the gpulet, and both hear of its state.
  EXPECT_EQ(told<GpuletReport>(two.bench.end(1)),
            (std::vector{TwoFrontends::kSecond, TwoFrontends::kFirst}));
}

TEST(BackendOwner, IsSetByTheLeaderAloneAndStaysWhenTheLeaderChanges) {
  TwoFrontends two;
  EXPECT_EQ(told<Superseded>(two.from(TwoFrontends::kSecond, SetOwner{{1}, "f2", {1}})),
            std::vector{TwoFrontends::kSecond});
  EXPECT_FALSE(two.bench.core().is_owner(TwoFrontends::kSecond, {1}));
  two.from(TwoFrontends::kFirst, SetOwner{{1}, "f1", {1}});
  const auto taken = two.from(TwoFrontends::kSecond, TakeLeadership{{2}});
  EXPECT_EQ(sent<BackendState>(taken).at(0).gpulets.at(0).owner, "f1");
  EXPECT_TRUE(two.bench.core().is_owner(TwoFrontends::kFirst, {1})) << "the former leader";
  EXPECT_EQ(all<RunOnProxy>(two.send_batch(TwoFrontends::kFirst, 9, 1)).size(), 1U);
  // A former leader cannot take it back.
  two.from(TwoFrontends::kSecond, SetOwner{{1}, {}, {2}});
  two.from(TwoFrontends::kFirst, SetOwner{{1}, "f1", {1}});
  EXPECT_TRUE(two.bench.core().is_owner(TwoFrontends::kSecond, {1}));
  EXPECT_TRUE(all<RunOnProxy>(two.send_batch(TwoFrontends::kFirst, 10, 1)).empty());
}

TEST(BackendOwner, ThatRestartedReplacesItsFormerConnection) {
  TwoFrontends two;
  two.from(TwoFrontends::kFirst, SetOwner{{1}, "f2", {1}});
  two.bench.on(FrontendConnected{{3}});
  two.from({3}, Welcome{std::chrono::seconds(1), kProtocolLevel, "f2"});
  EXPECT_TRUE(two.bench.core().is_owner({3}, {1}));
  EXPECT_TRUE(all<RunOnProxy>(two.send_batch(TwoFrontends::kSecond, 9, 0)).empty());
  two.bench.on(FrontendDisconnected{{3}});
  EXPECT_TRUE(two.bench.core().is_owner(TwoFrontends::kSecond, {1}));
}

TEST(BackendOwner, IsNotReplacedByASecondWelcome) {
  TwoFrontends two;
  two.from(TwoFrontends::kFirst, SetOwner{{1}, "f1", {1}});
  const auto effects =
      two.from(TwoFrontends::kSecond, Welcome{std::chrono::seconds(1), kProtocolLevel, "f1"});
  ASSERT_EQ(all<DisconnectFrontend>(effects).size(), 1U);
  EXPECT_EQ(all<DisconnectFrontend>(effects)[0].frontend, TwoFrontends::kSecond);
  EXPECT_TRUE(two.bench.core().is_owner(TwoFrontends::kFirst, {1}));
}

TEST(BackendOwner, GetsItsBatchBackFromAGpuletThatEnds) {
  TwoFrontends two;
  two.from(TwoFrontends::kFirst, SetOwner{{1}, "f2", {1}});
  two.from(TwoFrontends::kFirst, RetireGpulet{{1}, {1}});
  const auto refused = sent<BatchResult>(two.send_batch(TwoFrontends::kSecond, 9, 0));
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_TRUE(refused[0].elsewhere);
}

TEST(BackendFence, FilesAreRequestedAnewFromTheNextLeader) {
  TwoFrontends two;
  CreateGpulet asked = create(2, {"b"});
  asked.term = {1};
  EXPECT_EQ(told<ModelPieceRequest>(two.from(TwoFrontends::kFirst, GpuletRequested{asked, {}})),
            std::vector{TwoFrontends::kFirst});
  const auto effects = two.from(TwoFrontends::kSecond, TakeLeadership{{2}});
  EXPECT_EQ(told<ModelPieceRequest>(effects), std::vector{TwoFrontends::kSecond});
  EXPECT_EQ(all<DropUnfinishedFiles>(effects).size(), 1U);
}

TEST(BackendFence, ALostLeaderChangesNothing) {
  TwoFrontends two;
  two.bench.on(FrontendDisconnected{TwoFrontends::kFirst});
  EXPECT_EQ(two.bench.phase(1), GpuletPhase::ready);
  const auto hellos = sent<Hello>(two.bench.on(FrontendConnected{{3}}));
  ASSERT_EQ(hellos.size(), 1U);
  EXPECT_EQ(hellos[0].term, Term{1});
  // It reconnected, and its term is still the highest.
  two.from({3}, Welcome{std::chrono::seconds(1), kProtocolLevel});
  EXPECT_EQ(told<BackendState>(two.from({3}, TakeLeadership{{1}})), std::vector{FrontendId{3}});
}

TEST(BackendFence, AFrontendWithoutTermsLeadsWhileNoOtherDoes) {
  CoreBench bench;
  bench.connect();
  bench.make_ready(1);
  const auto effects = [&] {
    bench.on(FrontendConnected{{7}});
    bench.on(CommandReceived{{7}, Welcome{std::chrono::seconds(1), kProtocolLevel}});
    return bench.on(CommandReceived{{7}, TakeLeadership{{1}}});
  }();
  EXPECT_EQ(told<BackendState>(effects), std::vector{FrontendId{7}});
  EXPECT_TRUE(told<Superseded>(effects).empty()) << "it would not understand the message";
  bench.command(RetireGpulet{{1}});
  EXPECT_EQ(bench.phase(1), GpuletPhase::ready);
}

}  // namespace
}  // namespace gpulet::node::fence_test
