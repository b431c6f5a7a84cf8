// The decisions of the members of a cluster, on a store in memory.
#include "cluster/session.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>

#include "cluster/records.h"
#include "tests/cluster/fake_store.h"

namespace gpulet::cluster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::FakeCluster;

using Names = std::vector<std::string>;

// Members a, b and c, of which one leads.
struct Three : FakeCluster {
  Three() {
    for (const char* const name : {"a", "b", "c"}) start(name);
    pass(seconds(1));
  }
  std::string leader() { return leaders().at(0); }
};

TEST(Session, OneOfThreeMembersIsElected) {
  Three three;
  ASSERT_EQ(three.leaders().size(), 1U);
  const std::string leader = three.leader();
  for (const char* const name : {"a", "b", "c"}) {
    EXPECT_EQ(three.at(name).store, StoreState::here);
    EXPECT_EQ(three.at(name).members.size(), 3U);
    if (name != leader) {
      EXPECT_EQ(three.at(name).leader.name, leader);
    }
  }
  EXPECT_GT(*three.at(leader).leads, Term{});
}

TEST(Session, AnotherIsElectedWhenTheLeaseOfAKilledLeaderEnds) {
  Three three;
  const std::string killed = three.leader();
  const Term term = *three.at(killed).leads;
  three.kill(killed);
  three.pass(FakeCluster::kLease - milliseconds(900));
  EXPECT_TRUE(three.leaders().empty());
  three.pass(milliseconds(1200));
  ASSERT_EQ(three.leaders().size(), 1U);
  EXPECT_GT(*three.at(three.leader()).leads, term);
  EXPECT_EQ(three.at(three.leader()).members.size(), 2U);
}

TEST(Session, ALeaderThatLeavesIsReplacedAtOnce) {
  Three three;
  const std::string left = three.leader();
  three.at(left).session->leave(three.now());
  three.pass(milliseconds(200));
  EXPECT_TRUE(three.at(left).session->left());
  three.kill(left);
  ASSERT_EQ(three.leaders().size(), 1U);
}

TEST(Session, ALeaderThatResignsStaysAMemberAndHearsWhoLeads) {
  Three three;
  const std::string resigned = three.leader();
  const Term term = *three.at(resigned).leads;
  three.at(resigned).session->resign(three.now());
  three.pass(milliseconds(300));
  ASSERT_EQ(three.leaders().size(), 1U);
  EXPECT_NE(three.leader(), resigned);
  EXPECT_GT(*three.at(three.leader()).leads, term);
  EXPECT_EQ(three.at(resigned).leader.name, three.leader());
  EXPECT_EQ(three.at(resigned).members.size(), 3U);
  // It does not lead again, even if nobody else does.
  for (const char* const name : {"a", "b", "c"}) {
    if (name != resigned) three.kill(name);
  }
  three.pass(3 * FakeCluster::kLease);
  EXPECT_TRUE(three.leaders().empty());
  EXPECT_TRUE(three.at(resigned).leader.name.empty());
}

TEST(Session, AStoreThatIsAwayChangesNothing) {
  Three three;
  const std::string leader = three.leader();
  const Term term = *three.at(leader).leads;
  three.store.away = true;
  three.pass(seconds(60));
  EXPECT_EQ(three.leaders(), Names{leader});
  EXPECT_TRUE(three.at(leader).doubtful);
  EXPECT_EQ(three.at(leader).store, StoreState::away);
  three.store.away = false;  // every lease has ended meanwhile
  three.pass(seconds(3));
  ASSERT_EQ(three.leaders().size(), 1U);
  EXPECT_GT(*three.at(three.leader()).leads, term);
  EXPECT_FALSE(three.at(three.leader()).doubtful);
  for (const char* const name : {"a", "b", "c"}) EXPECT_EQ(three.at(name).store, StoreState::here);
}

TEST(Session, AShortAbsenceKeepsTheTerm) {
  Three three;
  const std::string leader = three.leader();
  const Term term = *three.at(leader).leads;
  three.store.away = true;
  three.pass(milliseconds(500));
  three.store.away = false;
  three.pass(seconds(3));
  EXPECT_EQ(three.leaders(), Names{leader});
  EXPECT_EQ(*three.at(leader).leads, term);
  EXPECT_FALSE(three.at(leader).doubtful);
}

TEST(Session, ALeaderThatIsCutOffIsInDoubtBeforeAnotherLeads) {
  Three three;
  const std::string cut = three.leader();
  three.at(cut).cut = true;
  while (three.leaders().size() == 1) {
    three.pass(FakeCluster::kLatency);
    ASSERT_LT(three.now(), Time(std::chrono::hours(1) + seconds(10)));
  }
  EXPECT_TRUE(three.at(cut).doubtful);
  three.at(cut).cut = false;
  three.pass(seconds(2));
  ASSERT_EQ(three.leaders().size(), 1U);
  EXPECT_NE(three.leader(), cut);
  EXPECT_EQ(three.at(cut).members.size(), 3U) << "it is registered again";
}

TEST(Session, APausedLeaderLearnsThatAnotherLeads) {
  Three three;
  const std::string paused = three.leader();
  three.at(paused).paused = true;
  three.pass(3 * FakeCluster::kLease);
  ASSERT_EQ(three.leaders().size(), 2U) << "it has had no chance to notice";
  three.at(paused).paused = false;
  three.pass(seconds(1));
  ASSERT_EQ(three.leaders().size(), 1U);
  EXPECT_NE(three.leader(), paused);
}

TEST(Session, TermsGrowAfterTheStoreLostItsData) {
  Three three;
  for (int i = 0; i < 20; ++i) three.store.put("noise", "x");  // revisions far above a new store's
  const std::string killed = three.leader();
  three.kill(killed);
  three.pass(seconds(4));
  const Term term = *three.at(three.leader()).leads;
  three.store.lose_data();
  three.pass(seconds(5));
  ASSERT_EQ(three.leaders().size(), 1U);
  EXPECT_GT(*three.at(three.leader()).leads, term);
  EXPECT_TRUE(three.store.keys().contains("cluster"));
}

TEST(Session, ATermThatABackendAcceptedIsExceeded) {
  FakeCluster one;
  one.start("a");
  one.pass(seconds(1));
  one.at("a").session->on_term({500}, one.now());
  one.pass(seconds(2));
  EXPECT_GT(*one.at("a").leads, Term{500});
  one.kill("a");
  one.start("b");
  one.pass(seconds(4));
  EXPECT_GT(*one.at("b").leads, Term{500}) << "the base is kept in the store";
}

TEST(Session, LostLeasesAloneEndNothing) {
  Three three;
  const std::string leader = three.leader();
  three.store.lose_leases();
  three.pass(seconds(3));
  ASSERT_EQ(three.leaders().size(), 1U);
  EXPECT_EQ(three.at(three.leader()).members.size(), 3U);
}

TEST(Session, WritesWhoseRepliesAreLostAreFoundDone) {
  FakeCluster one;
  one.store.hides_writes = true;
  one.start("a");
  one.pass(seconds(10));
  EXPECT_EQ(one.leaders(), Names{"a"});
  EXPECT_EQ(one.at("a").won.size(), 1U);
}

TEST(Session, AProcessThatRestartsReplacesItsOwnKeys) {
  FakeCluster one;
  one.start("a");
  one.pass(seconds(1));
  const Term term = *one.at("a").leads;
  one.kill("a");
  one.start("a");
  one.pass(milliseconds(500));
  ASSERT_TRUE(one.at("a").leads) << "it does not wait for the lease of the earlier process";
  EXPECT_GT(*one.at("a").leads, term);
}

TEST(Session, ANameThatAnotherProcessHasIsAConflict) {
  FakeCluster two;
  two.start("a");
  two.pass(seconds(1));
  SessionOptions options;
  options.cluster = "test";
  options.self = {"a", "elsewhere:7000"};
  options.incarnation = "other";
  Session second(options);
  second.advance(two.now());
  std::optional<StoreChanged> seen;
  for (int i = 0; i < 10 && !seen; ++i) {
    for (const Call& call : second.take_calls()) {
      if (std::holds_alternative<Watch>(call.request)) continue;
      second.on(CallEnded{call.number, two.store.answer(call.request, two.now())}, two.now());
    }
    for (const MembershipEvent& event : second.take_events()) {
      if (const auto* const changed = std::get_if<StoreChanged>(&event)) seen = *changed;
    }
  }
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->state, StoreState::conflict);
  EXPECT_EQ(two.store.keys().at("members/a").value.find("elsewhere"), std::string::npos);
}

TEST(Session, ThePrefixOfAnotherClusterIsAConflict) {
  FakeCluster two;
  two.start("a");
  two.pass(seconds(1));
  two.start("b", "b:7000", "another");
  two.pass(seconds(5));
  EXPECT_EQ(two.at("b").store, StoreState::conflict);
  EXPECT_FALSE(two.store.keys().contains("members/b"));
  EXPECT_EQ(two.leaders(), Names{"a"});
}

TEST(Session, KeysThatAreNotGpuletsAreReplacedOrIgnored) {
  FakeCluster one;
  one.store.put("cluster", "not JSON");
  one.store.put("leader", R"({"format":7})");
  one.store.put("members/x", "[]");
  one.start("a");
  one.pass(seconds(1));
  EXPECT_EQ(one.leaders(), Names{"a"});
  EXPECT_EQ(one.at("a").members, (std::vector<Member>{{"a", "a:7000"}}));
}

// Another program may write what it likes: only a member that holds a lease leads.
TEST(Session, ALeaderWithoutALeaseOrWithoutAMemberIsNobody) {
  const auto claim = [](const std::string& name) {
    return to_json(MemberRecord{{name, name + ":7000", {}, "s"}, name + "-process"});
  };
  Three three;
  three.store.put("leader", claim("z"));
  three.pass(seconds(1));
  ASSERT_EQ(three.leaders().size(), 1U) << "no such member";
  for (const char* const name : {"a", "b", "c"}) EXPECT_NE(three.at(name).leader.name, "z");
  // A record of a member without a lease makes none, either.
  three.store.put("members/z", claim("z"));
  three.store.put("leader", claim("z"));
  three.pass(seconds(1));
  ASSERT_EQ(three.leaders().size(), 1U);
  for (const char* const name : {"a", "b", "c"}) EXPECT_NE(three.at(name).leader.name, "z");
  // Whatever was written last, one of the members leads in the end, without doubt.
  for (int i = 0; i < 10; ++i) {
    three.store.put("leader", claim(i % 2 == 0 ? "z" : "a"));
    three.pass(milliseconds(100));
  }
  three.pass(seconds(2));
  ASSERT_EQ(three.leaders().size(), 1U);
  EXPECT_FALSE(three.at(three.leader()).doubtful);
}

// The base is as large as it may be, then nothing that gpulet wrote, and the store stands still
// meanwhile. Whoever leads then leads in a higher term.
TEST(Session, ElectionsGoOnAfterAnyBase) {
  for (const std::uint64_t base :
       {std::uint64_t{0}, std::uint64_t{1} << 60U, kMostBase - 1, kMostBase}) {
    Three three;
    three.store.put("cluster", to_json(ClusterRecord{"test", base}));
    three.pass(seconds(2));
    ASSERT_EQ(three.leaders().size(), 1U) << base;
    Term highest = *three.at(three.leader()).leads;
    for (const char* const junk : {"not JSON", R"({"format":1,"name":"test","base":-1})"}) {
      three.store.put("cluster", junk);
      three.store.away = true;
      three.pass(seconds(12));
      three.store.away = false;
      three.store.lose_leases();
      three.store.put("leader", "{}");
      three.pass(seconds(5));
      ASSERT_EQ(three.leaders().size(), 1U) << base << junk;
      const Term term = *three.at(three.leader()).leads;
      EXPECT_GE(term, highest) << base << junk;
      highest = term;
      three.kill(three.leader());
      three.pass(seconds(5));
      ASSERT_EQ(three.leaders().size(), 1U) << base << junk;
      EXPECT_GT(*three.at(three.leader()).leads, highest) << base << junk;
      highest = *three.at(three.leader()).leads;
      for (const char* const name : {"a", "b", "c"})
        if (three.at(name).session == nullptr) three.start(name);
      three.pass(seconds(2));
    }
  }
}

// One backend names a term that no frontend can exceed.
TEST(Session, ATermThatNoFrontendHadIsIgnored) {
  Three three;
  const std::string leader = three.leader();
  const Term term = *three.at(leader).leads;
  three.at(leader).session->on_term({kMostTermOfBackends + 1}, three.now());
  three.pass(seconds(2));
  EXPECT_EQ(three.leaders(), Names{leader});
  EXPECT_EQ(*three.at(leader).leads, term);
}

// A frontend follows the leader's term, too: the changes of models that it adopts have one.
TEST(Session, TheOthersHearTheTermOfTheLeader) {
  Three three;
  for (const char* const name : {"a", "b", "c"}) {
    if (name != three.leader()) {
      EXPECT_EQ(three.at(name).leader_term, *three.at(three.leader()).leads);
    }
  }
  three.at(three.leader()).session->on_term({1'000'000}, three.now());
  three.pass(seconds(2));
  EXPECT_GT(*three.at(three.leader()).leads, Term{1'000'000});
  for (const char* const name : {"a", "b", "c"}) {
    if (name != three.leader()) {
      EXPECT_EQ(three.at(name).leader_term, *three.at(three.leader()).leads);
    }
  }
}

// Any order of restarts, pauses, cuts, absences and lost leases. Terms repeat only if the store
// loses its data and every member its memory; then backends know the highest term.
RC_GTEST_PROP(Session, NoTwoLeadershipsHaveOneTermAndOneIsElectedInTheEnd, ()) {
  Three three;
  std::map<Term, std::string> leadership;
  bool lost_data = false;
  const auto steps = *rc::gen::container<std::vector<std::pair<int, int>>>(
      15, rc::gen::pair(rc::gen::inRange(0, 12), rc::gen::inRange(0, 3)));
  const Names names{"a", "b", "c"};
  const auto look = [&] {
    for (const std::string& name : names) {
      for (const Term term : three.at(name).won) {
        const auto [found, added] = leadership.emplace(term, name);
        RC_ASSERT(lost_data || found->second == name);
      }
    }
  };
  for (const auto& [step, who] : steps) {
    FakeCluster::MemberState& member = three.at(names[static_cast<std::size_t>(who)]);
    look();
    switch (step) {
      case 0:
        three.start(names[static_cast<std::size_t>(who)]);
        break;
      case 1:
        member.paused = !member.paused;
        break;
      case 2:
        member.cut = !member.cut;
        break;
      case 3:
        three.store.away = !three.store.away;
        break;
      case 4:
        three.store.lose_leases();
        break;
      case 5:
        three.store.hides_writes = !three.store.hides_writes;
        break;
      case 6:
        three.store.lose_data();
        lost_data = true;
        break;
      case 7:
        three.store.put("cluster", "junk");
        break;
      case 8:
        three.store.put("cluster", to_json(ClusterRecord{"test", kMostTermOfBackends}));
        break;
      case 9:
        three.store.put("leader", to_json(MemberRecord{{"a", "a:7000"}, "no process"}));
        break;
      default:
        break;
    }
    three.pass(milliseconds(700));
  }
  three.store.away = false;
  three.store.hides_writes = false;
  for (const std::string& name : names) {
    three.at(name).paused = three.at(name).cut = false;
    if (three.at(name).session == nullptr) three.start(name);
  }
  three.pass(seconds(8));
  look();
  RC_ASSERT(three.leaders().size() == 1U);
  RC_ASSERT(!three.at(three.leader()).doubtful);
}

TEST(Records, SurviveARoundTrip) {
  const auto cluster = parse_cluster(to_json(ClusterRecord{"prod", 77}));
  ASSERT_TRUE(cluster.ok());
  EXPECT_EQ(cluster.value().name, "prod");
  EXPECT_EQ(cluster.value().base, 77U);
  const auto member = parse_member(to_json(MemberRecord{{"f0", "h:7000", {}, "secret"}, "8"}));
  ASSERT_TRUE(member.ok());
  EXPECT_EQ(member.value().member, (Member{"f0", "h:7000", {}, "secret"}));
  EXPECT_EQ(member.value().incarnation, "8");
}

TEST(Records, RejectWhatTheyDoNotKnow) {
  for (const std::string& text :
       {std::string(), std::string("[]"), std::string("{"), std::string(R"({"format":2})"),
        std::string(R"({"format":1})"), std::string(R"({"format":1,"name":7,"base":1})"),
        std::string(R"({"format":1,"name":"x","base":-1,"incarnation":""})"),
        std::string(5000, '{'),
        std::string(R"({"format":1,"name":")") + std::string(300, 'n') + "\"}"}) {
    EXPECT_EQ(parse_cluster(text).status().code(), StatusCode::malformed) << text;
    EXPECT_EQ(parse_member(text).status().code(), StatusCode::malformed) << text;
  }
}

}  // namespace
}  // namespace gpulet::cluster
