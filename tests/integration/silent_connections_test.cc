// Silent connections block no one else: they are closed in favour of others, time out, and some
// connections are reserved for health checks.
#include <gtest/gtest.h>

#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/cluster/cluster.h"
#include "tests/support/cluster/stream_client.h"
#include "tests/support/http_answer.h"

namespace gpulet::testing {
namespace {

using net::asio::ip::tcp;
using std::chrono::milliseconds;
using std::chrono::seconds;
using support::http_status;

constexpr std::uint32_t kPlaces = 16;
constexpr const char* kProbe =
    "GET /v2/health/live HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";

class SilentConnectionsTest : public ::testing::Test {
 protected:
  void start(const std::function<void(config::FrontendConfig&)>& change = {}) {
    ClusterChanges changes;
    changes.frontend = [change](config::FrontendConfig& config) {
      config.max_connections = kPlaces;
      config.max_connections_per_address = kPlaces;
      if (change) change(config);
    };
    const std::vector<ClusterModel> models{{"a", 2, 5000, 20, 16}};
    cluster_ = std::make_unique<Cluster>(models, frontend::CoreObserver(), changes);
    cluster_->add_backend("n0");
    cluster_->wait_until_serving();
  }

  tcp::socket connect(std::uint16_t port, const char* from = "127.0.0.1") {
    tcp::socket socket(io_);
    socket.open(tcp::v4());
    socket.bind({net::asio::ip::make_address(from), 0});
    socket.connect({net::asio::ip::make_address("127.0.0.1"), port});
    return socket;
  }
  std::vector<tcp::socket> say_nothing(std::uint16_t port, std::size_t connections) {
    std::vector<tcp::socket> silent;
    for (std::size_t i = 0; i < connections; ++i) silent.push_back(connect(port));
    return silent;
  }
  static std::string rest_of(tcp::socket& socket) {
    std::string answer;
    boost::system::error_code ignored;
    net::asio::read(socket, net::asio::dynamic_buffer(answer), ignored);
    return answer;
  }
  std::string http(std::uint16_t port, const std::string& text) {
    tcp::socket socket = connect(port);
    boost::system::error_code ignored;
    net::asio::write(socket, net::asio::buffer(text), ignored);
    return rest_of(socket);
  }

  net::asio::io_context io_;
  std::unique_ptr<Cluster> cluster_;
};

TEST_F(SilentConnectionsTest, DoNotBlockTheClientPorts) {
  start();
  const auto own = say_nothing(cluster_->client_port(), 4 * kPlaces);
  const auto over_http = say_nothing(cluster_->http_port(), 4 * kPlaces);
  for (std::uint64_t tag = 1; tag <= 3; ++tag) {
    StreamClient honest(cluster_->client_port());
    const auto reply = honest.ask(byte_request("a", tag, 16), seconds(20));
    ASSERT_TRUE(reply.has_value());
    EXPECT_TRUE(reply->status.ok()) << reply->status.to_string();
    EXPECT_EQ(http_status(http(cluster_->http_port(), kProbe)), 200U);
  }
}

TEST_F(SilentConnectionsTest, DoNotBlockTheMetrics) {
  start();
  const auto silent = say_nothing(cluster_->metrics_port(), 330);
  EXPECT_EQ(http_status(http(cluster_->metrics_port(),
                             "GET /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")),
            200U);
}

TEST_F(SilentConnectionsTest, DoNotBlockBackends) {
  start();
  const auto silent = say_nothing(cluster_->backend_port(), 64);
  cluster_->add_backend("n1");
  StreamClient honest(cluster_->client_port());
  const auto reply = honest.ask(byte_request("a", 1, 16), seconds(20));
  ASSERT_TRUE(reply.has_value());
  EXPECT_TRUE(reply->status.ok()) << reply->status.to_string();
}

TEST_F(SilentConnectionsTest, TimeOutOnEveryPort) {
  start([](config::FrontendConfig& config) { config.first_message = milliseconds(300); });
  for (const std::uint16_t port : {cluster_->client_port(), cluster_->backend_port(),
                                   cluster_->http_port(), cluster_->metrics_port()}) {
    tcp::socket silent = connect(port);
    EXPECT_EQ(rest_of(silent), "");
  }
}

TEST_F(SilentConnectionsTest, BusyConnectionsStayAndProbesAreReserved) {
  start();
  std::vector<std::unique_ptr<StreamClient>> busy;
  for (std::uint32_t i = 0; i < kPlaces; ++i) {
    busy.push_back(std::make_unique<StreamClient>(cluster_->client_port()));
    const auto reply = busy.back()->ask(byte_request("a", i + 1, 16), seconds(20));
    ASSERT_TRUE(reply.has_value());
  }
  StreamClient beyond(cluster_->client_port());
  const auto refused = beyond.ask(byte_request("a", 100, 16), seconds(20));
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->status.code(), StatusCode::overloaded);
  EXPECT_FALSE(busy.front()->closed());
}

TEST_F(SilentConnectionsTest, AnAddressAtItsLimitDoesNotBlockOthers) {
  start([](config::FrontendConfig& config) { config.max_connections_per_address = 4; });
  std::vector<std::unique_ptr<StreamClient>> busy;
  for (std::uint32_t i = 0; i < 4; ++i) {
    busy.push_back(std::make_unique<StreamClient>(cluster_->client_port()));
    ASSERT_TRUE(busy.back()->ask(byte_request("a", i + 1, 16), seconds(20)).has_value());
  }
  StreamClient beyond(cluster_->client_port());
  const auto refused = beyond.ask(byte_request("a", 100, 16), seconds(20));
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->status.code(), StatusCode::overloaded);
  tcp::socket other = connect(cluster_->http_port(), "127.0.0.2");
  net::asio::write(other, net::asio::buffer(std::string(kProbe)));
  EXPECT_EQ(http_status(rest_of(other)), 200U);
}

}  // namespace
}  // namespace gpulet::testing
