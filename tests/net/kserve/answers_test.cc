// Targets, metadata, configuration, statistics, the repository and errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/net/kserve/kserve_case.h"

namespace gpulet::net::kserve {
namespace {

using namespace testing;
using ::testing::HasSubstr;

struct RouteCase {
  const char* method;
  const char* target;
  Endpoint endpoint;
  const char* model = "";
  const char* version = "";
  const char* region = "";
};

TEST(Route, EveryEndpointHasItsTarget) {
  const RouteCase cases[] = {
      {"GET", "/v2", Endpoint::server_metadata},
      {"GET", "/v2/", Endpoint::server_metadata},
      {"GET", "/v2?verbose=1", Endpoint::server_metadata},
      {"GET", "http://host:8000/v2", Endpoint::server_metadata},
      {"GET", "/v2/health/live", Endpoint::server_live},
      {"GET", "/v2/health/ready", Endpoint::server_ready},
      {"GET", "/v2/models/m", Endpoint::model_metadata, "m"},
      {"GET", "/v2/models/m/versions/12", Endpoint::model_metadata, "m", "12"},
      {"GET", "/v2/models/m/ready", Endpoint::model_ready, "m"},
      {"GET", "/v2/models/m/versions/1/ready", Endpoint::model_ready, "m", "1"},
      {"GET", "/v2/models/m/config", Endpoint::model_config, "m"},
      {"GET", "/v2/models/m/versions/1/config", Endpoint::model_config, "m", "1"},
      {"GET", "/v2/models/stats", Endpoint::model_statistics},
      {"GET", "/v2/models/m/stats", Endpoint::model_statistics, "m"},
      {"GET", "/v2/models/m/versions/1/stats", Endpoint::model_statistics, "m", "1"},
      {"POST", "/v2/models/m/infer", Endpoint::infer, "m"},
      {"POST", "/v2/models/m/versions/1/infer", Endpoint::infer, "m", "1"},
      {"POST", "/v2/models/a%20b%2Fc/infer", Endpoint::infer, "a b/c"},
      {"POST", "/v2/repository/index", Endpoint::repository_index},
      {"POST", "/v2/repository/models/m/load", Endpoint::repository_load, "m"},
      {"POST", "/v2/repository/models/m/unload", Endpoint::repository_unload, "m"},
      {"GET", "/v2/systemsharedmemory/status", Endpoint::shared_memory_status},
      {"GET", "/v2/systemsharedmemory/region/r/status", Endpoint::shared_memory_status, "", "",
       "r"},
      {"POST", "/v2/systemsharedmemory/region/r/register", Endpoint::shared_memory_register, "", "",
       "r"},
      {"POST", "/v2/systemsharedmemory/unregister", Endpoint::shared_memory_unregister},
      {"POST", "/v2/systemsharedmemory/region/r/unregister", Endpoint::shared_memory_unregister, "",
       "", "r"},
  };
  for (const RouteCase& one : cases) {
    SCOPED_TRACE(one.target);
    const Result<Route> route = find_route(one.method, one.target, nullptr);
    ASSERT_TRUE(route.ok()) << route.status().to_string();
    EXPECT_EQ(route.value().endpoint, one.endpoint);
    EXPECT_EQ(route.value().model, one.model);
    EXPECT_EQ(route.value().version, one.version);
    EXPECT_EQ(route.value().region, one.region);
  }
}

TEST(Route, AnythingElseIsNotFound) {
  for (const char* const target : {"",
                                   "v2",
                                   "/",
                                   "/v1",
                                   "//v2",
                                   "/v2//",
                                   "/v2/models",
                                   "/v2/models/",
                                   "/v2/models//infer",
                                   "/v2/models/m/",
                                   "/v2/models/m/infer/",
                                   "/v2/models/m/versions/one/infer",
                                   "/v2/models/m/versions//infer",
                                   "/v2/models/m/versions/-1",
                                   "/v2/models/%",
                                   "/v2/models/%4",
                                   "/v2/models/%zz",
                                   "/v2/models/a%00b",
                                   "/v2/models/a/b/c/d/e/f/g",
                                   "/V2",
                                   "http://host"}) {
    const Result<Route> route = find_route("GET", target, nullptr);
    EXPECT_EQ(route.status().code(), StatusCode::not_found) << target;
  }
}

TEST(Route, AnotherMethodIsRefusedWithTheOneThatIsAllowed) {
  std::string allow;
  EXPECT_EQ(find_route("GET", "/v2/models/m/infer", &allow).status().code(), StatusCode::invalid);
  EXPECT_EQ(allow, "POST");
  EXPECT_EQ(find_route("DELETE", "/v2", &allow).status().message(), "Method Not Allowed");
  EXPECT_EQ(allow, "GET");
  EXPECT_FALSE(find_route("POST", "/v2/models/m", nullptr).ok());
}

TEST(Route, AModelIsThereInItsOwnVersion) {
  const Model model = small_model();
  const auto check = [&](const Model* one, const char* version) {
    return check_model(
        one, {.endpoint = Endpoint::infer, .model = "small", .version = version, .region = ""});
  };
  EXPECT_TRUE(check(&model, "").ok());
  EXPECT_TRUE(check(&model, "3").ok());
  EXPECT_TRUE(check(&model, "003").ok());
  EXPECT_EQ(
      check(&model, "4"),
      Status(StatusCode::not_found, "Request for unknown model: 'small' version 4 is not found"));
  EXPECT_EQ(check(nullptr, ""),
            Status(StatusCode::not_found, "Request for unknown model: 'small' is not found"));
}

TEST(Answer, TheServerTellsItsExtensions) {
  const Json json = json_of(server_metadata("1.2.3", false));
  EXPECT_EQ(json["name"], "gpulet");
  EXPECT_EQ(json["version"], "1.2.3");
  EXPECT_THAT(
      json["extensions"].get<std::vector<std::string>>(),
      ::testing::UnorderedElementsAre("classification", "model_repository", "model_configuration",
                                      "binary_tensor_data", "parameters", "statistics"));
  EXPECT_THAT(json_of(server_metadata("1", true))["extensions"].get<std::vector<std::string>>(),
              ::testing::Contains("system_shared_memory"));
}

TEST(Answer, MetadataHasTheBatchInFrontAndConfigurationHasNot) {
  const Model model = wide_model();
  EXPECT_EQ(json_of(model_metadata(model)), Json::parse(R"({
    "name":"wide","versions":["3"],"platform":"pytorch_libtorch",
    "inputs":[{"name":"x","datatype":"FP32","shape":[-1,2]},
              {"name":"mask","datatype":"BOOL","shape":[-1,3]}],
    "outputs":[{"name":"y","datatype":"FP32","shape":[-1,2]},
               {"name":"count","datatype":"INT64","shape":[-1]},
               {"name":"half","datatype":"FP16","shape":[-1,2]}]})"));
  EXPECT_EQ(json_of(model_config(model)), Json::parse(R"({
    "name":"wide","platform":"pytorch_libtorch","backend":"pytorch","max_batch_size":4,
    "input":[{"name":"x","data_type":"TYPE_FP32","dims":[2]},
             {"name":"mask","data_type":"TYPE_BOOL","dims":[3]}],
    "output":[{"name":"y","data_type":"TYPE_FP32","dims":[2]},
              {"name":"count","data_type":"TYPE_INT64","dims":[]},
              {"name":"half","data_type":"TYPE_FP16","dims":[2]}],
    "dynamic_batching":{},
    "instance_group":[{"name":"wide","count":1,"kind":"KIND_AUTO"}]})"));
  EXPECT_EQ(model_config(model).headers, (http::Headers{{"Content-Type", "application/json"}}));
}

TEST(Answer, StatisticsHaveEveryCountThatClientsRead) {
  ModelStatistics model;
  model.name = "small";
  model.version = "3";
  model.last_inference_ms = 1700;
  model.inference_count = 12;
  model.execution_count = 4;
  model.success = {10, 100};
  model.fail = {1, 11};
  model.queue = {2, 22};
  model.compute_input = {3, 33};
  model.compute_infer = {4, 44};
  model.compute_output = {5, 55};
  model.batches = {{.batch_size = 3,
                    .compute_input = {1, 2},
                    .compute_infer = {1, 3},
                    .compute_output = {1, 4}}};
  EXPECT_EQ(json_of(statistics(std::vector{model})), Json::parse(R"({"model_stats":[{
    "name":"small","version":"3","last_inference":1700,"inference_count":12,"execution_count":4,
    "inference_stats":{"success":{"count":10,"ns":100},"fail":{"count":1,"ns":11},
      "queue":{"count":2,"ns":22},"compute_input":{"count":3,"ns":33},
      "compute_infer":{"count":4,"ns":44},"compute_output":{"count":5,"ns":55},
      "cache_hit":{"count":0,"ns":0},"cache_miss":{"count":0,"ns":0}},
    "response_stats":{},
    "batch_stats":[{"batch_size":3,"compute_input":{"count":1,"ns":2},
      "compute_infer":{"count":1,"ns":3},"compute_output":{"count":1,"ns":4}}],
    "memory_usage":[]}]})"));
}

TEST(Answer, ReadinessIsAStatusAndPerhapsAReason) {
  EXPECT_EQ(ready(true, "").status, 200U);
  EXPECT_TRUE(text_of(ready(true, "ignored")).empty());
  EXPECT_EQ(ready(false, "").status, 400U);
  EXPECT_TRUE(text_of(ready(false, "")).empty());
  EXPECT_EQ(json_of(ready(false, "Model version not ready")),
            Json({{"error", "Model version not ready"}}));
}

TEST(Answer, AnErrorHasTheStatusThatClientsExpect) {
  const std::pair<StatusCode, unsigned> cases[] = {
      {StatusCode::invalid, 400},    {StatusCode::malformed, 400}, {StatusCode::not_found, 404},
      {StatusCode::cancelled, 499},  {StatusCode::internal, 500},  {StatusCode::unavailable, 503},
      {StatusCode::overloaded, 503}, {StatusCode::too_late, 503},  {StatusCode::timeout, 504}};
  for (const auto& [code, status] : cases) {
    const http::HttpResponse response = error(Status(code, "why"));
    EXPECT_EQ(response.status, status) << to_string(code);
    EXPECT_EQ(text_of(response), R"({"error":"why"})");
    EXPECT_EQ(http::find_header(response.headers, "content-TYPE"), "application/json");
  }
  EXPECT_EQ(json_of(error(405, "Method \"Not\" Allowed\n"))["error"], "Method \"Not\" Allowed\n");
  EXPECT_EQ(json_of(error(404, "caf\xc3\xa9 \xff"))["error"], "caf\xc3\xa9 \xef\xbf\xbd");
  EXPECT_EQ(json_of(error(Status(StatusCode::too_late, "")))["error"], "too_late");
}

TEST(Repository, ListsModelsByState) {
  std::vector<Model> models;
  for (const auto state :
       {serve::ModelState::ready, serve::ModelState::idle, serve::ModelState::loading,
        serve::ModelState::unavailable, serve::ModelState::leaving}) {
    models.push_back(small_model());
    models.back().name = to_string(state);
    models.back().state = state;
    models.back().reason = "because";
  }
  const Json all = json_of(repository_index(models, false));
  ASSERT_EQ(all.size(), 5U);
  EXPECT_EQ(all[0],
            Json::parse(R"({"name":"ready","version":"3","state":"READY","reason":"because"})"));
  EXPECT_EQ(all[1]["state"], "READY");
  EXPECT_EQ(all[2]["state"], "LOADING");
  EXPECT_EQ(all[3]["state"], "UNAVAILABLE");
  EXPECT_EQ(all[4]["state"], "UNLOADING");
  EXPECT_EQ(json_of(repository_index(models, true)).size(), 2U);
  EXPECT_EQ(text_of(repository_index({}, true)), "[]");
}

template <typename Read>
std::string refusal(const Read& read, std::string body) {
  const auto result = read(http::bytes_of(std::move(body)));
  return result.ok() ? "taken" : result.status().message();
}

TEST(Repository, AnIndexMayAskForWhatIsReadyOnly) {
  EXPECT_FALSE(read_repository_index({}).value());
  EXPECT_FALSE(read_repository_index(http::bytes_of("{}")).value());
  EXPECT_TRUE(read_repository_index(http::bytes_of(R"({"ready":true,"x":[{"ready":1}]})")).value());
  EXPECT_THAT(refusal(read_repository_index, R"({"ready":1})"),
              HasSubstr("'ready' must be true or"));
  EXPECT_THAT(refusal(read_repository_index, "[]"), HasSubstr("must be an object"));
  EXPECT_THAT(refusal(read_repository_index, "7"), HasSubstr("must be an object"));
  EXPECT_THAT(refusal(read_repository_index, "{"), HasSubstr("cannot be read"));
  EXPECT_THAT(refusal(read_repository_index, R"({"a":)" + std::string(1000, '[')),
              HasSubstr("nested deeper than 100"));
}

TEST(Repository, ALoadBringsAConfigurationOrNothing) {
  EXPECT_EQ(read_repository_load({}).value(), "");
  EXPECT_EQ(read_repository_load(http::bytes_of("{}")).value(), "");
  EXPECT_EQ(
      read_repository_load(
          http::bytes_of(R"({"config":"no","parameters":{"config":"{\"models\":[]}","p":1}})"))
          .value(),
      R"({"models":[]})");
  EXPECT_THAT(refusal(read_repository_load, R"({"parameters":{"config":{}}})"), "taken");
  EXPECT_THAT(refusal(read_repository_load, R"({"parameters":{"config":3}})"),
              HasSubstr("'parameters.config' must be a string"));
  EXPECT_THAT(refusal(read_repository_load, R"({"parameters":{"file:1/model.pt":"AAAA"}})"),
              HasSubstr("'file:1/model.pt' is not supported"));
}

}  // namespace
}  // namespace gpulet::net::kserve
