// An application with real sockets and processes.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "gpulet/load/call.h"
#include "tests/support/cluster/cluster.h"
#include "tests/support/cluster/stream_client.h"
#include "tests/support/serve/world.h"

namespace gpulet::testing {
namespace {

using std::chrono::seconds;

constexpr std::size_t kNumbers = 10;

// An application like "game": parallel digit models whose outputs are joined, and an image model.
// Simulated models return their inputs.
constexpr const char* kGame = R"([{"name":"game",
  "inputs":[{"name":"digits","type":"FP32","shape":[3,10]},
            {"name":"image","type":"FP32","shape":[10]}],
  "nodes":[{"name":"d0","model":"reader","inputs":["request.digits[0]"]},
           {"name":"d1","model":"reader","inputs":["request.digits[1]"]},
           {"name":"d2","model":"reader","inputs":["request.digits[2]"]},
           {"name":"read","step":"argmax","inputs":["d0.y","d1.y","d2.y"]},
           {"name":"look","model":"seer","inputs":["request.image"]}],
  "outputs":[{"name":"digits","from":"read.index"},{"name":"scene","from":"look.y"}],
  "slo_ms":2000,"rate":5}])";

config::ModelConfig model_of(const std::string& name) {
  config::ModelConfig model;
  model.name = name;
  model.file =
      std::filesystem::path(GPULET_SOURCE_DIR) / "README.md";  // the contents do not matter
  model.inputs = {{"x", DataType::fp32, {kNumbers}}};
  model.outputs = {{"y", DataType::fp32, {kNumbers}}};
  model.slo_ms = 1000;
  model.rate = 10;
  model.max_batch = 8;
  return model;
}

// The highest value of digit i is at index (tag + i) % 10.
InferRequest game_request(std::uint64_t tag) {
  std::vector<float> numbers(4 * kNumbers, 0.0F);
  for (std::size_t i = 0; i < 3; ++i) numbers[i * kNumbers + (tag + i) % kNumbers] = 1;
  numbers[3 * kNumbers] = static_cast<float>(tag);
  std::vector<std::byte> payload(numbers.size() * sizeof(float));
  std::memcpy(payload.data(), numbers.data(), payload.size());
  InferRequest request;
  request.tag = tag;
  request.model = "game";
  request.inputs = {{"digits", DataType::fp32, {3, kNumbers}},
                    {"image", DataType::fp32, {kNumbers}}};
  request.payload = Bytes::own(std::move(payload));
  return request;
}

TEST(ApplicationsTest, EachRequestIsAnsweredOnceWithAllOutputs) {
  Cluster cluster({model_of("reader"), model_of("seer")},
                  serve::testing::card_profile({{"reader", 2}, {"seer", 6}}), {}, kGame);
  cluster.add_backend("n0");
  cluster.wait_until_serving();
  const auto models = load::fetch_models({"127.0.0.1", cluster.client_port()});
  ASSERT_TRUE(models.ok()) << models.status().to_string();
  ASSERT_EQ(models.value().size(), 3U);
  EXPECT_EQ(models.value()[0].name, "game");
  EXPECT_EQ(models.value()[0].outputs[0], (TensorSpec{"digits", DataType::int64, {3}}));

  StreamClient client(cluster.client_port());
  constexpr std::uint64_t kRequests = 20;
  for (std::uint64_t tag = 1; tag <= kRequests; ++tag) client.send(game_request(tag));
  ASSERT_TRUE(client.run_until([&] { return client.replies().size() == kRequests; }, seconds(10)));
  for (const auto& [tag, replies] : client.replies()) {
    ASSERT_EQ(replies.size(), 1U);
    ASSERT_TRUE(replies[0].status.ok()) << replies[0].status.to_string();
    ASSERT_EQ(replies[0].payload.size(), 2U);
    std::int64_t digits[3] = {};
    ASSERT_EQ(replies[0].payload[0].size(), sizeof(digits));
    std::memcpy(digits, replies[0].payload[0].view().data(), sizeof(digits));
    for (std::uint64_t i = 0; i < 3; ++i)
      EXPECT_EQ(digits[i], static_cast<std::int64_t>((tag + i) % kNumbers));
    float scene = 0;
    std::memcpy(&scene, replies[0].payload[1].view().data(), sizeof(scene));
    EXPECT_EQ(scene, static_cast<float>(tag));
  }
  const serve::ModelStatus row = cluster.status().models.at(2);
  EXPECT_EQ(row.name, "game");
  EXPECT_EQ(row.counters.served, kRequests);
}

}  // namespace
}  // namespace gpulet::testing
