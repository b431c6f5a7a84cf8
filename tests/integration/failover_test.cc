// Frontends of one cluster with etcd and backends, all as processes: the leader is killed, stopped
// and told to end, and etcd goes away and comes back.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "gpulet/profile/store.h"
#include "tests/support/cluster/stream_client.h"
#include "tests/support/process/process.h"
#include "tests/support/serve/world.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::testing::failover_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kFrontends = 3;

// etcd, three frontends f0 to f2, and the backends n0 and n1, which serve model a.
class Failover : public ::testing::Test {
 protected:
  Failover() {
    const auto written = profile::write_profile(serve::testing::card_profile({{"a", 4}}),
                                                folder_.path() / "profiles");
    if (!written.ok()) throw std::runtime_error(written.to_string());
    folder_.write("a.pt", "stands for model a");
    folder_.write("models.json", R"({"models":[{"name":"a","file":"a.pt","slo_ms":2000,"rate":20,
      "max_batch":16,"inputs":[{"name":"x","type":"UINT8","shape":[1]}],
      "outputs":[{"name":"y","type":"UINT8","shape":[1]}]}]})");
    nlohmann::json backend_ports = nlohmann::json::array();
    for (std::size_t i = 0; i < kFrontends; ++i) {
      ports_.push_back(free_port());
      backend_ports.push_back("127.0.0.1:" + std::to_string(free_port()));
      const std::string listen = "127.0.0.1:" + std::to_string(ports_[i]);
      const nlohmann::json config{{"listen", listen},
                                  {"backend_listen", backend_ports.back()},
                                  {"http", "off"},
                                  {"grpc", "off"},
                                  {"metrics", "off"},
                                  {"models", "models.json"},
                                  {"profiles", "profiles"},
                                  {"cluster",
                                   {{"name", "test"},
                                    {"member", "f" + std::to_string(i)},
                                    {"address", listen},
                                    {"etcd", {etcd_.endpoint()}},
                                    {"lease_s", 2}}}};
      files_.push_back(folder_.write("f" + std::to_string(i) + ".json", config.dump()));
      frontends_.push_back(start_daemon("gpulet-frontend", files_[i]));
    }
    for (const char* const node : {"n0", "n1"}) {
      const nlohmann::json config{
          {"node", node},
          {"frontends", backend_ports},
          {"model_store", std::string("store-") + node},
          {"profiles", "profiles"},
          {"warm_proxies", 0},
          {"devices", {{{"type", "card"}, {"count", 1}, {"partitioning", "simulated"}}}}};
      backends_.push_back(start_daemon("gpulet-backend",
                                       folder_.write(std::string(node) + ".json", config.dump())));
    }
  }

  // Whether that frontend answers a request with a result.
  [[nodiscard]] bool serves(std::size_t frontend) const {
    try {
      StreamClient client(ports_[frontend]);
      const auto reply = client.ask(byte_request("a", 1), seconds(2));
      return reply.has_value() && reply->status.ok();
    } catch (const std::exception&) {
      return false;  // it does not listen
    }
  }
  // The frontends that serve, of those that run.
  [[nodiscard]] std::vector<std::size_t> serving() const {
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < kFrontends; ++i) {
      if (frontends_[i] != nullptr && serves(i)) found.push_back(i);
    }
    return found;
  }
  // Waits until one serves, and returns it.
  [[nodiscard]] std::size_t leader() const {
    std::vector<std::size_t> found;
    EXPECT_TRUE(comes_true([&] { return (found = serving()).size() == 1; }));
    return found.empty() ? 0 : found[0];
  }
  // The processes of the gpulets.
  [[nodiscard]] std::set<pid_t> proxies() const {
    std::set<pid_t> all;
    for (const auto& backend : backends_) all.merge(backend->children());
    return all;
  }

  Etcd etcd_;
  support::TemporaryFolder folder_;
  std::vector<std::uint16_t> ports_;
  std::vector<std::filesystem::path> files_;
  std::vector<std::unique_ptr<Process>> backends_;
  std::vector<std::unique_ptr<Process>> frontends_;
};

TEST_F(Failover, AKilledLeaderIsReplacedAndTheProxiesStay) {
  const std::size_t first = leader();
  const std::set<pid_t> before = proxies();
  ASSERT_FALSE(before.empty());
  frontends_[first]->end(SIGKILL);
  frontends_[first].reset();
  const std::size_t second = leader();
  EXPECT_NE(second, first);
  EXPECT_EQ(proxies(), before);
  // The killed one returns and stands by.
  frontends_[first] = start_daemon("gpulet-frontend", files_[first]);
  const auto stands_by = [&] {
    try {
      StreamClient client(ports_[first]);
      const auto reply = client.ask(byte_request("a", 1), seconds(2));
      return reply && reply->status.code() == StatusCode::unavailable &&
             reply->status.message().find("f" + std::to_string(second)) != std::string::npos;
    } catch (const std::exception&) {
      return false;
    }
  };
  EXPECT_TRUE(comes_true(stands_by)) << "it names the leader";
  EXPECT_EQ(serving(), std::vector<std::size_t>{second});
}

TEST_F(Failover, AStoppedLeaderIsReplacedAndObeyedNoMore) {
  const std::size_t first = leader();
  const std::set<pid_t> before = proxies();
  frontends_[first]->signal(SIGSTOP);
  std::size_t second = first;
  ASSERT_TRUE(comes_true([&] {
    for (std::size_t i = 0; i < kFrontends && second == first; ++i) {
      if (i != first && serves(i)) second = i;
    }
    return second != first;
  }));
  frontends_[first]->signal(SIGCONT);
  EXPECT_TRUE(comes_true([&] { return !serves(first); }));
  EXPECT_EQ(leader(), second);
  EXPECT_EQ(proxies(), before);
}

TEST_F(Failover, ALeaderThatEndsHandsOver) {
  const std::size_t first = leader();
  const std::set<pid_t> before = proxies();
  frontends_[first]->end(SIGTERM);
  frontends_[first].reset();
  EXPECT_NE(leader(), first);
  EXPECT_EQ(proxies(), before);
}

TEST_F(Failover, WithoutEtcdServingGoesOn) {
  const std::size_t first = leader();
  const std::set<pid_t> before = proxies();
  StreamClient client(ports_[first]);
  etcd_.kill();
  // Longer than the lease of two seconds.
  const auto until = std::chrono::steady_clock::now() + seconds(5);
  std::uint64_t tag = 1;
  while (std::chrono::steady_clock::now() < until) {
    const auto reply = client.ask(byte_request("a", ++tag), seconds(2));
    ASSERT_TRUE(reply.has_value());
    ASSERT_TRUE(reply->status.ok()) << reply->status.to_string();
  }
  etcd_.restart();
  EXPECT_TRUE(comes_true([&] { return etcd_.control({"get", "/gpulet/test/leader"}); }));
  EXPECT_EQ(serving().size(), 1U);
  etcd_.wipe();
  EXPECT_TRUE(comes_true([&] { return serving().size() == 1; }));
  EXPECT_EQ(proxies(), before);
}

}  // namespace
}  // namespace gpulet::testing::failover_test
