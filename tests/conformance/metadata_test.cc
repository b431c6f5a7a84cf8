// Reads before an inference: health, metadata and the model configuration.
#include <gmock/gmock.h>

#include <algorithm>

#include "tests/conformance/conformance_test.h"

namespace gpulet::conformance {
namespace {

using ::grpc::StatusCode;
using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;

constexpr int kTypeInt32 = 8;  // of the protocol's enumeration of types
constexpr int kTypeFp32 = 11;
constexpr int kFormatNchw = 2;

class Metadata : public ConformanceTest {
 protected:
  template <class Response>
  Response must_call(const std::string& method, const std::string& name = "") {
    Name request;
    request.set_name(name);
    const auto answer = grpc().call<Response>(method, request);
    EXPECT_TRUE(answer.status.ok()) << method << ": " << answer.status.error_message();
    return answer.message;
  }
};

TEST_F(Metadata, HttpHealthIsAStatusWithoutABody) {
  for (const char* path : {"/v2/health/live", "/v2/health/ready", "/v2/models/simple/ready"}) {
    const HttpAnswer answer = http().get(path);
    EXPECT_EQ(answer.status, 200) << path;
    EXPECT_EQ(answer.body, "") << path;
  }
}

TEST_F(Metadata, HttpReadyOfAnUnknownModelFails) {
  EXPECT_NE(http().get("/v2/models/wrong_model_name/ready").status, 200);
  EXPECT_NE(http().get("/v2/models/simple/versions/4711/ready").status, 200);
}

TEST_F(Metadata, GrpcReportsHealth) {
  EXPECT_TRUE(must_call<Yes>("ServerLive").yes());
  EXPECT_TRUE(must_call<Yes>("ServerReady").yes());
  EXPECT_TRUE(must_call<Yes>("ModelReady", "simple").yes());
}

TEST_F(Metadata, HttpServerHasNameVersionAndExtensions) {
  const json server = get_json("/v2");
  EXPECT_TRUE(server.at("name").is_string());
  EXPECT_TRUE(server.at("version").is_string());
  const auto extensions = server.at("extensions").get<std::vector<std::string>>();
  for (const char* extension :
       {"classification", "model_repository", "model_configuration", "system_shared_memory",
        "binary_tensor_data", "parameters", "statistics", "logging", "trace", "schedule_policy"})
    EXPECT_THAT(extensions, Contains(extension));
  const ServerMetadata same = must_call<ServerMetadata>("ServerMetadata");
  EXPECT_EQ(same.name(), server.at("name"));
  EXPECT_EQ(same.version(), server.at("version"));
  EXPECT_EQ(std::vector<std::string>(same.extensions().begin(), same.extensions().end()),
            extensions);
}

TEST_F(Metadata, HttpModelHasTensorsWithTheBatchFirst) {
  const json model = get_json("/v2/models/simple");
  EXPECT_EQ(model.at("name"), "simple");
  ASSERT_FALSE(model.at("versions").empty());
  EXPECT_TRUE(model.at("versions")[0].is_string());
  EXPECT_TRUE(model.at("platform").is_string());
  ASSERT_EQ(model.at("inputs").size(), 2U);
  ASSERT_EQ(model.at("outputs").size(), 2U);
  EXPECT_EQ(model.at("inputs")[0],
            json({{"name", "INPUT0"}, {"datatype", "INT32"}, {"shape", {-1, 16}}}));
  EXPECT_EQ(model.at("outputs")[1],
            json({{"name", "OUTPUT1"}, {"datatype", "INT32"}, {"shape", {-1, 16}}}));
}

TEST_F(Metadata, GrpcModelHasTensorsWithTheBatchFirst) {
  const ModelMetadata model = must_call<ModelMetadata>("ModelMetadata", "simple");
  EXPECT_EQ(model.name(), "simple");
  ASSERT_GE(model.versions_size(), 1);
  EXPECT_EQ(model.versions(0), version_of("simple"));
  ASSERT_EQ(model.inputs_size(), 2);
  EXPECT_EQ(model.inputs(1).name(), "INPUT1");
  EXPECT_EQ(model.inputs(1).datatype(), "INT32");
  EXPECT_THAT(model.inputs(1).shape(), ElementsAre(-1, 16));
  EXPECT_EQ(model.outputs_size(), 2);
}

TEST_F(Metadata, AnUnknownModelIsAnError) {
  const HttpAnswer answer = http().get("/v2/models/wrong_model_name");
  EXPECT_EQ(answer.status, 404);
  check_error(answer);
  Name request;
  request.set_name("wrong_model_name");
  for (const char* method : {"ModelMetadata", "ModelConfig", "ModelStatistics"}) {
    const auto refused = grpc().call<Empty>(method, request);
    EXPECT_EQ(refused.status.error_code(), StatusCode::NOT_FOUND) << method;
    EXPECT_NE(refused.status.error_message(), "") << method;
  }
  EXPECT_FALSE(grpc().call<Yes>("ModelReady", request).message.yes())
      << "clients poll it until the model is there";
}

TEST_F(Metadata, HttpConfigurationHasTheFieldsThatClientsRead) {
  const json config = get_json("/v2/models/simple/config");
  EXPECT_EQ(config.at("name"), "simple");
  EXPECT_TRUE(config.at("platform").is_string());
  EXPECT_TRUE(config.at("backend").is_string());
  EXPECT_EQ(config.at("max_batch_size"), 8);
  EXPECT_TRUE(config.at("version_policy").is_object());
  EXPECT_TRUE(config.at("dynamic_batching").is_object());
  const json& input = config.at("input").at(0);
  EXPECT_EQ(input.at("name"), "INPUT0");
  EXPECT_EQ(input.at("data_type"), "TYPE_INT32");
  EXPECT_EQ(input.at("format"), "FORMAT_NONE");
  EXPECT_EQ(input.at("dims"), json::array({16}));
  const json& output = config.at("output").at(0);
  EXPECT_EQ(output.at("name"), "OUTPUT0");
  EXPECT_EQ(output.at("data_type"), "TYPE_INT32");
  EXPECT_EQ(output.at("label_filename"), "");
  EXPECT_EQ(output.at("dims"), json::array({16}));
}

TEST_F(Metadata, GrpcConfigurationHasTheSameFields) {
  const ModelConfig config = must_call<ModelConfigResponse>("ModelConfig", "simple").config();
  const json same = get_json("/v2/models/simple/config");
  EXPECT_EQ(config.name(), "simple");
  EXPECT_EQ(config.platform(), same.at("platform"));
  EXPECT_EQ(config.backend(), same.at("backend"));
  EXPECT_EQ(config.max_batch_size(), 8);
  EXPECT_TRUE(config.has_dynamic_batching());
  ASSERT_EQ(config.input_size(), 2);
  EXPECT_EQ(config.input(0).name(), "INPUT0");
  EXPECT_EQ(config.input(0).data_type(), kTypeInt32);
  EXPECT_EQ(config.input(0).format(), 0);
  EXPECT_THAT(config.input(0).dims(), ElementsAre(16));
  ASSERT_EQ(config.output_size(), 2);
  EXPECT_EQ(config.output(1).name(), "OUTPUT1");
  EXPECT_EQ(config.output(1).data_type(), kTypeInt32);
}

TEST_F(Metadata, ConfigurationNamesTheLabelsOfAnOutput) {
  const json config = get_json("/v2/models/scores/config");
  EXPECT_EQ(config.at("output").at(0).at("label_filename"), "labels.txt");
  const ModelConfig same = must_call<ModelConfigResponse>("ModelConfig", "scores").config();
  ASSERT_EQ(same.output_size(), 1);
  EXPECT_EQ(same.output(0).label_filename(), "labels.txt");
  EXPECT_EQ(same.output(0).data_type(), kTypeFp32);
}

// What Triton's image_client checks before it sends an image: one input and one output, a batch, a
// format, and three dimensions besides the batch, of which the format tells the channels.
TEST_F(Metadata, ImageClientFindsWhatItNeeds) {
  const ModelConfig config = must_call<ModelConfigResponse>("ModelConfig", "image").config();
  const json same = get_json("/v2/models/image/config");
  const json metadata = get_json("/v2/models/image");
  ASSERT_EQ(config.input_size(), 1);
  EXPECT_EQ(config.input(0).format(), kFormatNchw);
  EXPECT_THAT(config.input(0).dims(), ElementsAre(3, 2, 2));
  EXPECT_GT(config.max_batch_size(), 0);
  EXPECT_EQ(same.at("input").size(), 1U);
  EXPECT_EQ(same.at("input").at(0).at("format"), "FORMAT_NCHW");
  EXPECT_EQ(same.at("max_batch_size"), config.max_batch_size());
  EXPECT_EQ(metadata.at("inputs").at(0).at("shape"), (json{-1, 3, 2, 2}));
  EXPECT_EQ(metadata.at("outputs").at(0).at("datatype"), "FP32");
  EXPECT_EQ(metadata.at("outputs").at(0).at("shape"), (json{-1, 12}));
}

// perf_analyzer reads the configuration of each step of an ensemble.
TEST_F(Metadata, HttpConfigurationOfAnApplicationIsAnEnsembleOfItsModels) {
  const json config = get_json("/v2/models/chain/config");
  EXPECT_EQ(config.at("platform"), "ensemble");
  std::vector<std::string> models;
  for (const json& step : config.at("ensemble_scheduling").at("step")) {
    models.push_back(step.at("model_name").get<std::string>());
    EXPECT_TRUE(step.at("model_version").is_number_integer());
    EXPECT_TRUE(step.at("input_map").is_object());
    EXPECT_TRUE(step.at("output_map").is_object());
    EXPECT_EQ(get_json("/v2/models/" + models.back() + "/config").at("name"), models.back());
  }
  EXPECT_THAT(models, ElementsAre("values", "scores"));
}

TEST_F(Metadata, GrpcConfigurationOfAnApplicationIsAnEnsembleOfItsModels) {
  const ModelConfig config = must_call<ModelConfigResponse>("ModelConfig", "chain").config();
  EXPECT_EQ(config.platform(), "ensemble");
  ASSERT_EQ(config.ensemble_scheduling().step_size(), 2);
  EXPECT_EQ(config.ensemble_scheduling().step(0).model_name(), "values");
  EXPECT_EQ(config.ensemble_scheduling().step(1).model_name(), "scores");
  EXPECT_FALSE(config.has_dynamic_batching());
}

TEST_F(Metadata, AnotherMethodIsNotAllowed) {
  EXPECT_EQ(http().post("/v2/models/simple").status, 405);
  EXPECT_EQ(http().get("/v2/models/simple/infer").status, 405);
}

}  // namespace
}  // namespace gpulet::conformance
