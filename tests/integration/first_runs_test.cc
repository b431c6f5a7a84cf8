// A model that never ends its first run, with real daemons and processes.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/cluster/cluster.h"
#include "tests/support/cluster/stream_client.h"

namespace gpulet::testing::first_runs_test {
namespace {

using std::chrono::seconds;

constexpr Duration kLoadTimeout = seconds(4);

class FirstRunsTest : public ::testing::Test {
 protected:
  static ClusterChanges soon() {
    ClusterChanges changes;
    changes.frontend = [](config::FrontendConfig& config) { config.load_timeout = kLoadTimeout; };
    changes.backend = [](config::BackendConfig& config) { config.load_timeout = kLoadTimeout; };
    return changes;
  }
  FirstRunsTest() {
    cluster_.add_crashing_backend("n0");
    cluster_.add_crashing_backend("n1");
  }

  serve::ModelStatus model(const std::string& name) {
    const auto models = cluster_.status().models;
    const auto found = std::find_if(models.begin(), models.end(),
                                    [&name](const auto& one) { return one.name == name; });
    return found == models.end() ? serve::ModelStatus{} : *found;
  }
  // Asks model a for answers until the condition holds. Every one must come.
  void serve_until(const std::function<bool()>& condition, Duration patience) {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (!condition() && std::chrono::steady_clock::now() < end) {
      const auto reply = client_.ask(byte_request("a", next_tag()), seconds(10));
      ASSERT_TRUE(reply.has_value());
      EXPECT_TRUE(reply->status.ok()) << reply->status.to_string();
    }
    EXPECT_TRUE(condition());
  }

  // Without the low bytes that have a meaning to the proxies.
  std::uint64_t next_tag() {
    while ((++tag_ & 0xffU) >= 250) {
    }
    return tag_;
  }

  Cluster cluster_{{{"a", 4, 2000, 10}, {"b", 4, 2000, 10}, {"hangs", 4, 2000, 10}}, {}, soon()};
  StreamClient client_{cluster_.client_port()};
  std::uint64_t tag_ = 1;
};

TEST_F(FirstRunsTest, HoldsUpNeitherTheStartNorOtherChanges) {
  const auto wait_for = [this](const std::string& name) {
    const auto end = std::chrono::steady_clock::now() + seconds(20);
    while (model(name).state != ModelState::ready && std::chrono::steady_clock::now() < end)
      client_.run_until([] { return false; }, std::chrono::milliseconds(50));
    EXPECT_EQ(model(name).state, ModelState::ready) << name;
  };
  wait_for("a");
  serve_until([this] { return model("b").state == ModelState::ready; }, seconds(20));
  EXPECT_NE(model("hangs").state, ModelState::ready);
  serve_until([this] { return model("hangs").state == ModelState::unavailable; }, seconds(40));
  EXPECT_FALSE(model("hangs").reason.empty());

  const std::string before = model("b").version;
  std::ofstream(cluster_.setup().config.models.parent_path() / "b.pt") << "another network";
  serve_until([&] { return model("b").version != before; }, seconds(20));
  EXPECT_EQ(model("a").state, ModelState::ready);
}

}  // namespace
}  // namespace gpulet::testing::first_runs_test
