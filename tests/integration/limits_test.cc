// Each limit has its own error in all three protocols (see the table in docs/security.md) and
// affects no other client.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "kserve.grpc.pb.h"
#include "tests/support/cluster/cluster.h"
#include "tests/support/cluster/stream_client.h"
#include "tests/support/http_answer.h"
#include "tests/support/names.h"

namespace gpulet::testing {
namespace {

using net::asio::ip::tcp;
using std::chrono::seconds;
using support::http_status;
using support::names;

constexpr std::size_t kBytes = 64;  // of the model's input

// A frontend without backends: accepted requests wait.
template <typename Limit>
std::unique_ptr<Cluster> frontend_with(Limit config::FrontendConfig::*limit, std::uint32_t value) {
  ClusterChanges changes;
  changes.frontend = [limit, value](config::FrontendConfig& config) { config.*limit = value; };
  const std::vector<ClusterModel> models{{"a", 2, 500, 50, kBytes}};
  return std::make_unique<Cluster>(models, frontend::CoreObserver(), changes);
}

std::string over_http(std::uint16_t port, std::size_t bytes) {
  net::asio::io_context io;
  tcp::socket socket(io);
  socket.connect({net::asio::ip::make_address("127.0.0.1"), port});
  const std::string text =
      "POST /v2/models/a/infer HTTP/1.1\r\nHost: test\r\nInference-Header-Content-Length: 0\r\n"
      "Content-Length: " +
      std::to_string(bytes) + "\r\nConnection: close\r\n\r\n" + std::string(bytes, 'x');
  boost::system::error_code ignored;  // the server may answer and close before all is sent
  net::asio::write(socket, net::asio::buffer(text), ignored);
  std::string answer;
  net::asio::read(socket, net::asio::dynamic_buffer(answer), ignored);
  return answer;
}

::grpc::Status over_grpc(std::uint16_t port, std::size_t bytes) {
  const auto stub = inference::GRPCInferenceService::NewStub(::grpc::CreateChannel(
      "127.0.0.1:" + std::to_string(port), ::grpc::InsecureChannelCredentials()));
  inference::ModelInferRequest request;
  request.set_model_name("a");
  auto& input = *request.add_inputs();
  input.set_name("x");
  input.set_datatype("UINT8");
  input.add_shape(1);
  input.add_shape(static_cast<std::int64_t>(bytes));
  request.add_raw_input_contents(std::string(bytes, 'x'));
  inference::ModelInferResponse response;
  ::grpc::ClientContext context;
  return stub->ModelInfer(&context, request, &response);
}

// Waits for its answer, because there is no backend.
void occupy(Cluster& cluster, StreamClient& client) {
  InferRequest waiting = byte_request("a", 1, kBytes);
  waiting.timeout = seconds(600);
  client.send(waiting);
  const auto queued = [&] { return cluster.status().models[0].queued == 1; };
  ASSERT_TRUE(client.run_until(queued, seconds(20)));
}

void expect_overloaded(Cluster& cluster, const std::string& limit) {
  StreamClient client(cluster.client_port());
  const auto reply = client.ask(byte_request("a", 2, kBytes), seconds(20));
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->status.code(), StatusCode::overloaded);
  EXPECT_TRUE(names(reply->status, limit));

  const std::string http = over_http(cluster.http_port(), kBytes);
  EXPECT_EQ(http_status(http), 503U);
  EXPECT_TRUE(names(http, limit));

  const ::grpc::Status grpc = over_grpc(cluster.grpc_port(), kBytes);
  EXPECT_EQ(grpc.error_code(), ::grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(names(grpc.error_message(), limit));
}

TEST(LimitsTest, OfRequestsInFlightAreNamed) {
  const auto cluster = frontend_with(&config::FrontendConfig::max_requests, 1);
  StreamClient first(cluster->client_port());
  occupy(*cluster, first);
  expect_overloaded(*cluster, "max_requests");
}

TEST(LimitsTest, OfAModelsQueueNameTheModel) {
  const auto cluster = frontend_with(&config::FrontendConfig::max_queue, 1);
  StreamClient first(cluster->client_port());
  occupy(*cluster, first);
  expect_overloaded(*cluster, "model a");
}

TEST(LimitsTest, OfBytesRejectBeforeReading) {
  constexpr std::uint32_t kMost = 1024;
  const auto cluster = frontend_with(&config::FrontendConfig::max_payload_bytes, kMost);
  StreamClient client(cluster->client_port());
  client.send(byte_request("a", 1, kMost + 1));
  ASSERT_TRUE(client.run_until([&] { return client.closed(); }, seconds(20)));
  ASSERT_EQ(client.replies().count(0), 1U) << "an error before the connection closes";
  const Status farewell = client.replies().at(0)[0].status;
  EXPECT_EQ(farewell.code(), StatusCode::invalid);
  EXPECT_TRUE(names(farewell, "1024"));

  EXPECT_EQ(http_status(over_http(cluster->http_port(), kMost + 1)), 413U);

  const ::grpc::Status grpc = over_grpc(cluster->grpc_port(), kMost + 1);
  EXPECT_EQ(grpc.error_code(), ::grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(names(grpc.error_message(), "1024"));
}

TEST(LimitsTest, OfConnectionsRejectNewOnes) {
  const auto cluster = frontend_with(&config::FrontendConfig::max_connections, 1);
  StreamClient first(cluster->client_port());
  occupy(*cluster, first);
  StreamClient second(cluster->client_port());
  const auto refused = second.ask(byte_request("a", 2, kBytes), seconds(20));
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->status.code(), StatusCode::overloaded);
  EXPECT_FALSE(first.closed());

  net::asio::io_context io;
  tcp::socket other(io);
  other.connect({net::asio::ip::make_address("127.0.0.1"), cluster->http_port()});
  const std::string probe = "GET /v2/health/live HTTP/1.1\r\nHost: test\r\n\r\n";
  net::asio::write(other, net::asio::buffer(probe));
  std::string answer;
  net::asio::read_until(other, net::asio::dynamic_buffer(answer), "\r\n\r\n");
  EXPECT_EQ(http_status(over_http(cluster->http_port(), kBytes)), 503U);
}

}  // namespace
}  // namespace gpulet::testing
