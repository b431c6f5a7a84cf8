// A model with dynamic dimensions, served by real ONNX processes: requests of any length get the
// answers that the model gives them alone, whatever they are padded to and batched with.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "gpulet/core/bucket.h"
#include "tests/support/cluster/cluster.h"
#include "tests/support/cluster/stream_client.h"
#include "tests/support/onnx_models.h"
#include "tests/support/serve/world.h"

namespace gpulet::testing::dynamic_test {
namespace {

constexpr std::chrono::seconds kPatience(120);

ClusterFiles files(const std::string& lengths) {
  ClusterFiles files;
  files.models = R"({"models":[{"name":"m","file":"m.onnx","slo_ms":60000,"rate":40,"max_batch":8,
    "inputs":[{"name":"x","type":"FP32","shape":[-1]}],
    "outputs":[{"name":"twice","type":"FP32","shape":[-1]},
               {"name":"sum","type":"FP32","shape":[1]}],)" +
                 lengths + "}]}";
  files.beside["m.onnx"] = support::onnx::twice_and_sum();
  files.profile = serve::testing::card_profile({{"m@2", 5}, {"m@4", 5}, {"m@8", 5}});
  return files;
}

InferRequest request_of(std::uint64_t tag, std::int64_t length) {
  std::vector<float> numbers;
  for (std::int64_t i = 0; i < length; ++i)
    numbers.push_back(static_cast<float>(tag) + 0.25F * static_cast<float>(i));
  std::vector<std::byte> bytes(numbers.size() * sizeof(float));
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  InferRequest request;
  request.tag = tag;
  request.model = "m";
  request.inputs = {{"x", DataType::fp32, {length}}};
  request.payload = Bytes::own(std::move(bytes));
  return request;
}

std::vector<float> numbers_of(const Bytes& bytes) {
  std::vector<float> numbers(bytes.size() / sizeof(float));
  std::memcpy(numbers.data(), bytes.view().data(), bytes.size());
  return numbers;
}

void expect_answer(const InferRequest& request, const InferReply& reply) {
  ASSERT_TRUE(reply.status.ok()) << reply.status.to_string();
  std::vector<float> twice = numbers_of(request.payload);
  float sum = 0;
  for (float& number : twice) {
    sum += number;
    number *= 2;
  }
  ASSERT_EQ(reply.outputs.size(), 2U);
  EXPECT_EQ(reply.outputs[0].shape, request.inputs[0].shape);
  EXPECT_EQ(reply.outputs[1].shape, std::vector<std::int64_t>{1});
  EXPECT_EQ(numbers_of(reply.payload[0]), twice);
  EXPECT_EQ(numbers_of(reply.payload[1]), std::vector<float>{sum});
}

TEST(DynamicTest, PaddedRequestsOfAnyLengthGetTheirOwnAnswers) {
  Cluster cluster(files(R"("pad":{"value":0,"buckets":[2,4,8]})"));
  cluster.add_onnx_backend("n0");
  cluster.wait_until_serving(kPatience);
  StreamClient client(cluster.client_port());
  std::vector<InferRequest> requests;
  for (std::uint64_t tag = 1; tag <= 64; ++tag)
    requests.push_back(request_of(tag, static_cast<std::int64_t>(1 + tag % 8)));
  for (const InferRequest& request : requests) client.send(request);
  ASSERT_TRUE(
      client.run_until([&] { return client.replies().size() == requests.size(); }, kPatience));
  for (const InferRequest& request : requests)
    expect_answer(request, client.replies().at(request.tag).front());

  // Each bucket has a row of its own, whose rate is that of its requests.
  std::vector<std::string> names;
  std::uint64_t offered = 0;
  for (const serve::ModelStatus& model : cluster.status().models) {
    names.push_back(model.name);
    offered += model.counters.offered;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"m@2", "m@4", "m@8"}));
  EXPECT_EQ(offered, requests.size());
}

TEST(DynamicTest, RequestsThatFitNoBucketAreRefused) {
  Cluster cluster(files(R"("pad":{"value":0,"buckets":[2,4,8]})"));
  cluster.add_onnx_backend("n0");
  cluster.wait_until_serving(kPatience);
  const auto code_of = [&](const InferRequest& request) {
    StreamClient client(cluster.client_port());
    const auto reply = client.ask(request, kPatience);
    return reply ? reply->status.code() : StatusCode::internal;
  };
  EXPECT_EQ(code_of(request_of(1, 8)), StatusCode::ok);
  EXPECT_EQ(code_of(request_of(1, 9)), StatusCode::invalid);
  InferRequest to_bucket = request_of(1, 8);
  to_bucket.model = "m@8";
  EXPECT_EQ(code_of(to_bucket), StatusCode::not_found);
}

TEST(DynamicTest, WithoutPaddingARequestHasOneOfTheLengths) {
  Cluster cluster(files(R"("lengths":[2,4,8])"));
  cluster.add_onnx_backend("n0");
  cluster.wait_until_serving(kPatience);
  StreamClient client(cluster.client_port());
  for (std::int64_t length = 1; length <= 8; ++length) {
    const InferRequest request = request_of(static_cast<std::uint64_t>(length), length);
    const auto reply = client.ask(request, kPatience);
    ASSERT_TRUE(reply.has_value());
    if (length == 2 || length == 4 || length == 8) {
      expect_answer(request, *reply);
    } else {
      EXPECT_EQ(reply->status.code(), StatusCode::invalid);
    }
  }
}

}  // namespace
}  // namespace gpulet::testing::dynamic_test
