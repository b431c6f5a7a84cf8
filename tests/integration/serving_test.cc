// The path of a request with real sockets and processes.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "gpulet/load/call.h"
#include "tests/support/cluster/cluster.h"
#include "tests/support/cluster/stream_client.h"

namespace gpulet::testing {
namespace {

using std::chrono::seconds;

TEST(ServingTest, EachAnswerGoesToItsClient) {
  Cluster cluster({{"a", 2, 500, 100, 1000}, {"b", 2, 500, 100, 70000}});
  cluster.add_backend("n0", 2);
  cluster.wait_until_serving();
  StreamClient one(cluster.client_port());
  StreamClient two(cluster.client_port());
  constexpr std::uint64_t kRequests = 200;
  for (std::uint64_t tag = 1; tag <= kRequests; ++tag) {
    one.send(byte_request("a", tag, 1000));
    two.send(byte_request("b", tag + 77, 70000));
  }
  ASSERT_TRUE(one.run_until([&] { return one.replies().size() == kRequests; }, seconds(20)));
  ASSERT_TRUE(two.run_until([&] { return two.replies().size() == kRequests; }, seconds(20)));
  std::size_t served = 0;
  for (const StreamClient* client : {&one, &two}) {
    for (const auto& [tag, replies] : client->replies()) {
      ASSERT_EQ(replies.size(), 1U);
      if (!replies[0].status.ok()) continue;  // dropped: the burst exceeds the planned rate
      ++served;
      ASSERT_EQ(replies[0].payload.size(), 1U);
      for (const std::byte byte : replies[0].payload[0].view()) {
        ASSERT_EQ(byte, static_cast<std::byte>(tag & 0xffU));
      }
    }
  }
  EXPECT_GT(served, 20U);
}

// Simulated devices answer with the input.
TEST(ServingTest, SyntheticInputsAreMadeByTheProxyWhereTheyAreAllowed) {
  for (const bool allowed : {false, true}) {
    ClusterChanges changes;
    changes.frontend = [allowed](config::FrontendConfig& config) {
      config.synthetic_inputs = allowed;
    };
    Cluster cluster({{"a", 2, 500, 100, 200000}}, {}, changes);
    cluster.add_backend("n0");
    cluster.wait_until_serving();
    StreamClient client(cluster.client_port());
    InferRequest real = byte_request("a", 7, 200000);
    real.timeout = seconds(20);
    InferRequest synthetic = real;
    synthetic.payload = Bytes();
    synthetic.synthetic = true;
    for (int round = 0; round < 4; ++round) {
      real.tag += 2;
      synthetic.tag = real.tag + 1;
      const auto first = client.ask(real, seconds(20));
      ASSERT_TRUE(first && first->status.ok());
      EXPECT_EQ(first->payload.at(0).view()[100], std::byte{7});
      const auto reply = client.ask(synthetic, seconds(20));
      ASSERT_TRUE(reply);
      if (!allowed) {
        EXPECT_EQ(reply->status.code(), StatusCode::forbidden);
        continue;
      }
      ASSERT_TRUE(reply->status.ok()) << reply->status.to_string();
      ASSERT_EQ(reply->payload.at(0).size(), 200000U);
      for (const std::byte byte : reply->payload[0].view()) ASSERT_EQ(byte, std::byte{0});
    }
    EXPECT_EQ(cluster.status().models.at(0).counters.served, allowed ? 8U : 4U);
  }
}

TEST(ServingTest, DevicesOfDifferentTypesServeOneModel) {
  Cluster cluster({{"a", 40, 1000, 45}});  // one device alone serves about 40/s
  cluster.add_backend("n0", 1, "card");
  cluster.add_backend("n1", 1, "slow_card");
  cluster.wait_until_serving();
  std::set<std::string> nodes;
  for (const serve::GpuletStatus& gpulet : cluster.status().gpulets)
    nodes.insert(gpulet.gpulet.device.node);
  EXPECT_EQ(nodes, (std::set<std::string>{"n0", "n1"}));
  StreamClient client(cluster.client_port());
  constexpr std::uint64_t kRequests = 40;
  const std::chrono::milliseconds patience = seconds(20);
  for (std::uint64_t tag = 1; tag <= kRequests; ++tag) {
    InferRequest request = byte_request("a", tag);
    request.timeout = patience;
    client.send(request);
  }
  ASSERT_TRUE(client.run_until([&] { return client.replies().size() == kRequests; }, patience));
  for (const auto& [tag, replies] : client.replies())
    EXPECT_TRUE(replies.front().status.ok()) << replies.front().status.to_string();
}

TEST(ServingTest, TheFrontendReturnsItsModelsAndStatus) {
  Cluster cluster({{"a"}});
  cluster.add_backend("n0");
  cluster.wait_until_serving();
  const config::Endpoint target{"127.0.0.1", cluster.client_port()};
  const auto models = load::fetch_models(target);
  ASSERT_TRUE(models.ok()) << models.status().to_string();
  ASSERT_EQ(models.value().size(), 1U);
  EXPECT_EQ(models.value()[0].name, "a");
  // A plan for the first rates may come into force just now.
  const auto until = std::chrono::steady_clock::now() + seconds(20);
  auto status = load::fetch_status(target);
  const auto has = [&status](const char* text) {
    return status.ok() && status.value().find(text) != std::string::npos;
  };
  while (status.ok() && !has(R"("state":"serving")") && std::chrono::steady_clock::now() < until)
    status = load::fetch_status(target);
  ASSERT_TRUE(status.ok()) << status.status().to_string();
  EXPECT_TRUE(has(R"("state":"serving")"));
  EXPECT_TRUE(has(R"("mechanism":"simulated")"));
}

TEST(ServingTest, StoppingAnswersRequestsInFlightFirst) {
  Cluster cluster({{"a", 40, 2000, 20}});
  cluster.add_backend("n0");
  cluster.wait_until_serving();
  StreamClient client(cluster.client_port());
  constexpr std::uint64_t kRequests = 8;
  for (std::uint64_t tag = 1; tag <= kRequests; ++tag) client.send(byte_request("a", tag));
  // Wait until the gpulet has the first batch.
  ASSERT_TRUE(client.run_until(
      [&] { return cluster.status().models[0].counters.offered == kRequests; }, seconds(5)));
  cluster.stop_frontend();
  ASSERT_TRUE(client.run_until([&] { return client.replies().size() == kRequests; }, seconds(5)));
  for (const auto& [tag, replies] : client.replies()) EXPECT_TRUE(replies[0].status.ok()) << tag;
  EXPECT_TRUE(client.run_until([&] { return client.closed(); }, seconds(5)));
}

}  // namespace
}  // namespace gpulet::testing
