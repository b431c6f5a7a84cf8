// Several frontends that own gpulets, in virtual time.
#include "serve/cluster/ownership.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "gpulet/protocol/codec.h"
#include "tests/support/serve/frontend_parts.h"
#include "tests/support/serve/traffic.h"

namespace gpulet::serve::ownership_test {
namespace {

using testing::at_s;
using testing::byte_model;
using testing::card_profile;
using testing::World;

constexpr std::size_t kFrontends = 3;

struct Workload {
  std::vector<std::string> models = {"a", "b", "c", "d", "e", "f"};
  double rate = 5;  // requests per second for each model
  double max_group_rate = 1000;
  std::size_t least_kept_payload = kLeastKeptPayload;
  std::int64_t input_bytes = 1;
};
// The same with the payloads, of one byte, at their entries.
Workload kept(Workload workload) {
  workload.least_kept_payload = 1;
  return workload;
}
// One model, whose gpulets are those of two owners.
const Workload kHotModel = {{"a"}, 80, 30};
// Plans quickly: for properties.
const Workload kThreeModels = {{"a", "b", "c"}, 5};

FrontendOptions member(std::uint64_t run, const Workload& workload) {
  FrontendOptions options;
  options.clustered = true;
  options.member = "f0";
  options.run = run;
  options.policy = "elastic";
  options.headroom = schedule::Headroom::none;
  options.owner_settling = std::chrono::seconds(1);
  options.max_group_rate = workload.max_group_rate;
  options.least_kept_payload = workload.least_kept_payload;
  return options;
}

std::vector<ServedModel> models(const Workload& workload) {
  std::vector<ServedModel> made;
  for (const std::string& name : workload.models) {
    ServedModel model = byte_model(name, 100, workload.rate);
    model.inputs[0].shape = {workload.input_bytes};
    model.outputs[0].shape = {workload.input_bytes};
    made.push_back(with_sizes(model).value());
  }
  return made;
}

// Frontends f0, f1 and f2, of which f0 leads; nodes n0 and n1 with twelve devices each; models
// whose objectives do not let them share a gpulet.
struct Cluster {
  explicit Cluster(Workload chosen = {}) : workload(std::move(chosen)) {
    for (std::uint64_t run = 2; run <= kFrontends; ++run)
      world.cluster().add_frontend(member(run, workload));
    world.add_backend("n0", 12);
    world.add_backend("n1", 12);
    lead(0);
    world.cluster().use_all_entries();
  }

  void lead(std::size_t frontend) {
    leader = frontend;
    world.cluster().inject(LeadershipWon{{++term}}, frontend);
    for (std::size_t other = 0; other < kFrontends; ++other) {
      if (other != frontend && !dead.contains(other))
        world.cluster().inject(LeadershipLost{"f" + std::to_string(frontend), "host:7000"}, other);
    }
  }
  // Its clients have gone to another one before.
  void kill(std::size_t frontend, std::size_t entry) {
    world.cluster().set_entry(entry);
    world.run_until(world.now() + std::chrono::milliseconds(200));
    dead.insert(frontend);
    world.cluster().kill_frontend(frontend);
  }
  // Requests for all models in turn in [from, to).
  void load(double from_s, double to_s) {
    const std::vector<std::string>& names = workload.models;
    const Duration step = from_seconds(1 / workload.rate / static_cast<double>(names.size()));
    const Time from = at_s(0) + from_seconds(from_s);
    for (Time time = from; time < at_s(0) + from_seconds(to_s); time += step) {
      ++sent;
      world.request_at(time, names[sent % names.size()], sent);
    }
  }
  [[nodiscard]] std::map<StatusCode, std::size_t> codes() const {
    std::map<StatusCode, std::size_t> count;
    for (const auto& [tag, replies] : world.replies()) ++count[replies.front().reply.status.code()];
    return count;
  }
  [[nodiscard]] std::size_t failed() const { return sent - codes()[StatusCode::ok]; }
  [[nodiscard]] FrontendStatus status(std::size_t frontend) {
    return world.cluster().frontend(frontend).status(world.now());
  }
  // The member that serves each model, as the leader says it.
  [[nodiscard]] std::map<std::string, std::string> owners() {
    std::map<std::string, std::string> found;
    for (const ModelStatus& one : status(leader).models)
      found[one.name] = one.owner.empty() ? "f" + std::to_string(leader) : one.owner;
    return found;
  }
  [[nodiscard]] std::set<std::string> owning() {
    std::set<std::string> found;
    for (const auto& [model, owner] : owners()) found.insert(owner);
    return found;
  }
  // Processes answer with a request's own input.
  [[nodiscard]] bool each_was_answered_once() const {
    const auto answered_once = [](const auto& one) {
      const auto& [tag, replies] = one;
      if (replies.size() != 1) return false;
      const InferReply& reply = replies.front().reply;
      return !reply.status.ok() ||
             reply.payload.at(0).view()[0] == static_cast<std::byte>(tag & 0xffU);
    };
    return world.replies().size() == sent &&
           std::all_of(world.replies().begin(), world.replies().end(), answered_once);
  }

  Workload workload;
  World world{member(1, workload), models(workload),
              card_profile({{"a", 40}, {"b", 40}, {"c", 40}, {"d", 40}, {"e", 40}, {"f", 40}})};
  std::size_t leader = 0;
  std::uint64_t term = 0;
  std::set<std::size_t> dead;
  std::uint64_t sent = 0;
};

// The leader would not see its end.
TEST(Ownership, AMemberThatTheLeaderIsNotConnectedToOwnsNothing) {
  Cluster cluster;
  cluster.load(2, 20);
  cluster.world.run_until(at_s(10));
  ASSERT_TRUE(cluster.owning().contains("f1"));
  cluster.world.cluster().inject(PeerDisconnected{"f1"}, 0);
  cluster.world.run_until(at_s(15));  // f1 goes on reporting
  EXPECT_EQ(cluster.owning(), (std::set<std::string>{"f0", "f2"}));
  cluster.world.run_until(at_s(22));
  EXPECT_TRUE(cluster.each_was_answered_once());
  EXPECT_EQ(cluster.failed(), 0U);
}

TEST(Ownership, EachFrontendOwnsAPartAndNoRequestFails) {
  Cluster cluster;
  cluster.load(2, 20);
  cluster.world.run_until(at_s(22));
  EXPECT_EQ(cluster.owning(), (std::set<std::string>{"f0", "f1", "f2"}));
  EXPECT_TRUE(cluster.each_was_answered_once());
  EXPECT_EQ(cluster.failed(), 0U);
  // Each queued requests itself, and the leader knows of all.
  std::uint64_t queued_by_others = 0;
  for (std::size_t i = 1; i < kFrontends; ++i) {
    for (const ModelStatus& one : cluster.status(i).models) queued_by_others += one.counters.served;
    EXPECT_GT(queued_by_others, 50U);
  }
  std::uint64_t known = 0;
  for (const ModelStatus& one : cluster.status(0).models) {
    known += one.counters.served + one.elsewhere.served;
    EXPECT_GT(one.p50_ms, 0);
  }
  EXPECT_EQ(known, cluster.sent);
  std::uint64_t batches = 0;
  for (const GpuletStatus& one : cluster.status(0).gpulets) batches += one.statistics.requests;
  EXPECT_GT(batches, cluster.sent / 2);
}

TEST(Ownership, OwnersDivideTheRequestsOfAHotModel) {
  Cluster cluster(kHotModel);
  cluster.load(3, 20);
  cluster.world.run_until(at_s(22));
  EXPECT_TRUE(cluster.each_was_answered_once());
  EXPECT_EQ(cluster.failed(), 0U);
  const ModelStatus model = cluster.status(0).models.front();
  EXPECT_EQ(model.owners.size(), 2U);
  EXPECT_EQ(model.counters.offered + model.elsewhere.offered, cluster.sent)
      << "each request counts once";
  for (std::size_t owner = 1; owner < kFrontends; ++owner)
    EXPECT_GT(cluster.status(owner).models.front().counters.served, cluster.sent / 3);
}

TEST(Ownership, TheOtherOwnerOfAHotModelServesAllOfItAfterADeath) {
  Cluster cluster(kHotModel);
  cluster.load(3, 20);
  cluster.world.run_until(at_s(10));
  cluster.kill(2, 1);
  cluster.world.run_until(at_s(22));
  EXPECT_TRUE(cluster.each_was_answered_once());
  // The first requests after the death wait until it is noticed, in part beyond their objective.
  for (const auto& [tag, replies] : cluster.world.replies()) {
    const Status& status = replies.front().reply.status;
    const double sent_at_s = 3 + static_cast<double>(tag) / kHotModel.rate;
    EXPECT_TRUE(status.ok() || (is_drop(status.code()) && sent_at_s > 10 && sent_at_s < 12))
        << sent_at_s << " s: " << status.message();
  }
  EXPECT_EQ(cluster.owning().size(), 1U);
  EXPECT_TRUE(cluster.status(0).models.front().owners.empty());
}

TEST(Ownership, TheLeaderPlansForTheRatesOfAllOwners) {
  Cluster cluster;
  cluster.load(2, 12);
  for (int i = 0; i < 3; ++i) cluster.load(8, 30);  // four times the rate from 8 s on
  cluster.world.run_until(at_s(12));
  for (const ModelStatus& one : cluster.status(0).models)
    EXPECT_GT(one.rate_planned, 1.4 * cluster.workload.rate) << one.name << " of " << one.owner;
  cluster.world.run_until(at_s(32));
  EXPECT_TRUE(cluster.each_was_answered_once());
}

TEST(Ownership, AnOwnersDeathConcernsItsOwnRequestsAlone) {
  Cluster cluster;
  cluster.load(2, 10);
  cluster.world.run_until(at_s(10));
  ASSERT_TRUE(cluster.owning().contains("f2"));
  cluster.load(10, 16);
  cluster.kill(2, 1);
  cluster.world.run_until(at_s(18));
  EXPECT_EQ(cluster.owning(), (std::set<std::string>{"f0", "f1"}));
  EXPECT_EQ(cluster.failed(), 0U) << "requests waited for the next owner";
  EXPECT_TRUE(cluster.each_was_answered_once());
}

TEST(Ownership, WithoutALeaderOwnersServeOn) {
  Cluster cluster;
  cluster.load(2, 10);
  cluster.world.run_until(at_s(10));
  const auto owners = cluster.owners();
  const std::vector<std::string>& names = cluster.workload.models;
  std::set<std::string> of_the_leader;
  for (const auto& [model, owner] : owners) {
    if (owner == "f0") of_the_leader.insert(model);
  }
  ASSERT_FALSE(of_the_leader.empty());
  ASSERT_LT(of_the_leader.size(), names.size());
  cluster.kill(0, 1);
  for (std::size_t other : {1U, 2U}) cluster.world.cluster().inject(LeadershipLost{}, other);
  const std::uint64_t first = cluster.sent + 1;
  cluster.load(10.5, 12);
  cluster.world.run_until(at_s(12) + std::chrono::milliseconds(100));
  for (std::uint64_t tag = first; tag <= cluster.sent; ++tag) {
    const bool answered = cluster.world.replies().contains(tag);
    EXPECT_EQ(answered, !of_the_leader.contains(names[tag % names.size()])) << tag;
  }
  cluster.lead(1);
  cluster.world.run_until(at_s(16));
  EXPECT_EQ(cluster.failed(), 0U);
  EXPECT_TRUE(cluster.each_was_answered_once());
  EXPECT_EQ(cluster.owning(), (std::set<std::string>{"f1", "f2"}));
}

TEST(Ownership, AChangeOfTheLeaderLeavesTheOtherOwnersAlone) {
  Cluster cluster;
  cluster.load(2, 20);
  cluster.world.run_until(at_s(10));
  const auto before = cluster.owners();
  cluster.lead(1);
  cluster.world.run_until(at_s(10) + std::chrono::milliseconds(100));
  const auto after = cluster.owners();
  for (const auto& [model, owner] : before) {
    if (owner != "f2") continue;
    EXPECT_EQ(after.at(model), "f2") << model;
  }
  cluster.world.run_until(at_s(22));
  EXPECT_EQ(cluster.failed(), 0U);
  EXPECT_TRUE(cluster.each_was_answered_once());
}

TEST(Ownership, AFrontendThatDrainsHandsItsGpuletsOver) {
  Cluster cluster;
  cluster.load(2, 14);
  cluster.world.run_until(at_s(10));
  ASSERT_TRUE(cluster.owning().contains("f1"));
  cluster.world.cluster().inject(Drain{true, at_s(11)}, 1);
  cluster.world.run_until(at_s(10) + std::chrono::milliseconds(50));
  EXPECT_FALSE(cluster.owning().contains("f1"));
  cluster.world.run_until(at_s(16));
  EXPECT_TRUE(cluster.world.drained());
  EXPECT_EQ(cluster.failed(), 0U);
  EXPECT_TRUE(cluster.each_was_answered_once());
}

TEST(Ownership, AnOwnerThatLosesANodeLosesItsGpuletsThere) {
  Cluster cluster;
  cluster.load(2, 25);
  cluster.world.run_until(at_s(10));
  for (const std::string node : {"n0", "n1"}) cluster.world.cluster().cut(node, 2);
  cluster.world.run_until(at_s(15));
  EXPECT_FALSE(cluster.owning().contains("f2"));
  for (const std::string node : {"n0", "n1"}) cluster.world.cluster().heal(node, 2);
  cluster.world.run_until(at_s(27));
  EXPECT_TRUE(cluster.owning().contains("f2"));
  EXPECT_TRUE(cluster.each_was_answered_once());
  // What was in flight over the cut connections is late, what arrived later is not.
  EXPECT_LT(cluster.failed(), cluster.sent / 20);
}

// A version that changes is the leader's business; the owner hands its requests on.
TEST(Ownership, ANewVersionTakesOverWithoutAFailure) {
  Cluster cluster;
  cluster.load(2, 20);
  cluster.world.run_until(at_s(10));
  const auto before = cluster.owners();
  std::vector<ServedModel> changed = models(cluster.workload);
  const auto model = std::find_if(changed.begin(), changed.end(), [&](const ServedModel& one) {
    return before.at(one.name) != "f0";
  });
  ASSERT_NE(model, changed.end());
  model->sha256 = std::string(64, '7');
  cluster.world.change_models_at(at_s(10), changed);
  cluster.world.run_until(at_s(22));
  EXPECT_EQ(cluster.failed(), 0U);
  EXPECT_TRUE(cluster.each_was_answered_once());
  EXPECT_EQ(cluster.world.model(model->name).version, version_of(*model));
}

TEST(Ownership, OnlyTheLeaderTellsRoutes) {
  Cluster cluster;
  cluster.load(2, 14);
  cluster.world.run_until(at_s(10));
  const std::size_t owned = cluster.status(1).owned_gpulets;
  ASSERT_GT(owned, 0U);
  const SetRoutes nothing{{1'000'000}, {{"n0", {}}, {"n1", {}}}};
  cluster.world.cluster().inject(RoutesReceived{"f2", nothing}, 1);
  EXPECT_EQ(cluster.status(1).owned_gpulets, owned);
  cluster.world.run_until(at_s(16));
  EXPECT_EQ(cluster.failed(), 0U);
}

// A member whose routes were believed while it led, or that nobody elected, decides nothing for the
// next leader: neither by a term that no other can exceed, nor while nobody leads.
TEST(Ownership, AnImpossibleTermOutlivesNoLeader) {
  Cluster cluster;
  cluster.load(2, 14);
  cluster.world.run_until(at_s(8));
  const SetRoutes nothing{{~std::uint64_t{0}}, {{"n0", {}}, {"n1", {}}}};
  cluster.world.cluster().inject(LeadershipLost{}, 1);
  cluster.world.cluster().inject(RoutesReceived{"f2", nothing}, 1);
  cluster.world.run_until(at_s(9));
  EXPECT_GT(cluster.status(1).owned_gpulets, 0U) << "nobody leads";
  cluster.world.cluster().inject(LeadershipLost{"f2", "host:7000"}, 1);
  cluster.world.cluster().inject(RoutesReceived{"f2", nothing}, 1);
  cluster.world.run_until(at_s(9) + std::chrono::milliseconds(100));
  EXPECT_EQ(cluster.status(1).owned_gpulets, 0U);
  // The right leader is known again. It repeats its routes when the connection is made again.
  cluster.world.cluster().inject(LeadershipLost{"f0", "host:7000"}, 1);
  cluster.world.cluster().inject(PeerDisconnected{"f1"}, 0);
  cluster.world.cluster().inject(PeerConnected{"f1", kProtocolLevel}, 0);
  cluster.world.run_until(at_s(16));
  EXPECT_GT(cluster.status(1).owned_gpulets, 0U);
}

// What frontends send for requests that are forwarded.
struct Traffic {
  explicit Traffic(Cluster& cluster) {
    cluster.world.observe([this](const FrontendEvent& event, Time, const FrontendEffects& effects) {
      const auto* const message = std::get_if<BackendMessageReceived>(&event);
      if (message != nullptr && std::holds_alternative<BatchResult>(message->message))
        owner_bytes += protocol::encode(message->message).head.size();
      for (const FrontendEffect& effect : effects)
        std::visit([&](auto& one) { count(one); }, effect);
    });
  }
  void count(const SendToPeer& effect) {
    const auto* const forward = std::get_if<Forward>(&effect.message);
    if (forward == nullptr) return;
    ++forwards;
    with_payload += forward->kept_bytes == 0 ? 1 : 0;
    owner_bytes += protocol::encode(effect.message).byte_size();
  }
  void count(const AskForRows& effect) {
    owner_bytes += protocol::encode(PeerReply(effect.wanted)).byte_size();
  }
  void count(const SendToBackend& effect) {
    if (std::holds_alternative<Batch>(effect.command))
      owner_bytes += protocol::encode(effect.command).byte_size();
    if (const auto* const rows = std::get_if<Rows>(&effect.command))
      rows_sent += rows->present.size();
  }
  void count(const ReplyToClient& effect) {
    if (effect.client == ClientId{1}) return;  // not another frontend
    owner_bytes += protocol::encode(PeerReply(ForwardReply{effect.reply})).head.size();
  }
  void count(const ReplyElsewhere& effect) { needed += effect.payload_needed ? 1 : 0; }
  void count(const auto& /*other*/) {}

  std::uint64_t forwards = 0;
  std::uint64_t with_payload = 0;
  std::uint64_t rows_sent = 0;
  std::uint64_t needed = 0;  // payloads that owners asked for
  // Through owners, without the outputs.
  std::uint64_t owner_bytes = 0;
};

TEST(Ownership, PayloadsGoFromTheEntryToTheNode) {
  Cluster cluster(kept({}));
  Traffic traffic(cluster);
  cluster.load(2, 20);
  cluster.world.run_until(at_s(22));
  EXPECT_TRUE(cluster.each_was_answered_once());
  EXPECT_EQ(cluster.failed(), 0U);
  EXPECT_GT(traffic.forwards, cluster.sent / 2);
  // A request whose batch must start at once may be too late for its payload.
  EXPECT_LT(traffic.needed, traffic.forwards / 50);
  EXPECT_EQ(traffic.with_payload, traffic.needed);
  EXPECT_GE(traffic.rows_sent + traffic.with_payload, traffic.forwards);
}

TEST(Ownership, ARequestTakesFewBytesOfItsOwnerWhateverItsPayload) {
  constexpr std::uint64_t kMostOwnerBytes = 2048;
  std::set<std::uint64_t> seen;
  for (const std::int64_t bytes : {20'000, 600'000}) {
    Workload workload;
    workload.input_bytes = bytes;
    Cluster cluster(workload);
    cluster.world.cluster().set_entry(0);
    cluster.world.run_until(at_s(8));
    const auto owners = cluster.owners();
    const auto of_another = std::find_if(owners.begin(), owners.end(),
                                         [](const auto& one) { return one.second != "f0"; });
    ASSERT_NE(of_another, owners.end());
    Traffic traffic(cluster);
    constexpr std::uint64_t kRequests = 20;
    for (std::uint64_t tag = 1; tag <= kRequests; ++tag) {
      InferRequest request;
      request.tag = tag;
      request.model = of_another->first;
      request.inputs = models(workload)[0].inputs;
      request.payload = Bytes::own(
          std::vector<std::byte>(static_cast<std::size_t>(bytes), static_cast<std::byte>(tag)));
      cluster.world.cluster().inject(RequestReceived{ClientId{1}, std::move(request)});
      cluster.world.run_until(cluster.world.now() + std::chrono::milliseconds(200));
      ++cluster.sent;
    }
    EXPECT_TRUE(cluster.each_was_answered_once());
    EXPECT_EQ(cluster.failed(), 0U);
    EXPECT_EQ(traffic.forwards, kRequests);
    EXPECT_EQ(traffic.rows_sent, kRequests);
    EXPECT_LT(traffic.owner_bytes, kMostOwnerBytes * kRequests);
    seen.insert(traffic.owner_bytes / kRequests);
  }
  EXPECT_LT(*seen.rbegin() - *seen.begin(), 8U) << "it does not grow with the payload";
}

// Its payloads are lost on the way to a node, and come through the owner instead.
TEST(Ownership, AnEntryThatANodeDoesNotHearIsServedAllTheSame) {
  Cluster cluster(kept({}));
  Traffic traffic(cluster);
  cluster.load(2, 30);
  cluster.world.run_until(at_s(10));
  cluster.world.cluster().set_entry(1);
  for (const std::string node : {"n0", "n1"}) cluster.world.cluster().cut(node, 1);
  cluster.world.run_until(at_s(32));
  EXPECT_TRUE(cluster.each_was_answered_once());
  EXPECT_GT(traffic.needed, 0U);
}

TEST(Ownership, PayloadsFollowTheirRequestsToTheNextOwner) {
  Cluster cluster(kept({}));
  Traffic traffic(cluster);
  cluster.load(2, 16);
  cluster.world.run_until(at_s(10));
  ASSERT_TRUE(cluster.owning().contains("f2"));
  cluster.kill(2, 1);
  cluster.world.run_until(at_s(18));
  EXPECT_EQ(cluster.failed(), 0U);
  EXPECT_TRUE(cluster.each_was_answered_once());
  EXPECT_LT(traffic.with_payload, traffic.forwards / 20);
}

// Any order of deaths, elections, pauses and cuts. The clients are connected to f0, which lives.
RC_GTEST_PROP(Ownership, EveryRequestIsAnsweredOnceWhateverFails, ()) {
  const bool hot = *rc::gen::inRange(0, 16) == 0;
  Workload workload = hot ? kHotModel : kThreeModels;
  if (*rc::gen::arbitrary<bool>()) workload = kept(workload);
  Cluster cluster(workload);
  cluster.world.cluster().set_entry(0);
  cluster.load(2, 26);
  const std::uint64_t first_after = cluster.sent + 1;
  cluster.load(26, 34);
  cluster.world.run_until(at_s(8));
  int second = 8;
  for (const int step : *rc::gen::container<std::vector<int>>(6, rc::gen::inRange(0, 7))) {
    const std::size_t which = *rc::gen::inRange<std::size_t>(0, kFrontends);
    if (cluster.dead.contains(which)) continue;
    switch (step) {
      case 0:
        cluster.lead(which);
        break;
      case 1:
        if (cluster.dead.empty() && which != cluster.leader && which != 0) cluster.kill(which, 0);
        break;
      case 2:
        cluster.world.cluster().pause_frontend(which);
        break;
      case 3:
        cluster.world.cluster().resume_frontend(which);
        break;
      case 4:
        cluster.world.cluster().cut("n0", which);
        break;
      case 5:
        cluster.world.cluster().heal("n0", which);
        break;
      default:
        cluster.world.kill_proxy("n1");
        break;
    }
    cluster.world.run_until(at_s(second += 2));
  }
  for (std::size_t one = 0; one < kFrontends; ++one) {
    if (cluster.dead.contains(one)) continue;
    cluster.world.cluster().resume_frontend(one);
    cluster.world.cluster().heal("n0", one);
  }
  cluster.lead(cluster.leader);
  cluster.world.run_until(at_s(36));
  RC_ASSERT(cluster.each_was_answered_once());
  // Once nothing fails any more, every request is served. The gpulets of the hot model may have
  // more than enough to do with requests that waited.
  for (std::uint64_t tag = first_after; tag <= cluster.sent; ++tag) {
    const Status& status = cluster.world.replies().at(tag).front().reply.status;
    RC_ASSERT(status.ok() || (hot && is_drop(status.code())));
  }
}

}  // namespace
}  // namespace gpulet::serve::ownership_test
