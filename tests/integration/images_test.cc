// A model that takes encoded images through frontend, backend and proxy, over every protocol. The
// proxy is simulated: it answers with the bytes of its input, so with the decoded pixels.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "gpulet/base/files.h"
#include "gpulet/core/tensor.h"
#include "gpulet/image/image.h"
#include "tests/conformance/grpc_client.h"
#include "tests/conformance/http_client.h"
#include "tests/support/cluster/cluster.h"
#include "tests/support/cluster/stream_client.h"
#include "tests/support/names.h"
#include "tests/support/serve/world.h"

namespace gpulet::testing::images_test {
namespace {

using conformance::HttpAnswer;
using nlohmann::json;
using support::names;

constexpr Duration kPatience = std::chrono::seconds(60);
constexpr std::uint32_t kSide = 8;
constexpr std::size_t kPixelBytes = std::size_t{kSide} * kSide * image::kChannels;

std::string file(const std::string& name) {
  const auto bytes =
      read_file(std::string(GPULET_SOURCE_DIR) + "/tests/image/data/" + name).value();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// What the model gets for that file.
std::vector<int> pixels_of(const std::string& name) {
  const std::string encoded = file(name);
  image::Preprocessing preprocessing;
  preprocessing.width = preprocessing.height = kSide;
  preprocessing.layout = image::Layout::nhwc;
  preprocessing.type = DataType::uint8;
  std::vector<std::byte> tensor(kPixelBytes);
  const Status done =
      image::decode_to_tensor(std::as_bytes(std::span(encoded)), preprocessing, tensor);
  EXPECT_TRUE(done.ok()) << done.to_string();
  std::vector<int> pixels;
  for (const std::byte value : tensor) pixels.push_back(std::to_integer<int>(value));
  return pixels;
}

class ImagesTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ClusterFiles files;
    const json input = {{"name", "photo"},    {"type", "UINT8"}, {"shape", {kSide, kSide, 3}},
                        {"format", "NHWC"},   {"encoded", true}, {"max_bytes", 8192},
                        {"max_megapixels", 1}};
    const auto model = [&input](const std::string& name) {
      return json{{"name", name},
                  {"file", "model.pt"},
                  {"inputs", json::array({input})},
                  {"outputs", {{{"name", "pixels"}, {"type", "UINT8"}, {"shape", {kPixelBytes}}}}},
                  {"slo_ms", 30000},
                  {"rate", 1},
                  {"max_batch", 4}};
    };
    json labelled = model("labelled");
    labelled["labels"] = {{"pixels", "labels.txt"}};
    files.models = json{{"models", {model("plain"), labelled}}}.dump();
    files.beside["model.pt"] = "simulated devices do not look inside";
    std::string labels;
    for (std::size_t i = 0; i < kPixelBytes; ++i) labels += "pixel " + std::to_string(i) + '\n';
    files.beside["labels.txt"] = labels;
    files.profile = serve::testing::card_profile({{"plain", 4}, {"labelled", 4}});
    cluster_ = std::make_unique<Cluster>(files);
    cluster_->add_backend("n0");
    cluster_->wait_until_serving(kPatience);
  }
  static void TearDownTestSuite() { cluster_.reset(); }

  static HttpAnswer post(const std::string& model, const std::string& type,
                         const std::string& body) {
    return conformance::HttpConnection(cluster_->http_port())
        .ask("POST", "/v2/models/" + model + "/infer", body, {{"Content-Type", type}});
  }

  static InferReply ask(const std::string& encoded) {
    StreamClient client(cluster_->client_port());
    gpulet::InferRequest request;
    request.tag = 1;
    request.model = "plain";
    request.inputs = {{"photo", DataType::bytes, {1}}};
    std::string element;
    append_element(element, encoded);
    const auto raw = std::as_bytes(std::span(element));
    request.payload = Bytes::own({raw.begin(), raw.end()});
    const auto reply = client.ask(request, kPatience);
    if (reply) return *reply;
    InferReply none;
    none.status = {StatusCode::timeout, "no answer"};
    return none;
  }

  static inline std::unique_ptr<Cluster> cluster_;
};

TEST_F(ImagesTest, HttpTakesAFileAsItsBody) {
  for (const auto& [name, type] :
       {std::pair{"baseline.jpg", "image/jpeg"}, std::pair{"turned6.jpg", "image/jpeg"},
        std::pair{"cmyk.jpg", "image/jpeg"}, std::pair{"colour16.png", "image/png"}}) {
    const HttpAnswer answer = post("plain", type, file(name));
    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(read_outputs(answer).at("pixels").data, json(pixels_of(name))) << name;
  }
}

TEST_F(ImagesTest, HttpTakesAFormAsCurlSendsIt) {
  const auto part = [](const std::string& name) {
    return "--edge\r\nContent-Disposition: form-data; name=\"image\"; filename=\"" + name +
           "\"\r\nContent-Type: application/octet-stream\r\n\r\n" + file(name) + "\r\n";
  };
  const HttpAnswer answer = post("plain", "multipart/form-data; boundary=edge",
                                 part("gray.jpg") + part("palette.png") + "--edge--\r\n");
  ASSERT_EQ(answer.status, 200) << answer.body;
  std::vector<int> both = pixels_of("gray.jpg");
  const std::vector<int> second = pixels_of("palette.png");
  both.insert(both.end(), second.begin(), second.end());
  EXPECT_EQ(read_outputs(answer).at("pixels").data, json(both));
}

TEST_F(ImagesTest, AnswersHaveLabelsWhereTheModelHasThem) {
  const HttpAnswer answer = post("labelled", "image/jpeg", file("baseline.jpg"));
  ASSERT_EQ(answer.status, 200) << answer.body;
  const json data = read_outputs(answer).at("pixels").data;
  ASSERT_EQ(data.size(), 5U);
  EXPECT_NE(data[0].get<std::string>().find(":pixel "), std::string::npos) << data[0];
}

TEST_F(ImagesTest, TheStreamProtocolAndGrpcTakeFilesAsStrings) {
  const InferReply reply = ask(file("progressive.jpg"));
  ASSERT_TRUE(reply.status.ok()) << reply.status.to_string();
  const std::vector<int> pixels = pixels_of("progressive.jpg");
  const auto answered = reply.payload.at(0).view();
  EXPECT_TRUE(
      std::equal(answered.begin(), answered.end(), pixels.begin(), pixels.end(),
                 [](std::byte one, int other) { return std::to_integer<int>(one) == other; }));

  conformance::GrpcConnection grpc(cluster_->grpc_port());
  conformance::InferRequest request;
  request.set_model_name("plain");
  auto& input = *request.add_inputs();
  input.set_name("photo");
  input.set_datatype("BYTES");
  input.add_shape(1);
  input.add_shape(1);
  input.mutable_contents()->add_bytes_contents(file("progressive.jpg"));
  const auto answer = grpc.call<conformance::InferResponse>("ModelInfer", request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.message.raw_output_contents(0).size(), pixels.size());
  EXPECT_EQ(static_cast<unsigned char>(answer.message.raw_output_contents(0).back()),
            pixels.back());
}

TEST_F(ImagesTest, BadFilesAreRefusedAndTheModelGoesOn) {
  for (const std::string name : {"truncated.jpg", "truncated.png", "flipped.png", "huge.jpg",
                                 "huge.png", "wide.cover24.rgb"}) {
    const HttpAnswer answer = post("plain", "image/jpeg", file(name));
    EXPECT_EQ(answer.status, 400) << name << ' ' << answer.body;
    EXPECT_TRUE(names(answer.body, "photo")) << answer.body;
  }
  EXPECT_EQ(post("plain", "image/jpeg", "").status, 400);
  EXPECT_EQ(post("plain", "image/jpeg", std::string(9000, 'x')).status, 400);  // above max_bytes
  EXPECT_EQ(ask(file("truncated.jpg")).status.code(), StatusCode::invalid);
  EXPECT_EQ(post("plain", "image/jpeg", file("baseline.jpg")).status, 200);
}

// Requests of one call are in one batch, as far as the gpulet is busy.
TEST_F(ImagesTest, ABadFileFailsAlone) {
  std::vector<std::future<HttpAnswer>> answers;
  for (int i = 0; i < 12; ++i) {
    const std::string name = i % 3 == 0 ? "truncated.jpg" : "baseline.jpg";
    answers.push_back(
        std::async(std::launch::async, [name] { return post("plain", "image/jpeg", file(name)); }));
  }
  const json wanted = pixels_of("baseline.jpg");
  for (int i = 0; i < 12; ++i) {
    const HttpAnswer answer = answers[static_cast<std::size_t>(i)].get();
    if (i % 3 == 0) {
      EXPECT_EQ(answer.status, 400);
    } else {
      ASSERT_EQ(answer.status, 200) << answer.body;
      EXPECT_EQ(read_outputs(answer).at("pixels").data, wanted);
    }
  }
}

TEST_F(ImagesTest, ClientsSeeStrings) {
  conformance::HttpConnection http(cluster_->http_port());
  const json metadata = json::parse(http.get("/v2/models/plain").body);
  EXPECT_EQ(metadata["inputs"][0]["datatype"], "BYTES");
  EXPECT_EQ(metadata["inputs"][0]["shape"], json({-1, 1}));
}

}  // namespace
}  // namespace gpulet::testing::images_test
