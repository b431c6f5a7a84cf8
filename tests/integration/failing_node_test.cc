// A node with a full disk beside a healthy node, with real daemons and a real file system.
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>

#include "gpulet/load/call.h"
#include "tests/support/cluster/cluster.h"
#include "tests/support/cluster/stream_client.h"
#include "tests/support/names.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using support::names;

// A file system of 100 KB.
class SmallDisk {
 public:
  SmallDisk() : mounted_(::mount("tmpfs", path().c_str(), "tmpfs", 0, "size=100k,mode=700") == 0) {}
  ~SmallDisk() {
    if (mounted_) ::umount2(path().c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  [[nodiscard]] bool mounted() const { return mounted_; }
  [[nodiscard]] std::string path() const { return folder_.path().string(); }

 private:
  support::TemporaryFolder folder_;
  bool mounted_;
};

class FailingNodeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!disk_.mounted()) GTEST_SKIP() << "this user cannot mount a file system";
  }

  // Writes a unique version of some hundred kilobytes among the model files.
  void write_large_file(const std::string& model, char fill) {
    const std::filesystem::path file =
        cluster_.setup().config.models.parent_path() / (model + ".pt");
    std::ofstream(file.string() + ".new") << std::string(400'000, fill);
    std::filesystem::rename(file.string() + ".new", file);
  }
  std::optional<ModelInfo> model(const std::string& name) {
    const auto models = load::fetch_models(target_);
    if (!models.ok()) return std::nullopt;
    const auto found = std::find_if(models.value().begin(), models.value().end(),
                                    [&name](const ModelInfo& one) { return one.name == name; });
    return found == models.value().end() ? std::nullopt : std::optional(*found);
  }
  // Sends load until the condition holds; fails after 20 seconds.
  void load_until(const std::function<bool()>& condition) {
    for (int i = 0; i < 100 && !condition(); ++i) {
      next_tag_ = client_->load(byte_request("a", 0), 60, milliseconds(200), next_tag_, next_tag_,
                                seconds(5));
    }
    ASSERT_TRUE(condition());
  }
  void expect_all_served() {
    client_->run_until([this] { return client_->replies().size() == next_tag_ - 1; }, seconds(5));
    for (std::uint64_t tag = 1; tag < next_tag_; ++tag) {
      ASSERT_TRUE(client_->replies().contains(tag)) << tag;
      ASSERT_EQ(client_->replies().at(tag).size(), 1U) << tag;
      EXPECT_TRUE(client_->replies().at(tag)[0].status.ok())
          << tag << ": " << client_->replies().at(tag)[0].status.to_string();
    }
  }

  SmallDisk disk_;
  Cluster cluster_{
      {{"a", 4, 2000, 40}}, {}, {.frontend = {}, .backend = [this](config::BackendConfig& config) {
                                   if (config.node == "full") config.model_store = disk_.path();
                                 }}};
  std::optional<StreamClient> client_;
  std::uint64_t next_tag_ = 1;
  const config::Endpoint endpoint_{"127.0.0.1", cluster_.client_port()};
  const load::Target target_{endpoint_};
};

TEST_F(FailingNodeTest, ANewVersionIsServedByTheHealthyNode) {
  cluster_.add_storing_backend("full");
  cluster_.wait_until_serving();  // its first file fits
  cluster_.add_storing_backend("healthy");
  client_.emplace(cluster_.client_port());
  const std::string before = model("a")->version;
  write_large_file("a", 'x');
  load_until([&] {
    const auto now = model("a");
    return now && now->version != before && now->state == ModelState::ready;
  });
  EXPECT_FALSE(model("a")->next_refused);
  write_large_file("a", 'y');
  const std::string second = model("a")->version;
  load_until([&] { return model("a")->version != second; });
  expect_all_served();
  for (const serve::GpuletStatus& gpulet : cluster_.status().gpulets) {
    if (!gpulet.planned) continue;
    EXPECT_EQ(gpulet.gpulet.device.node, "healthy");
  }
}

TEST_F(FailingNodeTest, TheOnlyNodeReportsItsErrorAndKeepsServing) {
  cluster_.add_storing_backend("full");
  cluster_.wait_until_serving();
  client_.emplace(cluster_.client_port());
  const std::string before = model("a")->version;
  write_large_file("a", 'x');
  load_until([&] { return !cluster_.status().exclusions.empty(); });
  const serve::Exclusion told = cluster_.status().exclusions.front();
  EXPECT_EQ(told.node, "full");
  EXPECT_EQ(told.cause, FailureCause::node_disk);
  EXPECT_TRUE(names(told.error, disk_.path()));
  EXPECT_FALSE(model("a")->next_refused);
  EXPECT_NE(model("a")->reason.find(disk_.path()), std::string::npos) << model("a")->reason;
  EXPECT_EQ(model("a")->version, before);
  const auto status = load::fetch_status(target_);
  ASSERT_TRUE(status.ok());
  EXPECT_NE(status.value().find(R"("ready":false)"), std::string::npos);
  expect_all_served();
}

}  // namespace
}  // namespace gpulet::testing
