// Models that change under load, with real sockets, files and processes: a rewritten file, an
// invalid edit, and changes by command. No request is lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "gpulet/load/call.h"
#include "tests/support/cluster/cluster.h"
#include "tests/support/cluster/stream_client.h"
#include "tests/support/names.h"

namespace gpulet::testing {
namespace {

using serve::ModelStatus;
using std::chrono::seconds;
using support::names;

// Replaces a file atomically, as editors do.
void replace_file(const std::filesystem::path& file, const std::string& text) {
  const std::filesystem::path beside = file.string() + ".new";
  std::ofstream(beside) << text;
  std::filesystem::rename(beside, file);
}

std::string read_file(const std::filesystem::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

class ModelChangesTest : public ::testing::Test {
 protected:
  ModelChangesTest() {
    cluster_.add_backend("n0");
    cluster_.add_backend("n1");
    cluster_.wait_until_serving();
  }

  ModelStatus model(const std::string& name) {
    const serve::FrontendStatus status = cluster_.status();
    const auto found = std::find_if(status.models.begin(), status.models.end(),
                                    [&name](const ModelStatus& one) { return one.name == name; });
    return found == status.models.end() ? ModelStatus{} : *found;
  }
  // Sends load until the condition holds; fails after 20 seconds.
  void load_until(const std::function<bool()>& condition) {
    for (int i = 0; i < 100 && !condition(); ++i) {
      next_tag_ = client_.load(byte_request("a", 0), 60, std::chrono::milliseconds(200), next_tag_,
                               next_tag_, seconds(5));
    }
    ASSERT_TRUE(condition());
  }
  void expect_all_served() {
    client_.run_until([&] { return client_.replies().contains(next_tag_ - 1); }, seconds(5));
    for (std::uint64_t tag = 1; tag < next_tag_; ++tag) {
      ASSERT_TRUE(client_.replies().contains(tag)) << tag;
      ASSERT_EQ(client_.replies().at(tag).size(), 1U) << tag;
      EXPECT_TRUE(client_.replies().at(tag)[0].status.ok())
          << tag << ": " << client_.replies().at(tag)[0].status.to_string();
    }
  }
  bool told(const std::string& words) {
    const auto events = cluster_.status().events;
    return std::any_of(events.begin(), events.end(), [&words](const auto& event) {
      return event.text.find(words) != std::string::npos;
    });
  }

  Cluster cluster_{{{"a", 4, 2000, 40}, {"b", 4, 2000, 10}}};
  StreamClient client_{cluster_.client_port()};
  std::uint64_t next_tag_ = 1;
  const std::filesystem::path models_ = cluster_.setup().config.models;
  const config::Endpoint target_{"127.0.0.1", cluster_.client_port()};
};

TEST_F(ModelChangesTest, ARewrittenFileTakesOverAndAnInvalidEditChangesNothing) {
  const std::string before = model("a").version;
  replace_file(models_.parent_path() / "a.pt", "another network");
  load_until([&] { return model("a").version != before; });

  const std::string text = read_file(models_);
  replace_file(models_, text.substr(0, text.size() / 2));
  load_until([&] { return told("the models stay as they are"); });
  EXPECT_EQ(model("b").state, ModelState::ready);
  replace_file(models_, text);
  expect_all_served();
}

TEST_F(ModelChangesTest, ModelsAreUnloadedAndLoadedByCommand) {
  const auto gone = load::change_models(target_, {ModelsChange::Kind::unload, "b", {}, {}});
  ASSERT_TRUE(gone.ok()) << gone.status().to_string();
  load_until([&] {
    const auto models = load::fetch_models(target_);
    return models.ok() && models.value().size() == 1;
  });
  EXPECT_EQ(load::change_models(target_, {ModelsChange::Kind::unload, "b", {}, {}}).status().code(),
            StatusCode::not_found);
  EXPECT_EQ(client_.ask(byte_request("b", 1U << 20U), seconds(5))->status.code(),
            StatusCode::not_found);

  const auto back = load::change_models(target_, {ModelsChange::Kind::load, "b", {}, {}});
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  ASSERT_EQ(back.value().size(), 1U);
  load_until([&] { return model("b").state == ModelState::ready; });
  EXPECT_TRUE(client_.ask(byte_request("b", 1U << 21U), seconds(5))->status.ok());
  expect_all_served();

  const auto nobody = load::change_models(target_, {ModelsChange::Kind::load, "c", {}, {}});
  EXPECT_EQ(nobody.status().code(), StatusCode::not_found);
  EXPECT_TRUE(names(nobody.status(), "a", "b"));
}

}  // namespace
}  // namespace gpulet::testing
