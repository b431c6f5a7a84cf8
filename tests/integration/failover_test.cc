// Frontends of one cluster: the leader is killed, stopped and told to end, and etcd goes away and
// comes back. Every frontend takes every request.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>

#include "gpulet/load/call.h"
#include "tests/integration/cluster_of_processes.h"
#include "tests/support/cluster/stream_client.h"

namespace gpulet::testing::failover_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class Failover : public ::testing::Test {
 protected:
  ClusterOfProcesses cluster_;
};

TEST_F(Failover, EveryFrontendServesAndOneLeads) {
  ASSERT_TRUE(cluster_.all_serve());
  const std::size_t leader = cluster_.leader();
  for (std::size_t i = 0; i < ClusterOfProcesses::kFrontends; ++i) {
    // A follower learns the states of the models within a tick.
    EXPECT_TRUE(comes_true([&] {
      const nlohmann::json status = cluster_.status(i);
      return status.is_object() && status.at("cluster").at("leads") == (i == leader) &&
             status.at("frontend").at("state") == (i == leader ? "serving" : "forwarding") &&
             status.at("models").at(0).at("state") == "ready";
    })) << i;
  }
}

TEST_F(Failover, AKilledLeaderIsReplacedAndTheProxiesStay) {
  ASSERT_TRUE(cluster_.all_serve());
  const std::size_t first = cluster_.leader();
  const std::set<pid_t> before = cluster_.proxies();
  ASSERT_FALSE(before.empty());
  // Requests to another frontend wait for the next leader: none fails.
  const std::size_t entry = (first + 1) % ClusterOfProcesses::kFrontends;
  StreamClient client(cluster_.ports(entry).clients);
  InferRequest request = byte_request("a", 1);
  client.send(request);
  cluster_.end(first, SIGKILL);
  // Fewer than the model's configured rate, so that no plan moves gpulets.
  client.load(request, 10, seconds(4), 2, 7, seconds(12));
  for (const auto& [tag, replies] : client.replies()) {
    ASSERT_EQ(replies.size(), 1U) << tag;
    EXPECT_TRUE(replies[0].status.ok()) << replies[0].status.to_string();
  }
  EXPECT_NE(cluster_.leader(), first);
  EXPECT_EQ(cluster_.proxies(), before);
  // The killed one returns and forwards.
  cluster_.start(first);
  EXPECT_TRUE(cluster_.all_serve());
  EXPECT_NE(cluster_.leader(), first);
}

TEST_F(Failover, AStoppedLeaderIsReplacedAndObeyedNoMore) {
  ASSERT_TRUE(cluster_.all_serve());
  const std::size_t first = cluster_.leader();
  const std::set<pid_t> before = cluster_.proxies();
  cluster_.signal(first, SIGSTOP);
  const std::size_t second = cluster_.leader();
  EXPECT_NE(second, first);
  EXPECT_TRUE(comes_true([&] { return cluster_.serves(second); }));
  cluster_.signal(first, SIGCONT);
  EXPECT_TRUE(comes_true([&] {
    const nlohmann::json status = cluster_.status(first);
    return status.is_object() && status.at("cluster").at("leads") == false;
  }));
  EXPECT_TRUE(cluster_.all_serve());
  EXPECT_EQ(cluster_.leader(), second);
  EXPECT_EQ(cluster_.proxies(), before);
}

TEST_F(Failover, ALeaderThatEndsHandsOver) {
  ASSERT_TRUE(cluster_.all_serve());
  const std::size_t first = cluster_.leader();
  const std::set<pid_t> before = cluster_.proxies();
  cluster_.end(first, SIGTERM);
  EXPECT_NE(cluster_.leader(), first);
  EXPECT_TRUE(cluster_.all_serve());
  EXPECT_EQ(cluster_.proxies(), before);
}

TEST_F(Failover, AModelLoadedThroughAnyFrontendIsServedByAll) {
  ASSERT_TRUE(cluster_.all_serve());
  const std::size_t leader = cluster_.leader();
  const std::size_t one = (leader + 1) % ClusterOfProcesses::kFrontends;
  const std::size_t other = (leader + 2) % ClusterOfProcesses::kFrontends;
  const auto listed = [&](std::size_t frontend) {
    const auto models = load::fetch_models(cluster_.target(frontend));
    return models.ok() && std::any_of(models.value().begin(), models.value().end(),
                                      [](const ModelInfo& model) { return model.name == "b"; });
  };
  const ModelsChange change = cluster_.load_of("b");
  const auto changed = load::change_models(cluster_.target(one), change, seconds(20));
  ASSERT_TRUE(changed.ok()) << changed.status().to_string();
  EXPECT_EQ(changed.value().at(0).name, "b");
  for (std::size_t i = 0; i < ClusterOfProcesses::kFrontends; ++i) {
    EXPECT_TRUE(listed(i)) << "as soon as the change is made: " << i;
    EXPECT_TRUE(comes_true([&] { return cluster_.serves(i, "b"); })) << i;
  }
  // A frontend that restarts learns it from the others, and so does the next leader.
  cluster_.end(other, SIGTERM);
  cluster_.start(other);
  EXPECT_TRUE(comes_true([&] { return cluster_.serves(other, "b"); }));
  cluster_.end(leader, SIGKILL);
  EXPECT_LT(cluster_.leader(), ClusterOfProcesses::kFrontends);
  EXPECT_TRUE(comes_true([&] { return cluster_.serves(other, "b"); }));

  ModelsChange unload;
  unload.kind = ModelsChange::Kind::unload;
  unload.name = "b";
  const auto unloaded = load::change_models(cluster_.target(other), unload, seconds(20));
  EXPECT_TRUE(unloaded.ok()) << unloaded.status().to_string();
  EXPECT_TRUE(comes_true([&] { return !listed(one) && !listed(other); }));
  const auto again = load::change_models(cluster_.target(one), unload, seconds(20));
  EXPECT_EQ(again.status().code(), StatusCode::not_found);
}

// A file that only one machine has reaches the others by its content.
TEST(ModelFiles, TravelBetweenFrontends) {
  constexpr std::size_t kWithFile = 1;
  ClusterOfProcesses cluster({.files_at = kWithFile});
  ASSERT_TRUE(cluster.all_serve());
  const ModelsChange change = cluster.load_of("b");
  if (cluster.leader() != kWithFile) {
    const auto from_without = load::change_models(cluster.target(0), change, seconds(20));
    EXPECT_FALSE(from_without.ok()) << "neither f0 nor the leader has the file";
  }
  const auto changed = load::change_models(cluster.target(kWithFile), change, seconds(20));
  ASSERT_TRUE(changed.ok()) << changed.status().to_string();
  const auto all_serve_b = [&] {
    for (std::size_t i = 0; i < ClusterOfProcesses::kFrontends; ++i) {
      if (!cluster.serves(i, "b")) return false;
    }
    return true;
  };
  EXPECT_TRUE(comes_true(all_serve_b));
  // Without the machine that had it, too: a frontend that restarts, and any leader.
  cluster.end(kWithFile, SIGKILL);
  const std::size_t leader = cluster.leader();
  ASSERT_LT(leader, ClusterOfProcesses::kFrontends);
  const std::size_t other = 2 - leader;
  cluster.end(other, SIGTERM);
  cluster.start(other);
  EXPECT_TRUE(comes_true([&] { return cluster.serves(other, "b"); }));
  cluster.end(leader, SIGTERM);
  EXPECT_EQ(cluster.leader(), other);
  EXPECT_TRUE(comes_true([&] { return cluster.serves(other, "b"); }));
}

TEST_F(Failover, WithoutEtcdServingGoesOn) {
  ASSERT_TRUE(cluster_.all_serve());
  const std::size_t leader = cluster_.leader();
  const std::set<pid_t> before = cluster_.proxies();
  StreamClient to_leader(cluster_.ports(leader).clients);
  StreamClient to_other(cluster_.ports((leader + 1) % ClusterOfProcesses::kFrontends).clients);
  cluster_.etcd().kill();
  // Longer than the lease of two seconds.
  const auto until = std::chrono::steady_clock::now() + seconds(5);
  std::uint64_t tag = 1;
  while (std::chrono::steady_clock::now() < until) {
    for (StreamClient* const client : {&to_leader, &to_other}) {
      const auto reply = client->ask(byte_request("a", ++tag), seconds(2));
      ASSERT_TRUE(reply.has_value());
      ASSERT_TRUE(reply->status.ok()) << reply->status.to_string();
    }
  }
  cluster_.etcd().restart();
  EXPECT_TRUE(comes_true([&] { return cluster_.etcd().control({"get", "/gpulet/test/leader"}); }));
  EXPECT_TRUE(cluster_.all_serve());
  cluster_.etcd().wipe();
  EXPECT_LT(cluster_.leader(), ClusterOfProcesses::kFrontends);
  EXPECT_TRUE(cluster_.all_serve());
  EXPECT_EQ(cluster_.proxies(), before);
}

}  // namespace
}  // namespace gpulet::testing::failover_test
