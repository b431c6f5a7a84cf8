// Models whose files are in a remote store, with real sockets: they wait for their files, change
// with them, and outlive their store. No other model notices.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <span>
#include <string>

#include "gpulet/base/sha256.h"
#include "gpulet/load/call.h"
#include "tests/support/cluster/cluster.h"
#include "tests/support/cluster/stream_client.h"
#include "tests/support/names.h"
#include "tests/support/serve/world.h"
#include "tests/support/store/object_server.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/variable.h"

namespace gpulet::testing {
namespace {

using serve::ModelStatus;
using std::chrono::milliseconds;
using std::chrono::seconds;
using support::names;

std::string entry_of(const std::string& name, const std::string& file,
                     const std::string& sha256 = {}) {
  const std::string digest = sha256.empty() ? "" : R"("sha256":")" + sha256 + R"(",)";
  return R"({"name":")" + name + R"(","file":")" + file + R"(",)" + digest +
         R"("inputs":[{"name":"x","type":"UINT8","shape":[1]}],
            "outputs":[{"name":"y","type":"UINT8","shape":[1]}],
            "slo_ms":2000,"rate":20,"max_batch":16})";
}

std::string models_of(const std::string& remote) {
  return R"({"models":[)" + entry_of("local", "local.pt") + "," + remote + "]}";
}

class RemoteModelsTest : public ::testing::Test {
 protected:
  void start(const std::string& entry) {
    ClusterFiles files;
    files.models = models_of(entry);
    files.beside["local.pt"] = "stands for a model";
    files.profile = serve::testing::card_profile({{"local", 4}, {"remote", 4}});
    ClusterChanges changes;
    changes.frontend = [this](config::FrontendConfig& config) {
      config.model_format = config::ModelFormat::any;
      config.remote_stores.cache = folder_.path() / "cache";
      config.remote_stores.poll = milliseconds(100);
      config.remote_stores.first_retry = milliseconds(50);
      config.remote_stores.longest_retry = milliseconds(200);
    };
    client_.reset();
    cluster_.reset();
    cluster_ = std::make_unique<Cluster>(files, changes);
    cluster_->add_backend("n0");
    client_ = std::make_unique<StreamClient>(cluster_->client_port());
    ASSERT_TRUE(becomes("local", ModelState::ready));
  }
  void edit(const std::string& entry) {
    const std::filesystem::path models = cluster_->setup().config.models;
    const std::filesystem::path beside = models.string() + ".new";
    std::ofstream(beside) << models_of(entry);
    std::filesystem::rename(beside, models);
  }
  void serve(const std::string& body, const std::string& etag) {
    server_.answer_with([body, etag](const ObjectRequest& request) {
      return serve_object({body, etag, ""}, request);
    });
  }

  ModelStatus model(const std::string& name) {
    for (const ModelStatus& one : cluster_->status().models)
      if (one.name == name) return one;
    return {};
  }
  bool comes_true(const std::function<bool()>& condition) {
    return client_->run_until(condition, seconds(20));
  }
  bool becomes(const std::string& name, ModelState state) {
    return comes_true([&] { return model(name).state == state; });
  }
  bool gives_reason(const std::string& text) {
    return comes_true([&] { return model("remote").reason.find(text) != std::string::npos; });
  }
  // Asks with a new tag.
  Status ask(const std::string& name) {
    const auto reply = client_->ask(byte_request(name, next_tag_++), seconds(5));
    return reply ? reply->status : Status(StatusCode::timeout, "no answer");
  }
  std::string file_in_force() { return std::string(file_of_version(model("remote").version)); }

  const support::Variable no_proxy_{"no_proxy", "127.0.0.1"};
  const support::TemporaryFolder folder_;
  ObjectServer server_{[](const ObjectRequest&) { return ObjectAnswer{404, {}, ""}; }};
  std::unique_ptr<Cluster> cluster_;
  std::unique_ptr<StreamClient> client_;
  std::uint64_t next_tag_ = 1;
};

TEST_F(RemoteModelsTest, AModelWaitsForItsFileAndNoOtherWaits) {
  server_.answer_with([](const ObjectRequest& request) {
    ObjectAnswer answer = serve_object({std::string(1000, 'm'), "\"1\"", ""}, request);
    answer.block = 20;
    answer.pause = milliseconds(60);
    return answer;
  });
  start(entry_of("remote", server_.url("/m.pt")));
  ASSERT_TRUE(gives_reason("fetching, ")) << model("remote").reason;
  EXPECT_EQ(model("remote").state, ModelState::loading);
  EXPECT_TRUE(ask("local").ok());
  const Status refused = ask("remote");
  EXPECT_EQ(refused.code(), StatusCode::unavailable);
  EXPECT_TRUE(names(refused, "fetching"));
  ASSERT_TRUE(becomes("remote", ModelState::ready)) << model("remote").reason;
  EXPECT_TRUE(ask("remote").ok());
  EXPECT_EQ(file_in_force(), sha256_of(std::string(1000, 'm')));
}

TEST_F(RemoteModelsTest, AChangedObjectIsANewVersion) {
  serve("first", "\"1\"");
  start(entry_of("remote", server_.url("/m.pt")));
  ASSERT_TRUE(becomes("remote", ModelState::ready));
  serve("second", "\"2\"");
  std::uint64_t tag = next_tag_;
  for (int i = 0; i < 100 && file_in_force() != sha256_of("second"); ++i)
    tag = client_->load(byte_request("remote", 0), 60, milliseconds(200), tag, tag, seconds(5));
  EXPECT_EQ(file_in_force(), sha256_of("second"));
  ASSERT_TRUE(comes_true([&] { return client_->replies().size() == tag - next_tag_; }));
  for (std::uint64_t one = next_tag_; one < tag; ++one) {
    ASSERT_TRUE(client_->replies().contains(one)) << one;
    EXPECT_TRUE(client_->replies().at(one)[0].status.ok())
        << client_->replies().at(one)[0].status.to_string();
  }
}

TEST_F(RemoteModelsTest, WhatAStoreRefusesIsTheReasonOfOneModel) {
  start(entry_of("remote", server_.url("/m.pt")));
  ASSERT_TRUE(gives_reason("404")) << model("remote").reason;
  EXPECT_EQ(model("remote").state, ModelState::unavailable);
  server_.answer_with([](const ObjectRequest&) { return ObjectAnswer{403, {}, ""}; });
  ASSERT_TRUE(gives_reason("403")) << model("remote").reason;
  server_.answer_with([](const ObjectRequest&) {
    return ObjectAnswer{302, {{"Location", "/m.pt"}}, ""};
  });
  ASSERT_TRUE(gives_reason("redirects")) << model("remote").reason;
  EXPECT_TRUE(ask("local").ok());
  EXPECT_EQ(ask("remote").code(), StatusCode::unavailable);
  serve("first", "\"1\"");
  ASSERT_TRUE(becomes("remote", ModelState::ready)) << model("remote").reason;
}

TEST_F(RemoteModelsTest, AnotherDigestIsRefusedAndTheVersionInForceStays) {
  serve("first", "\"1\"");
  start(entry_of("remote", server_.url("/m.pt"), sha256_of("first")));
  ASSERT_TRUE(becomes("remote", ModelState::ready));
  edit(entry_of("remote", server_.url("/m.pt"), sha256_of("second")));
  ASSERT_TRUE(gives_reason("SHA-256")) << model("remote").reason;
  EXPECT_EQ(model("remote").state, ModelState::ready);
  EXPECT_EQ(file_in_force(), sha256_of("first"));
  EXPECT_TRUE(ask("remote").ok());
  serve("second", "\"2\"");
  ASSERT_TRUE(comes_true([&] { return file_in_force() == sha256_of("second"); }));
  EXPECT_TRUE(comes_true([&] { return model("remote").reason.empty(); }));
}

TEST_F(RemoteModelsTest, ARestartWithoutTheStoreServesFromTheCache) {
  serve("first", "\"1\"");
  start(entry_of("remote", server_.url("/m.pt")));
  ASSERT_TRUE(becomes("remote", ModelState::ready));
  server_.answer_with([](const ObjectRequest&) { return ObjectAnswer{503, {}, ""}; });
  start(entry_of("remote", server_.url("/m.pt")));
  ASSERT_TRUE(becomes("remote", ModelState::ready)) << model("remote").reason;
  EXPECT_TRUE(ask("remote").ok());
  EXPECT_TRUE(gives_reason("503")) << "the administrator learns that the store is away";
}

TEST_F(RemoteModelsTest, AClientCannotMakeTheFrontendFetch) {
  start(entry_of("remote", server_.url("/m.pt")));
  const std::string text = R"({"models":[)" + entry_of("other", server_.url("/secret")) + "]}";
  ModelsChange change;
  change.kind = ModelsChange::Kind::load;
  change.file = "/tmp/models.json";
  const auto bytes = std::as_bytes(std::span(text));
  change.text = Bytes::own({bytes.begin(), bytes.end()});
  const auto changed = load::change_models({"127.0.0.1", cluster_->client_port()}, change);
  EXPECT_EQ(changed.status().code(), StatusCode::invalid);
  EXPECT_TRUE(names(changed.status(), server_.url("/secret")));
  for (const ObjectRequest& request : server_.requests()) EXPECT_NE(request.target, "/secret");
}

}  // namespace
}  // namespace gpulet::testing
