// The model repository as the simple_*_model_control examples use it.
#include <gmock/gmock.h>

#include <chrono>

#include "tests/conformance/conformance_test.h"
#include "tests/support/names.h"

namespace gpulet::conformance {
namespace {

using nlohmann::json;
using support::holds;

class Repository : public ConformanceTest {
 protected:
  // The entry of "spare" in the index; null if there is none.
  json spare_in_index(const std::string& body = "") {
    const HttpAnswer answer = http().post("/v2/repository/index", body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    for (const json& entry : json::parse(answer.body)) {
      if (entry.at("name") == "spare") return entry;
    }
    return nullptr;
  }
  // Waits for that state: the processes of an unloaded model take a while to end, and the shared
  // index may be slightly old.
  json spare_once(const std::string& state) {
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    json entry = spare_in_index();
    while ((entry.is_null() || entry.at("state") != state) &&
           std::chrono::steady_clock::now() < patience)
      entry = spare_in_index();
    return entry;
  }
  HttpAnswer load(const json& body = nullptr) {
    return http().post("/v2/repository/models/spare/load", body.is_null() ? "" : body.dump());
  }
  HttpAnswer unload() { return http().post("/v2/repository/models/spare/unload"); }
  ::grpc::Status grpc_control(const std::string& method, const std::string& model) {
    RepositoryRequest request;
    request.set_model_name(model);
    return grpc().call<Empty>(method, request).status;
  }
  RepositoryModel spare_in_grpc_index() {
    const auto answer = grpc().call<RepositoryIndex>("RepositoryIndex", RepositoryIndexRequest());
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    for (const RepositoryModel& model : answer.message.models()) {
      if (model.name() == "spare") return model;
    }
    return {};
  }
  GrpcAnswer<Yes> grpc_ready() {
    Name request;
    request.set_name("spare");
    return grpc().call<Yes>("ModelReady", request);
  }
  bool infers() {
    return grpc()
        .call<InferResponse>("ModelInfer", grpc_request("spare", "UINT8", 2, "ab"))
        .status.ok();
  }
};

TEST_F(Repository, ListsEveryModelWithItsState) {
  const HttpAnswer answer = http().post("/v2/repository/index");
  ASSERT_EQ(answer.status, 200);
  std::vector<std::string> names;
  for (const json& entry : json::parse(answer.body)) {
    names.push_back(entry.at("name").get<std::string>());
    EXPECT_TRUE(entry.at("state").is_string());
    EXPECT_TRUE(entry.value("version", json("1")).is_string());
  }
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("image", "simple", "values", "flags", "scores",
                                                     "ordered", "spare", "chain"));
}

TEST_F(Repository, UnloadsAndLoadsOverHttp) {
  EXPECT_EQ(spare_once("READY").at("state"), "READY");
  ASSERT_EQ(unload().status, 200);
  const json unloaded = spare_once("UNAVAILABLE");
  ASSERT_FALSE(unloaded.is_null());
  EXPECT_EQ(unloaded.at("state"), "UNAVAILABLE");
  EXPECT_NE(unloaded.at("reason"), "");
  EXPECT_TRUE(spare_in_index(R"({"ready":true})").is_null());
  EXPECT_NE(http().get("/v2/models/spare/ready").status, 200);
  const HttpAnswer loaded = load();
  ASSERT_EQ(loaded.status, 200) << loaded.body;
  EXPECT_EQ(http().get("/v2/models/spare/ready").status, 200);
  EXPECT_EQ(spare_once("READY").at("state"), "READY");
  EXPECT_TRUE(infers());
}

TEST_F(Repository, UnloadsAndLoadsOverGrpc) {
  EXPECT_EQ(spare_once("READY").at("state"), "READY");
  EXPECT_EQ(spare_in_grpc_index().state(), "READY");
  ASSERT_TRUE(grpc_control("RepositoryModelUnload", "spare").ok());
  EXPECT_EQ(spare_once("UNAVAILABLE").at("state"), "UNAVAILABLE");
  EXPECT_EQ(spare_in_grpc_index().state(), "UNAVAILABLE");
  EXPECT_NE(spare_in_grpc_index().reason(), "");
  const auto unloaded = grpc_ready();
  EXPECT_TRUE(unloaded.status.ok()) << unloaded.status.error_message();
  EXPECT_FALSE(unloaded.message.yes());
  const ::grpc::Status loaded = grpc_control("RepositoryModelLoad", "spare");
  ASSERT_TRUE(loaded.ok()) << loaded.error_message();
  EXPECT_TRUE(grpc_ready().message.yes());
  EXPECT_TRUE(infers());
}

// The Python client's examples expect these words of Triton's protocol.
TEST_F(Repository, RejectsAnUnknownModel) {
  const HttpAnswer answer = http().post("/v2/repository/models/wrong_model_name/load");
  check_error(answer);
  EXPECT_TRUE(holds(answer.body, "failed to load"));
  const ::grpc::Status refused = grpc_control("RepositoryModelLoad", "wrong_model_name");
  EXPECT_FALSE(refused.ok());
  EXPECT_TRUE(holds(refused.error_message(), "failed to load"));
}

TEST_F(Repository, LoadsWithTheConfigurationOfTheClient) {
  ASSERT_EQ(get_json("/v2/models/spare/config").at("max_batch_size"), 8);
  const json changed = {{"parameters", {{"config", R"({"max_batch_size":"16"})"}}}};
  const HttpAnswer loaded = load(changed);
  ASSERT_EQ(loaded.status, 200) << loaded.body;
  EXPECT_EQ(get_json("/v2/models/spare/config").at("max_batch_size"), 16);
  EXPECT_TRUE(infers());
  ASSERT_EQ(load().status, 200);
  EXPECT_EQ(get_json("/v2/models/spare/config").at("max_batch_size"), 8);
}

TEST_F(Repository, RejectsAnInvalidConfiguration) {
  const json broken = {{"parameters", {{"config", R"("parameters": {"config": {{}}})"}}}};
  const HttpAnswer refused = load(broken);
  check_error(refused);
  EXPECT_TRUE(holds(refused.body, "failed to load"));
  const json unknown = {{"parameters", {{"config", R"({"no_such_key":1})"}}}};
  check_error(load(unknown));
  EXPECT_EQ(http().get("/v2/models/spare/ready").status, 200);
  EXPECT_TRUE(infers());
}

TEST_F(Repository, RejectsFiles) {
  const json files = {{"parameters", {{"config", "{}"}, {"file:1/model.pt", "AAAA"}}}};
  check_error(load(files));
  RepositoryRequest request;
  request.set_model_name("spare");
  (*request.mutable_parameters())["config"].set_string_param("{}");
  (*request.mutable_parameters())["file:1/model.pt"].set_bytes_param("a");
  const auto refused = grpc().call<Empty>("RepositoryModelLoad", request);
  EXPECT_FALSE(refused.status.ok());
  EXPECT_NE(refused.status.error_message(), "");
  EXPECT_TRUE(infers());
}

}  // namespace
}  // namespace gpulet::conformance
