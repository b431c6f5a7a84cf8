// The catalogue of models whose files are in a remote store.
#include "frontend/catalogue/remote_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "frontend/catalogue/catalogue.h"
#include "gpulet/base/sha256.h"
#include "gpulet/profile/store.h"
#include "tests/support/process/process.h"
#include "tests/support/serve/world.h"
#include "tests/support/store/object_server.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/variable.h"

namespace gpulet::frontend::remote_models_test {
namespace {

using gpulet::testing::comes_true;
using gpulet::testing::ObjectRequest;
using gpulet::testing::ObjectServer;
using gpulet::testing::serve_object;
using std::chrono::milliseconds;

TEST(RemoteVersions, FollowersTakeWhatTheLeaderServes) {
  RemoteVersions versions(false);
  EXPECT_FALSE(versions.may_take("a", "2"));
  versions.follow(false, {{"a", "1"}});
  EXPECT_FALSE(versions.may_take("a", "2"));
  EXPECT_FALSE(versions.may_take("b", "1"));
  versions.follow(false, {{"a", "2"}});
  EXPECT_TRUE(versions.may_take("a", "2"));
  versions.follow(true, {});
  EXPECT_TRUE(versions.may_take("a", "3"));
}

class RemoteCatalogueTest : public ::testing::Test {
 protected:
  RemoteCatalogueTest() {
    config_.models = folder_.path() / "models.json";
    config_.profiles = folder_.path() / "profiles";
    config_.remote_stores.cache = folder_.path() / "cache";
    config_.remote_stores.poll = milliseconds(50);
    config_.remote_stores.first_retry = config_.remote_stores.longest_retry = milliseconds(100);
    EXPECT_TRUE(
        profile::write_profile(serve::testing::card_profile({{"a", 4}}), config_.profiles).ok());
    name_file("m.pt");
    serve_version("1");
    files_ = std::make_shared<store::remote::RemoteFiles>(
        store::remote::RemoteFilesOptions{config_.remote_stores, {}});
  }
  void name_file(const std::string& name) {
    url_ = parse_url(server_.url("/" + name)).value();
    folder_.write("models.json", R"({"models":[{"name":"a","file":")" + url_.text() +
                                     R"(","inputs":[{"name":"x","type":"UINT8","shape":[1]}],
        "outputs":[{"name":"y","type":"UINT8","shape":[1]}],"slo_ms":50}]})");
  }
  void serve_version(const std::string& version) {
    server_.answer_with([version](const ObjectRequest& request) {
      if (request.target != "/m.pt") return absent();
      return serve_object({version, '"' + version + '"', ""}, request);
    });
  }
  static gpulet::testing::ObjectAnswer absent() { return {404, {}, ""}; }
  bool has(const std::string& version) {
    return comes_true([&] { return files_->state({url_, {}}).sha256 == sha256_of(version); });
  }
  // The SHA-256 of the model.
  static std::string content(const Result<LoadedCatalogue>& loaded) {
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    return loaded.ok() ? loaded.value().catalogue.models.at(0).sha256 : "none";
  }

  const support::TemporaryFolder folder_;
  const support::Variable no_proxy_{"no_proxy", "127.0.0.1"};
  ObjectServer server_{[](const ObjectRequest&) { return absent(); }};
  config::FrontendConfig config_;
  Url url_;
  std::shared_ptr<store::remote::RemoteFiles> files_;
};

TEST_F(RemoteCatalogueTest, HasTheNewestCopy) {
  CatalogueLoader loader(config_, std::nullopt, {files_, nullptr});
  const auto first = loader.load();
  EXPECT_EQ(content(first), "");
  EXPECT_TRUE(first.value().model_files.empty());
  EXPECT_EQ(first.value().catalogue.models[0].description->file_name, "m.pt");
  files_->start([] {});
  ASSERT_TRUE(has("1"));
  const auto second = loader.load();
  EXPECT_EQ(content(second), sha256_of("1"));
  EXPECT_TRUE(second.value().model_files.contains(sha256_of("1")));
  serve_version("2");
  ASSERT_TRUE(has("2"));
  EXPECT_EQ(content(loader.load()), sha256_of("2"));
}

TEST_F(RemoteCatalogueTest, AFollowerKeepsItsVersionUntilTheLeaderServesTheNext) {
  const auto versions = std::make_shared<RemoteVersions>(false);
  CatalogueLoader loader(config_, std::nullopt, {files_, versions});
  ASSERT_TRUE(loader.load().ok());
  files_->start([] {});
  ASSERT_TRUE(has("1"));
  EXPECT_EQ(content(loader.load()), sha256_of("1")) << "it has no other";
  serve_version("2");
  ASSERT_TRUE(has("2"));
  EXPECT_EQ(content(loader.load()), sha256_of("1"));
  versions->follow(false, {{"a", sha256_of("2")}});
  EXPECT_EQ(content(loader.load()), sha256_of("2"));
}

TEST_F(RemoteCatalogueTest, AnotherUrlKeepsTheCopyInForceUntilItsFileIsThere) {
  CatalogueLoader loader(config_, std::nullopt, {files_, nullptr});
  ASSERT_TRUE(loader.load().ok());
  files_->start([] {});
  ASSERT_TRUE(has("1"));
  const auto before = loader.load();
  const std::filesystem::path copy = before.value().model_files.at(sha256_of("1")).path;
  name_file("absent.pt");
  EXPECT_EQ(content(loader.load()), "") << "the core keeps the version in force";
  EXPECT_TRUE(std::filesystem::exists(copy));
  name_file("m.pt");
  EXPECT_EQ(content(loader.load()), sha256_of("1")) << "from the record of the cache";
}

// What RemoteModels reports.
struct News final : EventSink, Reloadable {
  void deliver(serve::FrontendEvent event) override {
    told = std::move(std::get<serve::ModelSourcesChanged>(event).sources);
  }
  void deliver_from(std::string_view /*address*/, serve::FrontendEvent event) override {
    deliver(std::move(event));
  }
  void reload() override { ++reloads; }

  serve::ModelSources told;
  int reloads = 0;
};

TEST_F(RemoteCatalogueTest, NewsReachTheOwnerOnTheEventLoop) {
  CatalogueLoader loader(config_, std::nullopt, {files_, nullptr});
  auto loaded = loader.load();
  ASSERT_TRUE(loaded.ok());
  net::asio::io_context io(1);
  News news;
  RemoteModels models(io, files_, std::make_shared<RemoteVersions>(true), news, news);
  server_.answer_with([](const ObjectRequest&) { return absent(); });
  models.replace(std::move(loaded.value().remote_models));
  models.start();
  const auto run_until = [&io](const std::function<bool()>& condition) {
    return comes_true([&] {
      io.restart();
      io.poll();
      return condition();
    });
  };
  EXPECT_TRUE(run_until([&] { return news.told.contains("a") && news.told.at("a").failed; }));
  EXPECT_EQ(news.reloads, 0);
  serve_version("1");
  EXPECT_TRUE(run_until([&] { return news.reloads == 1 && news.told.empty(); }));
  models.stop();
}

}  // namespace
}  // namespace gpulet::frontend::remote_models_test
