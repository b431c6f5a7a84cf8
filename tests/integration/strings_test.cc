// A model with strings, like a tokeniser, through frontend, backend and gpulet-proxy-onnx, over
// every protocol.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gpulet/core/tensor.h"
#include "tests/conformance/grpc_client.h"
#include "tests/conformance/http_client.h"
#include "tests/conformance/shared_region.h"
#include "tests/support/cluster/cluster.h"
#include "tests/support/cluster/stream_client.h"
#include "tests/support/names.h"
#include "tests/support/onnx_models.h"
#include "tests/support/serve/world.h"

namespace gpulet::testing::strings_test {
namespace {

using conformance::HttpAnswer;
using conformance::InferRequest;
using conformance::InferResponse;
using nlohmann::json;
using support::names;
using ::testing::ElementsAre;

constexpr Duration kPatience = std::chrono::seconds(60);
constexpr std::size_t kMostText = 64;  // bytes of a request's text, with its length

template <typename... Texts>
std::string elements(const Texts&... texts) {
  std::string raw;
  (append_element(raw, texts), ...);
  return raw;
}

std::string raw_of(const std::vector<std::int64_t>& numbers) {
  std::string raw(numbers.size() * sizeof(std::int64_t), '\0');
  std::memcpy(raw.data(), numbers.data(), raw.size());
  return raw;
}

Bytes bytes_of(const std::string& text) {
  const auto raw = std::as_bytes(std::span(text));
  return Bytes::own({raw.begin(), raw.end()});
}

std::string text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.view().data()), bytes.size()};
}

class StringsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ClusterFiles files;
    files.models = json{
        {"models",
         {{{"name", "tokens"},
           {"file", "tokens.onnx"},
           {"inputs",
            {{{"name", "text"}, {"type", "BYTES"}, {"shape", {1}}, {"max_bytes", kMostText}}}},
           {"outputs",
            {{{"name", "words"}, {"type", "BYTES"}, {"shape", {4}}},
             {{"name", "ids"}, {"type", "INT64"}, {"shape", {4}}},
             {{"name", "loud"}, {"type", "BYTES"}, {"shape", {1}}, {"max_bytes", kMostText}}}},
           {"slo_ms", 30000},
           {"rate", 1},
           {"max_batch",
            4}}}}}.dump();
    files.beside["tokens.onnx"] = support::onnx::tokeniser();
    files.profile = serve::testing::card_profile({{"tokens", 100}});
    ClusterChanges changes;
    changes.frontend = [](config::FrontendConfig& config) { config.shared_memory = true; };
    cluster_ = std::make_unique<Cluster>(files, changes);
    cluster_->add_onnx_backend("n0");
    cluster_->wait_until_serving(kPatience);
  }
  static void TearDownTestSuite() { cluster_.reset(); }

  static InferReply ask(const std::string& payload) {
    StreamClient client(cluster_->client_port());
    gpulet::InferRequest request;
    request.tag = 1;
    request.model = "tokens";
    request.inputs = {{"text", DataType::bytes, {1}}};
    request.payload = bytes_of(payload);
    const auto reply = client.ask(request, kPatience);
    if (reply) return *reply;
    InferReply none;
    none.status = {StatusCode::timeout, "no answer"};
    return none;
  }

  static json input(const json& more, std::int64_t rows = 1) {
    json one = {{"name", "text"}, {"datatype", "BYTES"}, {"shape", {rows, 1}}};
    one.update(more);
    return {{"inputs", json::array({one})}};
  }

  static InferRequest grpc_request(std::int64_t rows) {
    InferRequest request;
    request.set_model_name("tokens");
    auto& text = *request.add_inputs();
    text.set_name("text");
    text.set_datatype("BYTES");
    text.add_shape(rows);
    text.add_shape(1);
    return request;
  }

  static void expect_tokens(const InferResponse& response) {
    ASSERT_EQ(response.raw_output_contents_size(), 3);
    EXPECT_EQ(response.outputs(0).datatype(), "BYTES");
    EXPECT_THAT(response.outputs(0).shape(), ElementsAre(2, 4));
    EXPECT_EQ(response.raw_output_contents(0),
              elements("hello", "big", "world", "", "world", "", "", ""));
    EXPECT_EQ(response.raw_output_contents(1), raw_of({7, -1, 8, -1, 8, -1, -1, -1}));
    EXPECT_EQ(response.raw_output_contents(2), elements("hello big world!", "world!"));
  }

  static inline std::unique_ptr<Cluster> cluster_;
};

TEST_F(StringsTest, TheStreamProtocolCarriesElements) {
  const InferReply reply = ask(elements("hello world"));
  ASSERT_TRUE(reply.status.ok()) << reply.status.to_string();
  ASSERT_EQ(reply.payload.size(), 3U);
  EXPECT_EQ(text_of(reply.payload[0]), elements("hello", "world", "", ""));
  EXPECT_EQ(text_of(reply.payload[1]), raw_of({7, 8, -1, -1}));
  EXPECT_EQ(text_of(reply.payload[2]), elements("hello world!"));
}

TEST_F(StringsTest, WrongElementsAreRefusedByName) {
  for (const std::string& payload :
       {std::string(), elements("a", "b"), std::string("\5\0\0\0abc", 7),
        elements(std::string(kMostText, 'x')), std::string("\xff\xff\xff\xff", 4)}) {
    const InferReply reply = ask(payload);
    EXPECT_EQ(reply.status.code(), StatusCode::invalid) << reply.status.to_string();
  }
  EXPECT_TRUE(
      names(ask(elements(std::string(kMostText, 'x'))).status, "text", std::to_string(kMostText)));
}

// Its own request fails, and the model goes on.
TEST_F(StringsTest, AnOutputAboveItsLimitFailsItsRequest) {
  const InferReply reply = ask(elements(std::string(kMostText - 4, 'x')));
  EXPECT_EQ(reply.status.code(), StatusCode::invalid);
  EXPECT_TRUE(names(reply.status, "loud", "max_bytes"));
  EXPECT_TRUE(ask(elements("hello")).status.ok());
}

TEST_F(StringsTest, HttpTakesAndGivesStringsInJson) {
  conformance::HttpConnection http(cluster_->http_port());
  const auto outputs =
      read_outputs(http.post("/v2/models/tokens/infer",
                             input({{"data", {"hello big world", "w\u00f6rld \"x\""}}}, 2).dump()));
  EXPECT_EQ(outputs.at("words").datatype, "BYTES");
  EXPECT_EQ(outputs.at("words").data,
            json({"hello", "big", "world", "", "w\u00f6rld", "\"x\"", "", ""}));
  EXPECT_EQ(outputs.at("ids").data, json({7, -1, 8, -1, -1, -1, -1, -1}));
  EXPECT_EQ(outputs.at("loud").data, json({"hello big world!", "w\u00f6rld \"x\"!"}));
}

TEST_F(StringsTest, HttpTakesAndGivesBinaryStrings) {
  conformance::HttpConnection http(cluster_->http_port());
  const std::string text = elements("hello world", "big");
  json request = input({{"parameters", {{"binary_data_size", text.size()}}}}, 2);
  request["parameters"] = {{"binary_data_output", true}};
  const auto outputs = read_outputs(http.infer("tokens", request, text));
  EXPECT_EQ(outputs.at("words").bytes, elements("hello", "world", "", "", "big", "", "", ""));
  EXPECT_EQ(outputs.at("loud").bytes, elements("hello world!", "big!"));
}

TEST_F(StringsTest, HttpTakesOneStringAsItsBody) {
  conformance::HttpConnection http(cluster_->http_port());
  const auto outputs = read_outputs(http.ask("POST", "/v2/models/tokens/infer", "hello world",
                                             {{"Inference-Header-Content-Length", "0"}}));
  EXPECT_EQ(outputs.at("loud").bytes, elements("hello world!"));
}

TEST_F(StringsTest, StringsThatAreNoUtf8NeedBinaryData) {
  conformance::HttpConnection http(cluster_->http_port());
  const std::string text = elements("\xff\xfe");
  json request = input({{"parameters", {{"binary_data_size", text.size()}}}});
  request["outputs"] = {{{"name", "loud"}}};
  const HttpAnswer answer = http.infer("tokens", request, text);
  EXPECT_EQ(answer.status, 400);
  EXPECT_TRUE(names(answer.body, "binary_data"));
  request["outputs"][0]["parameters"] = {{"binary_data", true}};
  const auto outputs = read_outputs(http.infer("tokens", request, text));
  EXPECT_EQ(outputs.at("loud").bytes, elements("\xff\xfe!"));
}

TEST_F(StringsTest, GrpcTakesRawContents) {
  conformance::GrpcConnection grpc(cluster_->grpc_port());
  InferRequest request = grpc_request(2);
  request.add_raw_input_contents(elements("hello big world", "world"));
  const auto answer = grpc.call<InferResponse>("ModelInfer", request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  expect_tokens(answer.message);
}

TEST_F(StringsTest, GrpcTakesBytesContents) {
  conformance::GrpcConnection grpc(cluster_->grpc_port());
  InferRequest request = grpc_request(2);
  auto& contents = *request.mutable_inputs(0)->mutable_contents();
  contents.add_bytes_contents("hello big world");
  contents.add_bytes_contents("world");
  const auto answer = grpc.call<InferResponse>("ModelInfer", request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  expect_tokens(answer.message);
}

TEST_F(StringsTest, SharedMemoryHoldsInputsAndOutputs) {
  conformance::HttpConnection http(cluster_->http_port());
  const std::string text = elements("hello world");
  const conformance::SharedRegion given("strings_in", text);
  const conformance::SharedRegion taken("strings_out", kMostText);
  for (const auto* const region : {&given, &taken}) {
    const json body = {
        {"key", region->key()}, {"offset", 0}, {"byte_size", region->bytes().size()}};
    const auto answer =
        http.post("/v2/systemsharedmemory/region/" + region->name() + "/register", body.dump());
    ASSERT_EQ(answer.status, 200) << answer.body;
  }
  json request =
      input({{"parameters",
              {{"shared_memory_region", given.name()}, {"shared_memory_byte_size", text.size()}}}});
  request["outputs"] = {
      {{"name", "loud"},
       {"parameters",
        {{"shared_memory_region", taken.name()}, {"shared_memory_byte_size", kMostText}}}}};
  const HttpAnswer answer = http.infer("tokens", request);
  ASSERT_EQ(answer.status, 200) << answer.body;
  const std::string loud = elements("hello world!");
  EXPECT_EQ(taken.bytes().substr(0, loud.size()), loud);
}

TEST_F(StringsTest, ItsConfigurationHasStrings) {
  conformance::HttpConnection http(cluster_->http_port());
  const json metadata = json::parse(http.get("/v2/models/tokens").body);
  EXPECT_EQ(metadata["inputs"][0]["datatype"], "BYTES");
  EXPECT_EQ(metadata["inputs"][0]["shape"], json({-1, 1}));
  const json config = json::parse(http.get("/v2/models/tokens/config").body);
  EXPECT_EQ(config["input"][0]["data_type"], "TYPE_STRING");
}

}  // namespace
}  // namespace gpulet::testing::strings_test
