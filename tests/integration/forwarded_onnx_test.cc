// ONNX models with strings and with a dynamic dimension in a cluster: the answers are the same
// whichever frontend takes the request.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "gpulet/core/tensor.h"
#include "tests/conformance/grpc_client.h"
#include "tests/conformance/http_client.h"
#include "tests/integration/cluster_of_processes.h"
#include "tests/support/cluster/stream_client.h"
#include "tests/support/onnx_models.h"

namespace gpulet::testing::forwarded_onnx_test {
namespace {

using nlohmann::json;

constexpr std::chrono::seconds kPatience(60);

json tensor(const std::string& name, const std::string& type, const std::vector<int>& shape) {
  return {{"name", name}, {"type", type}, {"shape", shape}};
}

json text_tensor(const std::string& name) {
  json one = tensor(name, "BYTES", {1});
  one["max_bytes"] = 64;
  return one;
}

ClusterOfProcesses::Options options() {
  ClusterOfProcesses::Options options;
  const json common{{"slo_ms", 30000}, {"rate", 1}, {"max_batch", 4}};
  json tokens = common;
  tokens["name"] = "tokens";
  tokens["file"] = "tokens.onnx";
  tokens["inputs"] = json::array({text_tensor("text")});
  tokens["outputs"] = json::array(
      {tensor("words", "BYTES", {4}), tensor("ids", "INT64", {4}), text_tensor("loud")});
  json sums = common;
  sums["name"] = "sums";
  sums["file"] = "sums.onnx";
  sums["inputs"] = json::array({tensor("x", "FP32", {-1})});
  sums["outputs"] = json::array({tensor("twice", "FP32", {-1}), tensor("sum", "FP32", {1})});
  sums["pad"] = {{"value", 0}, {"buckets", {2, 4}}};
  options.onnx_models = json::array({tokens, sums});
  options.onnx_files = {{"tokens.onnx", support::onnx::tokeniser()},
                        {"sums.onnx", support::onnx::twice_and_sum()}};
  options.onnx_ms = {{"tokens", 20}, {"sums@2", 20}, {"sums@4", 20}};
  return options;
}

class ForwardedOnnx : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(cluster_.all_serve()); }

  // The answer of that frontend over HTTP.
  [[nodiscard]] json ask(std::size_t frontend, const std::string& model, const json& body) const {
    conformance::HttpConnection http(cluster_.ports(frontend).http);
    const auto answer = http.post("/v2/models/" + model + "/infer", body.dump());
    return {{"status", answer.status}, {"body", json::parse(answer.body, nullptr, false)}};
  }
  [[nodiscard]] static json output(const json& answer, std::size_t index) {
    return answer.at("body").at("outputs").at(index).at("data");
  }
  ClusterOfProcesses cluster_{options()};
};

TEST_F(ForwardedOnnx, EveryFrontendAnswersStrings) {
  const json body{{"inputs",
                   {{{"name", "text"},
                     {"datatype", "BYTES"},
                     {"shape", {2, 1}},
                     {"data", {"hello big world", "world"}}}}}};
  for (std::size_t i = 0; i < ClusterOfProcesses::kFrontends; ++i) {
    json answer;
    ASSERT_TRUE(comes_true([&] {
      answer = ask(i, "tokens", body);
      return answer.at("status") == 200;
    })) << i
        << " " << answer;
    EXPECT_EQ(output(answer, 0), json({"hello", "big", "world", "", "world", "", "", ""})) << i;
    EXPECT_EQ(output(answer, 1), json({7, -1, 8, -1, 8, -1, -1, -1})) << i;
    EXPECT_EQ(output(answer, 2), json({"hello big world!", "world!"})) << i;

    conformance::GrpcConnection grpc(cluster_.ports(i).grpc);
    conformance::InferRequest request;
    request.set_model_name("tokens");
    auto& text = *request.add_inputs();
    text.set_name("text");
    text.set_datatype("BYTES");
    text.add_shape(1);
    text.add_shape(1);
    std::string raw;
    append_element(raw, "hello");
    request.add_raw_input_contents(raw);
    const auto reply = grpc.call<conformance::InferResponse>("ModelInfer", request);
    ASSERT_TRUE(reply.status.ok()) << i << " " << reply.status.error_message();
    std::string loud;
    append_element(loud, "hello!");
    EXPECT_EQ(reply.message.raw_output_contents(2), loud) << i;
  }
}

TEST_F(ForwardedOnnx, EveryFrontendRefusesWrongElements) {
  for (std::size_t i = 0; i < ClusterOfProcesses::kFrontends; ++i) {
    EXPECT_TRUE(comes_true([&] { return cluster_.serves(i); }));
    StreamClient client(cluster_.ports(i).clients);
    InferRequest request;
    request.tag = 1;
    request.model = "tokens";
    request.inputs = {{"text", DataType::bytes, {1}}};
    std::string raw;
    append_element(raw, std::string(100, 'x'));  // above max_bytes
    const auto bytes = std::as_bytes(std::span(raw));
    request.payload = Bytes::own({bytes.begin(), bytes.end()});
    const auto reply = client.ask(request, kPatience);
    ASSERT_TRUE(reply.has_value());
    EXPECT_EQ(reply->status.code(), StatusCode::invalid) << i << reply->status.to_string();
  }
}

TEST_F(ForwardedOnnx, EveryFrontendPadsAndCuts) {
  for (std::size_t i = 0; i < ClusterOfProcesses::kFrontends; ++i) {
    for (int length = 1; length <= 5; ++length) {
      std::vector<float> numbers;
      std::vector<float> twice;
      float sum = 0;
      for (int n = 1; n <= length; ++n) {
        numbers.push_back(static_cast<float>(n));
        twice.push_back(2 * static_cast<float>(n));
        sum += static_cast<float>(n);
      }
      const json body{
          {"inputs",
           {{{"name", "x"}, {"datatype", "FP32"}, {"shape", {1, length}}, {"data", numbers}}}}};
      json answer;
      ASSERT_TRUE(comes_true([&] {
        answer = ask(i, "sums", body);
        return answer.at("status") == (length <= 4 ? 200 : 400);
      })) << i
          << " " << length << " " << answer;
      if (length > 4) continue;
      EXPECT_EQ(answer.at("body").at("outputs").at(0).at("shape"), json({1, length}));
      EXPECT_EQ(output(answer, 0), json(twice)) << i;
      EXPECT_EQ(output(answer, 1), json({sum})) << i;
    }
  }
}

}  // namespace
}  // namespace gpulet::testing::forwarded_onnx_test
