// A model of which clients send bytes in place of its FP32 image, through frontend, backend and
// gpulet-proxy-onnx, over every protocol.
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
#include "tests/support/onnx_file.h"
#include "tests/support/serve/world.h"

namespace gpulet::testing::converted_inputs_test {
namespace {

namespace onnx = support::onnx;
using conformance::HttpAnswer;
using nlohmann::json;
using support::names;

constexpr Duration kPatience = std::chrono::seconds(60);
constexpr std::size_t kNumbers = 2 * 4 * 3;  // of an image of 2 x 4 pixels

// twice = 2 image
std::string twice_image() {
  return encode(onnx::Model{.inputs = {{"image", onnx::kFloat, {{"n", 3, 2, 4}}}},
                            .outputs = {{"twice", onnx::kFloat, {{"n", 3, 2, 4}}}},
                            .nodes = {{"Add", {"image", "image"}, {"twice"}}}});
}

std::string some_bytes(std::size_t images) {
  std::string bytes(images * kNumbers, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(41 * i);
  return bytes;
}

// What the model answers to images in NHWC.
std::vector<float> answer_to(const std::string& bytes) {
  constexpr double kMean[] = {0.485, 0.456, 0.406};
  constexpr double kDeviation[] = {0.229, 0.224, 0.225};
  std::vector<float> numbers(bytes.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::size_t channel = i % 3;
    const std::size_t pixel = i % kNumbers / 3;
    const double byte = static_cast<unsigned char>(bytes[i]);
    numbers[i / kNumbers * kNumbers + channel * 8 + pixel] =
        2 * static_cast<float>((byte / 255 - kMean[channel]) / kDeviation[channel]);
  }
  return numbers;
}

void expect_answer(std::string_view raw, const std::string& bytes) {
  const std::vector<float> expected = answer_to(bytes);
  ASSERT_EQ(raw.size(), expected.size() * sizeof(float));
  std::vector<float> numbers(expected.size());
  std::memcpy(numbers.data(), raw.data(), raw.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) EXPECT_NEAR(numbers[i], expected[i], 1e-5) << i;
}

class ConvertedInputsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ClusterFiles files;
    files.models = json{
        {"models",
         {{{"name", "twice"},
           {"file", "twice.onnx"},
           {"inputs",
            {{{"name", "image"},
              {"type", "FP32"},
              {"shape", {3, 2, 4}},
              {"from",
               {{"type", "UINT8"},
                {"format", "NHWC"},
                {"mean", {0.485, 0.456, 0.406}},
                {"std", {0.229, 0.224, 0.225}}}}}}},
           {"outputs", {{{"name", "twice"}, {"type", "FP32"}, {"shape", {3, 2, 4}}}}},
           {"slo_ms", 30000},
           {"rate", 1},
           {"max_batch",
            4}}}}}.dump();
    files.beside["twice.onnx"] = twice_image();
    files.profile = serve::testing::card_profile({{"twice", 100}});
    ClusterChanges changes;
    changes.frontend = [](config::FrontendConfig& config) { config.shared_memory = true; };
    cluster_ = std::make_unique<Cluster>(files, changes);
    cluster_->add_onnx_backend("n0");
    cluster_->wait_until_serving(kPatience);
  }
  static void TearDownTestSuite() { cluster_.reset(); }

  static InferReply ask(const TensorSpec& input, const std::string& bytes) {
    StreamClient client(cluster_->client_port());
    InferRequest request;
    request.tag = 1;
    request.model = "twice";
    request.inputs = {input};
    const auto raw = std::as_bytes(std::span(bytes));
    request.payload = Bytes::own({raw.begin(), raw.end()});
    const auto reply = client.ask(request, kPatience);
    if (reply) return *reply;
    InferReply none;
    none.status = {StatusCode::timeout, "no answer"};
    return none;
  }

  static json input(std::int64_t rows, const json& more) {
    json one = {{"name", "image"}, {"datatype", "UINT8"}, {"shape", {rows, 2, 4, 3}}};
    one.update(more);
    return {{"inputs", json::array({one})}, {"parameters", {{"binary_data_output", true}}}};
  }

  static inline std::unique_ptr<Cluster> cluster_;
};

TEST_F(ConvertedInputsTest, TheStreamProtocolCarriesBytes) {
  const std::string bytes = some_bytes(1);
  const InferReply reply = ask({"image", DataType::uint8, {2, 4, 3}}, bytes);
  ASSERT_TRUE(reply.status.ok()) << reply.status.to_string();
  ASSERT_EQ(reply.payload.size(), 1U);
  const auto raw = reply.payload[0].view();
  expect_answer({reinterpret_cast<const char*>(raw.data()), raw.size()}, bytes);
}

TEST_F(ConvertedInputsTest, TheModelsOwnTensorIsRefused) {
  const InferReply reply =
      ask({"image", DataType::fp32, {3, 2, 4}}, std::string(kNumbers * sizeof(float), '\0'));
  EXPECT_EQ(reply.status.code(), StatusCode::invalid);
  EXPECT_TRUE(names(reply.status, "twice", "UINT8[2,4,3]"));
}

TEST_F(ConvertedInputsTest, HttpTakesBinaryBytesInBatches) {
  conformance::HttpConnection http(cluster_->http_port());
  for (const std::int64_t rows : {1, 2, 3, 4}) {
    const std::string bytes = some_bytes(static_cast<std::size_t>(rows));
    const json request = input(rows, {{"parameters", {{"binary_data_size", bytes.size()}}}});
    expect_answer(read_outputs(http.infer("twice", request, bytes)).at("twice").bytes, bytes);
  }
}

TEST_F(ConvertedInputsTest, HttpTakesNumbersInJson) {
  conformance::HttpConnection http(cluster_->http_port());
  const std::string bytes = some_bytes(2);
  std::vector<unsigned> numbers;
  for (const char byte : bytes) numbers.push_back(static_cast<unsigned char>(byte));
  const HttpAnswer answer =
      http.post("/v2/models/twice/infer", input(2, {{"data", numbers}}).dump());
  expect_answer(read_outputs(answer).at("twice").bytes, bytes);
}

TEST_F(ConvertedInputsTest, GrpcTakesRawContents) {
  conformance::GrpcConnection grpc(cluster_->grpc_port());
  const std::string bytes = some_bytes(2);
  conformance::InferRequest request;
  request.set_model_name("twice");
  auto& image = *request.add_inputs();
  image.set_name("image");
  image.set_datatype("UINT8");
  for (const std::int64_t size : {2, 2, 4, 3}) image.add_shape(size);
  request.add_raw_input_contents(bytes);
  const auto answer = grpc.call<conformance::InferResponse>("ModelInfer", request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  ASSERT_EQ(answer.message.raw_output_contents_size(), 1);
  expect_answer(answer.message.raw_output_contents(0), bytes);
}

TEST_F(ConvertedInputsTest, SharedMemoryHoldsBytes) {
  conformance::HttpConnection http(cluster_->http_port());
  const std::string bytes = some_bytes(2);
  const conformance::SharedRegion given("converted_in", bytes);
  const json body = {{"key", given.key()}, {"offset", 0}, {"byte_size", bytes.size()}};
  const HttpAnswer registered =
      http.post("/v2/systemsharedmemory/region/" + given.name() + "/register", body.dump());
  ASSERT_EQ(registered.status, 200) << registered.body;
  const json request = input(
      2, {{"parameters",
           {{"shared_memory_region", given.name()}, {"shared_memory_byte_size", bytes.size()}}}});
  expect_answer(read_outputs(http.infer("twice", request)).at("twice").bytes, bytes);
}

TEST_F(ConvertedInputsTest, ClientsSeeWhatTheySend) {
  conformance::HttpConnection http(cluster_->http_port());
  const json metadata = json::parse(http.get("/v2/models/twice").body);
  EXPECT_EQ(metadata["inputs"][0]["datatype"], "UINT8");
  EXPECT_EQ(metadata["inputs"][0]["shape"], json({-1, 2, 4, 3}));
  const json config = json::parse(http.get("/v2/models/twice/config").body);
  EXPECT_EQ(config["input"][0]["data_type"], "TYPE_UINT8");
  EXPECT_EQ(config["input"][0]["format"], "FORMAT_NHWC");
  EXPECT_EQ(config["input"][0]["dims"], json({2, 4, 3}));
}

}  // namespace
}  // namespace gpulet::testing::converted_inputs_test
