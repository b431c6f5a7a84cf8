// Several frontends that own gpulets, as processes: what the death of one of them costs the others'
// requests.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <memory>

#include "gpulet/base/sha256.h"
#include "gpulet/serve/values/served_model.h"
#include "tests/conformance/http_client.h"
#include "tests/integration/cluster_of_processes.h"
#include "tests/support/cluster/stream_client.h"
#include "tests/support/store/object_server.h"
#include "tests/support/variable.h"

namespace gpulet::testing::owners_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kFrontends = ClusterOfProcesses::kFrontends;

// The frontend's clients for all models.
struct Clients {
  explicit Clients(std::uint16_t port) {
    for (const char* const model : ClusterOfProcesses::kModels) {
      clients.push_back(std::make_unique<StreamClient>(port));
      models.emplace_back(model);
    }
  }
  // Asks for each model in turn for that long. Counts the requests without a result in time, by
  // model.
  void ask_for(seconds length, Duration timeout, std::map<std::string, int>& failed) {
    const auto until = std::chrono::steady_clock::now() + length;
    while (std::chrono::steady_clock::now() < until) {
      for (std::size_t i = 0; i < models.size(); ++i) {
        InferRequest request = byte_request(models[i], ++tag);
        request.timeout = timeout;
        const auto reply = clients[i]->ask(request, seconds(15));
        ASSERT_TRUE(reply.has_value());
        if (!reply->status.ok()) ++failed[models[i]];
      }
    }
  }
  std::vector<std::unique_ptr<StreamClient>> clients;
  std::vector<std::string> models;
  std::uint64_t tag = 0;
};

class Owners : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(cluster_.all_serve());
    ASSERT_TRUE(cluster_.all_own());
    proxies_ = cluster_.proxies();
  }
  [[nodiscard]] static std::size_t number_of(const std::string& member) {
    return static_cast<std::size_t>(member.at(1) - '0');
  }
  ClusterOfProcesses cluster_;
  std::set<pid_t> proxies_;
};

TEST_F(Owners, AllFrontendsServeAllModels) {
  for (std::size_t i = 0; i < kFrontends; ++i) {
    for (const char* const model : ClusterOfProcesses::kModels)
      EXPECT_TRUE(cluster_.serves(i, model)) << i << " " << model;
    EXPECT_TRUE(comes_true([&] {
      const nlohmann::json status = cluster_.status(i);
      return status.is_object() && status.at("cluster").at("owned_gpulets") == 1;
    })) << i;
  }
}

TEST_F(Owners, StatisticsCountAllFrontends) {
  constexpr std::uint64_t kEach = 5;
  for (std::size_t i = 0; i < kFrontends; ++i) {
    for (std::uint64_t n = 0; n < kEach; ++n) EXPECT_TRUE(cluster_.serves(i, "c"));
  }
  for (std::size_t i = 0; i < kFrontends; ++i) {
    conformance::HttpConnection http(cluster_.ports(i).http);
    for (const char* const target : {"/v2/models/c/stats", "/v2/models/stats"}) {
      EXPECT_TRUE(comes_true([&] {
        const nlohmann::json answer = nlohmann::json::parse(http.get(target).body);
        for (const nlohmann::json& model : answer.at("model_stats")) {
          if (model.at("name") == "c") return model.at("inference_count") == kFrontends * kEach;
        }
        return false;
      })) << i
          << target;
    }
  }
}

// Requests for models of other owners have half a second, far less than an election takes.
TEST_F(Owners, TheDeathOfTheLeaderConcernsItsOwnModelsAlone) {
  const auto owners = cluster_.owners();
  const std::size_t leader = cluster_.leader();
  Clients clients(cluster_.ports((leader + 1) % kFrontends).clients);
  cluster_.end(leader, SIGKILL);
  std::map<std::string, int> failed;
  clients.ask_for(seconds(1), milliseconds(500), failed);
  for (const auto& [model, owner] : owners) {
    if (number_of(owner) == leader) continue;
    EXPECT_EQ(failed[model], 0) << model;
  }
  EXPECT_LT(cluster_.leader(), kFrontends);
  EXPECT_TRUE(cluster_.all_own());
  failed.clear();
  clients.ask_for(seconds(1), milliseconds(500), failed);
  EXPECT_TRUE(failed.empty());
  EXPECT_EQ(cluster_.proxies(), proxies_);
}

TEST_F(Owners, AKilledOwnerIsReplacedAndNoRequestFails) {
  const std::size_t leader = cluster_.leader();
  const std::size_t victim = (leader + 1) % kFrontends;
  Clients clients(cluster_.ports((leader + 2) % kFrontends).clients);
  cluster_.end(victim, SIGKILL);
  std::map<std::string, int> failed;
  clients.ask_for(seconds(2), {}, failed);
  EXPECT_TRUE(failed.empty());
  EXPECT_TRUE(cluster_.all_own());
  cluster_.start(victim);
  EXPECT_TRUE(cluster_.all_own());
  clients.ask_for(seconds(1), {}, failed);
  EXPECT_TRUE(failed.empty());
  EXPECT_EQ(cluster_.proxies(), proxies_);
}

TEST_F(Owners, AStoppedOwnerIsReplacedAndObeyedNoMore) {
  const std::size_t leader = cluster_.leader();
  const std::size_t victim = (leader + 1) % kFrontends;
  Clients clients(cluster_.ports((leader + 2) % kFrontends).clients);
  cluster_.signal(victim, SIGSTOP);
  std::map<std::string, int> failed;
  clients.ask_for(seconds(6), {}, failed);
  EXPECT_TRUE(failed.empty());
  const auto owners = cluster_.owners();
  for (const auto& [model, owner] : owners) EXPECT_NE(number_of(owner), victim) << model;
  cluster_.signal(victim, SIGCONT);
  clients.ask_for(seconds(1), {}, failed);
  EXPECT_TRUE(failed.empty());
  EXPECT_TRUE(cluster_.all_own());
  EXPECT_EQ(cluster_.proxies(), proxies_);
}

TEST_F(Owners, WithoutEtcdAndLeaderOwnersServeOn) {
  const auto owners = cluster_.owners();
  const std::size_t leader = cluster_.leader();
  cluster_.etcd().kill();
  cluster_.end(leader, SIGKILL);
  Clients clients(cluster_.ports((leader + 1) % kFrontends).clients);
  std::map<std::string, int> failed;
  clients.ask_for(seconds(4), milliseconds(200), failed);
  for (const auto& [model, owner] : owners)
    EXPECT_EQ(failed[model] == 0, number_of(owner) != leader) << model;
  cluster_.etcd().restart();
  EXPECT_LT(cluster_.leader(), kFrontends);
  EXPECT_TRUE(cluster_.all_serve());
  EXPECT_EQ(cluster_.proxies(), proxies_);
}

// The ids of the gpulets of each node that serve, as that frontend sees them.
std::map<std::string, std::set<std::uint64_t>> gpulets_of(const ClusterOfProcesses& cluster,
                                                          std::size_t frontend) {
  std::map<std::string, std::set<std::uint64_t>> found;
  const nlohmann::json status = cluster.status(frontend);
  if (!status.is_object()) return found;
  for (const nlohmann::json& node : status.at("nodes")) {
    for (const nlohmann::json& device : node.at("devices")) {
      for (const nlohmann::json& gpulet : device.at("gpulets")) {
        if (gpulet.at("state") == "ready")
          found[node.at("name")].insert(gpulet.at("id").get<std::uint64_t>());
      }
    }
  }
  return found;
}

// The old leader keeps one node, the other frontend and etcd have the other one. Each side serves
// with its own gpulets, and plans for no others.
TEST(NetworkSplit, LeavesNoGpuletToTwoFrontends) {
  constexpr std::size_t kNode = 0;
  ClusterOfProcesses cluster({.cuttable = true});
  ASSERT_TRUE(cluster.all_serve());
  ASSERT_TRUE(cluster.all_own());
  const std::size_t old_leader = cluster.leader();
  ASSERT_LT(old_leader, kFrontends);
  const std::size_t other = (old_leader + 1) % kFrontends;
  cluster.end((old_leader + 2) % kFrontends, SIGTERM);
  ASSERT_TRUE(cluster.all_own());
  const auto serves_all = [&cluster](std::size_t frontend) {
    for (const char* const model : ClusterOfProcesses::kModels) {
      if (!cluster.serves(frontend, model)) return false;
    }
    return true;
  };
  ASSERT_TRUE(comes_true([&] { return serves_all(old_leader) && serves_all(other); }));
  cluster.split(old_leader, kNode);
  const auto leads = [&cluster](std::size_t frontend) {
    const nlohmann::json status = cluster.status(frontend);
    return status.is_object() && status.at("cluster").at("leads") == true;
  };
  EXPECT_TRUE(comes_true([&] { return leads(other); }));
  EXPECT_TRUE(comes_true([&] { return serves_all(old_leader) && serves_all(other); }));
  // Polled: a frontend of a busy machine may not answer the first question in time.
  std::map<std::string, std::set<std::uint64_t>> kept;
  std::map<std::string, std::set<std::uint64_t>> taken;
  ASSERT_TRUE(comes_true([&] {
    kept = gpulets_of(cluster, old_leader);
    taken = gpulets_of(cluster, other);
    return kept.contains("n0") && taken.contains("n1");
  }));
  EXPECT_FALSE(kept.contains("n1"));
  EXPECT_FALSE(taken.contains("n0"));
  for (const std::uint64_t id : kept.at("n0")) EXPECT_FALSE(taken.at("n1").contains(id)) << id;
  EXPECT_EQ(cluster.proxies(kNode).size(), kept.at("n0").size());

  cluster.heal();
  EXPECT_TRUE(comes_true([&] { return !leads(old_leader); }));
  EXPECT_TRUE(comes_true([&] { return leads(other); }));
  EXPECT_TRUE(comes_true([&] {
    std::size_t gpulets = 0;
    for (const auto& [node, ids] : gpulets_of(cluster, other)) gpulets += ids.size();
    return gpulets > 0 && gpulets == cluster.proxies().size();
  })) << "every process is a gpulet of the leader's plan";
  EXPECT_TRUE(comes_true([&] { return serves_all(old_leader) && serves_all(other); }));
}

// Each frontend looks at the store at another time, and gpulets of all of them change.
TEST(OwnersOfRemoteModels, ANewVersionInTheStoreTakesOverAndNoRequestFails) {
  const support::Variable no_proxy("no_proxy", "127.0.0.1");
  ObjectServer store([](const ObjectRequest& request) {
    return serve_object({"first", "\"1\"", ""}, request);
  });
  ClusterOfProcesses::Options options;
  options.store = store.url("");
  ClusterOfProcesses cluster(options);
  ASSERT_TRUE(cluster.all_serve());
  ASSERT_TRUE(cluster.all_own());
  store.answer_with([](const ObjectRequest& request) {
    return serve_object({"second", "\"2\"", ""}, request);
  });
  const auto has_changed = [&](std::size_t frontend) {
    const auto models = load::fetch_models(cluster.target(frontend));
    return models.ok() && std::all_of(models.value().begin(), models.value().end(), [](auto& one) {
             return file_of_version(one.version) == sha256_of("second");
           });
  };
  // Far less than the time between the looks of two frontends.
  constexpr milliseconds kPatience(1000);
  Clients clients(cluster.ports(0).clients);
  std::map<std::string, int> failed;
  const auto all_have_changed = [&] { return has_changed(0) && has_changed(1) && has_changed(2); };
  for (int i = 0; i < 20 && !all_have_changed(); ++i)
    clients.ask_for(seconds(1), kPatience, failed);
  EXPECT_TRUE(all_have_changed());
  clients.ask_for(seconds(2), kPatience, failed);
  EXPECT_TRUE(failed.empty());
  for (std::size_t i = 0; i < kFrontends; ++i) {
    for (const char* const model : ClusterOfProcesses::kModels)
      EXPECT_TRUE(cluster.serves(i, model)) << i << " " << model;
  }
}

}  // namespace
}  // namespace gpulet::testing::owners_test
