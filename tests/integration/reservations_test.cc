// The frontend reserves no memory for announced bytes and disconnects slow senders: peers that
// announce large messages and send them slowly block no one else.
#include <gtest/gtest.h>

#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/protocol/codec.h"
#include "tests/support/cluster/cluster.h"
#include "tests/support/cluster/stream_client.h"
#include "tests/support/http_answer.h"

namespace gpulet::testing {
namespace {

using net::asio::ip::tcp;
using std::chrono::milliseconds;
using std::chrono::seconds;
using support::http_status;

constexpr std::size_t kLarge = 1U << 20U;  // of the model's input
constexpr std::uint32_t kMegabytes = 4;    // limit of the frontend

std::vector<std::byte> beginning_of(const protocol::OutgoingFrame& frame) {
  const auto head = std::as_bytes(std::span(frame.head));
  std::vector<std::byte> bytes(head.begin(), head.end());
  bytes.resize(bytes.size() + 1);  // one byte of the payload
  return bytes;
}

std::string http_head(std::size_t body, const std::string& model = "a") {
  return "POST /v2/models/" + model +
         "/infer HTTP/1.1\r\nHost: test\r\nInference-Header-Content-Length: 0\r\n"
         "Content-Length: " +
         std::to_string(body) + "\r\nConnection: close\r\n\r\n";
}

class ReservationsTest : public ::testing::Test {
 protected:
  void start(const std::function<void(config::FrontendConfig&)>& change = {}) {
    ClusterChanges changes;
    changes.frontend = [change](config::FrontendConfig& config) {
      config.max_buffered_mb = kMegabytes;
      config.max_payload_bytes = 2 * kLarge;
      if (change) change(config);
    };
    const std::vector<ClusterModel> models{{"a", 2, 5000, 20, kLarge}};
    cluster_ = std::make_unique<Cluster>(models, frontend::CoreObserver(), changes);
    cluster_->add_backend("n0");
    cluster_->wait_until_serving();
  }

  [[nodiscard]] tcp::socket connect(std::uint16_t port) {
    tcp::socket socket(io_);
    socket.connect({net::asio::ip::make_address("127.0.0.1"), port});
    return socket;
  }
  std::string http(const std::string& text) {
    tcp::socket socket = connect(cluster_->http_port());
    boost::system::error_code ignored;  // the server may answer and close before all is sent
    net::asio::write(socket, net::asio::buffer(text), ignored);
    return rest_of(socket);
  }
  static std::string rest_of(tcp::socket& socket) {
    std::string answer;
    boost::system::error_code ignored;
    net::asio::read(socket, net::asio::dynamic_buffer(answer), ignored);
    return answer;
  }

  net::asio::io_context io_;
  std::unique_ptr<Cluster> cluster_;
};

TEST_F(ReservationsTest, SlowPeersWithLargeMessagesBlockNoOther) {
  start();
  const std::vector<std::byte> begun =
      beginning_of(protocol::encode(ClientMessage(byte_request("a", 1, kLarge))));
  std::vector<std::unique_ptr<StreamClient>> slow;
  std::vector<tcp::socket> slow_http;
  for (std::uint32_t i = 0; i < 2 * kMegabytes; ++i) {
    slow.push_back(std::make_unique<StreamClient>(cluster_->client_port()));
    slow.back()->send_raw(begun);
    slow_http.push_back(connect(cluster_->http_port()));
    net::asio::write(slow_http.back(), net::asio::buffer(http_head(kLarge) + "x"));
  }
  StreamClient honest(cluster_->client_port());
  for (std::uint64_t tag = 2; tag < 6; ++tag) {
    const auto reply = honest.ask(byte_request("a", tag, kLarge), seconds(20));
    ASSERT_TRUE(reply.has_value());
    EXPECT_TRUE(reply->status.ok()) << reply->status.to_string();
    EXPECT_EQ(http_status(http(http_head(kLarge) + std::string(kLarge, 'x'))), 200U);
  }
}

TEST_F(ReservationsTest, InvalidPayloadsAreDiscardedAndKeepTheConnection) {
  start();
  StreamClient client(cluster_->client_port());
  const auto wrong = client.ask(byte_request("a", 1, kLarge + 1), seconds(20));
  ASSERT_TRUE(wrong.has_value());
  EXPECT_EQ(wrong->status.code(), StatusCode::invalid);
  const auto unknown = client.ask(byte_request("nobody", 2, kLarge), seconds(20));
  ASSERT_TRUE(unknown.has_value());
  EXPECT_EQ(unknown->status.code(), StatusCode::not_found);
  const auto right = client.ask(byte_request("a", 3, kLarge), seconds(20));
  ASSERT_TRUE(right.has_value());
  EXPECT_TRUE(right->status.ok()) << right->status.to_string();

  EXPECT_EQ(http_status(http(http_head(kLarge, "nobody"))), 404U) << "without reading its body";
}

TEST_F(ReservationsTest, OtherCallsThanInferencesHaveShortBodies) {
  start();
  const std::string call =
      "POST /v2/repository/index HTTP/1.1\r\nHost: test\r\nConnection: close\r\n";
  EXPECT_EQ(http_status(http(call + "Content-Length: 70000\r\n\r\n")), 413U);
  EXPECT_EQ(http_status(http(call + "Content-Length: 2\r\n\r\n{}")), 200U);
  const std::string probe = "GET /v2/health/live HTTP/1.1\r\nHost: test\r\nConnection: close\r\n";
  EXPECT_EQ(http_status(http(probe + "Content-Length: 2\r\n\r\n{}")), 200U);
  EXPECT_EQ(http_status(http(probe + "Content-Length: 70000\r\n\r\n")), 413U);
}

TEST_F(ReservationsTest, SlowSendersGetAnErrorAndAreClosed) {
  start([](config::FrontendConfig& config) { config.receive_grace = milliseconds(200); });
  StreamClient slow(cluster_->client_port());
  slow.send_raw(beginning_of(protocol::encode(ClientMessage(byte_request("a", 1, kLarge)))));
  tcp::socket slow_http = connect(cluster_->http_port());
  net::asio::write(slow_http, net::asio::buffer(http_head(kLarge) + "x"));
  ASSERT_TRUE(slow.run_until([&] { return slow.closed(); }, seconds(20)));
  ASSERT_EQ(slow.replies().count(0), 1U) << "an error before the connection closes";
  EXPECT_EQ(slow.replies().at(0)[0].status.code(), StatusCode::timeout);
  EXPECT_EQ(http_status(rest_of(slow_http)), 408U);
}

TEST_F(ReservationsTest, BackendsMustNotSendPayloadsBeforeHello) {
  start();
  tcp::socket stranger = connect(cluster_->backend_port());
  BatchResult result;
  result.id = {7};
  result.outputs = Bytes::own(std::vector<std::byte>(kLarge));
  const std::vector<std::byte> begun =
      beginning_of(protocol::encode(BackendMessage(std::move(result))));
  net::asio::write(stranger, net::asio::buffer(begun));
  EXPECT_LT(rest_of(stranger).size(), 1000U) << "an error and the end of the connection";
}

}  // namespace
}  // namespace gpulet::testing
