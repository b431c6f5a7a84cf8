// A frontend with no, one and several I/O threads keeps the same promises.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <boost/asio/write.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gpulet/load/call.h"
#include "tests/support/cluster/cluster.h"
#include "tests/support/cluster/stream_client.h"
#include "tests/support/http_answer.h"

namespace gpulet::testing::io_threads_test {
namespace {

namespace asio = net::asio;
using std::chrono::seconds;

class IoThreadsTest : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  [[nodiscard]] static ClusterChanges with_threads() {
    ClusterChanges changes;
    changes.frontend = [](config::FrontendConfig& config) {
      config.io_threads = GetParam();
      config.max_queue = 100'000;
    };
    return changes;
  }
};

// A blocking connection over HTTP.
class HttpConnection {
 public:
  explicit HttpConnection(std::uint16_t port) {
    socket_.connect({asio::ip::address_v4::loopback(), port});
  }

  void send(const std::string& method, const std::string& target, const std::string& headers = "",
            const std::string& body = "") {
    const std::string request = method + " " + target + " HTTP/1.1\r\nHost: x\r\n" + headers +
                                "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
                                body;
    asio::write(socket_, asio::buffer(request));
  }
  // The head and the body of the next answer.
  [[nodiscard]] std::string answer() {
    std::string text;
    while (text.find("\r\n\r\n") == std::string::npos) {
      if (!more(text)) return text;
    }
    const std::size_t body = std::stoul(support::http_header(text, "Content-Length"));
    while (support::http_body(text).size() < body) {
      if (!more(text)) return text;
    }
    return text;
  }

 private:
  bool more(std::string& text) {
    std::array<char, 65536> block{};
    boost::system::error_code error;
    const std::size_t bytes = socket_.read_some(asio::buffer(block), error);
    text.append(block.data(), bytes);
    return !error;
  }

  asio::io_context io_;
  asio::ip::tcp::socket socket_{io_};
};

// One UINT8 tensor of `bytes` elements, as binary data.
void send_inference(HttpConnection& connection, const std::string& model, std::size_t bytes,
                    char fill) {
  const std::string json = R"({"inputs":[{"name":"x","shape":[1,)" + std::to_string(bytes) +
                           R"(],"datatype":"UINT8","parameters":{"binary_data_size":)" +
                           std::to_string(bytes) +
                           R"(}}],"parameters":{"binary_data_output":true,"timeout":20000000}})";
  connection.send("POST", "/v2/models/" + model + "/infer",
                  "Inference-Header-Content-Length: " + std::to_string(json.size()) + "\r\n",
                  json + std::string(bytes, fill));
}

TEST_P(IoThreadsTest, EachRequestOfManyClientsGetsItsOwnAnswer) {
  constexpr std::size_t kBytes = 70'000;  // more than an unchecked payload
  constexpr std::uint64_t kRequests = 60;
  Cluster cluster({{"a", 2, 20'000, 300, 1000}, {"b", 2, 20'000, 300, kBytes}}, {}, with_threads());
  cluster.add_backend("n0", 2);
  cluster.wait_until_serving();
  std::atomic<std::uint64_t> right = 0;
  std::vector<std::jthread> clients;
  for (std::uint64_t number = 0; number < 3; ++number) {
    clients.emplace_back([&, number] {
      StreamClient client(cluster.client_port());
      for (std::uint64_t i = 0; i < kRequests; ++i) {
        const std::uint64_t tag = 1 + i + 50 * number;
        InferRequest request =
            i % 2 == 0 ? byte_request("a", tag, 1000) : byte_request("b", tag, kBytes);
        request.timeout = seconds(20);
        client.send(request);
      }
      EXPECT_TRUE(
          client.run_until([&] { return client.replies().size() == kRequests; }, seconds(30)));
      for (const auto& [tag, replies] : client.replies()) {
        ASSERT_EQ(replies.size(), 1U);
        ASSERT_TRUE(replies[0].status.ok()) << replies[0].status.to_string();
        ASSERT_EQ(replies[0].payload.size(), 1U);
        for (const std::byte byte : replies[0].payload[0].view())
          ASSERT_EQ(byte, static_cast<std::byte>(tag & 0xffU));
        ++right;
      }
    });
    clients.emplace_back([&, number] {
      HttpConnection connection(cluster.http_port());
      for (std::uint64_t i = 0; i < kRequests; ++i) {
        const char fill = static_cast<char>('a' + (i + number) % 26);
        send_inference(connection, "b", kBytes, fill);
        const std::string answer = connection.answer();
        ASSERT_EQ(support::http_status(answer), 200U) << answer.substr(0, 1000);
        ASSERT_TRUE(answer.ends_with(std::string(kBytes, fill)));
        ++right;
      }
    });
  }
  clients.clear();
  EXPECT_EQ(right, 6 * kRequests);
}

TEST_P(IoThreadsTest, ModelsMayBeUnloadedAndLoadedMeanwhile) {
  Cluster cluster({{"a", 2, 500, 20, 1000}}, {}, with_threads());
  cluster.add_backend("n0");
  cluster.wait_until_serving();
  HttpConnection connection(cluster.http_port());
  connection.send("GET", "/v2/models/a/ready");
  EXPECT_EQ(support::http_status(connection.answer()), 200U);
  connection.send("POST", "/v2/repository/models/a/unload");
  EXPECT_EQ(support::http_status(connection.answer()), 200U);
  // The answer comes after the change: the list of models is new on every thread.
  send_inference(connection, "a", 1000, 'x');
  EXPECT_EQ(support::http_status(connection.answer()), 404U);
  HttpConnection other(cluster.http_port());
  send_inference(other, "a", 1000, 'x');
  EXPECT_EQ(support::http_status(other.answer()), 404U);
  StreamClient client(cluster.client_port());
  const auto refused = client.ask(byte_request("a", 1, 100'000), seconds(20));
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status.code(), StatusCode::not_found);
  connection.send("POST", "/v2/repository/models/a/load");
  EXPECT_EQ(support::http_status(connection.answer()), 200U);
  send_inference(connection, "a", 1000, 'x');
  EXPECT_EQ(support::http_status(connection.answer()), 200U);
}

TEST_P(IoThreadsTest, AnswersWhatIsNoInference) {
  Cluster cluster({{"a"}}, {}, with_threads());
  cluster.add_backend("n0");
  cluster.wait_until_serving();
  const config::Endpoint target{"127.0.0.1", cluster.client_port()};
  const auto models = load::fetch_models(target);
  ASSERT_TRUE(models.ok()) << models.status().to_string();
  EXPECT_EQ(models.value().size(), 1U);
  EXPECT_TRUE(load::fetch_status(target).ok());
  HttpConnection connection(cluster.http_port());
  for (const char* const path : {"/v2", "/v2/health/ready", "/v2/models/a", "/v2/models/a/config",
                                 "/v2/models/stats", "/v2/logging"}) {
    connection.send("GET", path);
    EXPECT_EQ(support::http_status(connection.answer()), 200U) << path;
  }
}

TEST_P(IoThreadsTest, ClientsThatLeaveTakeTheirRequestsWithThem) {
  Cluster cluster({{"a", 40, 2000, 20}}, {}, with_threads());
  cluster.add_backend("n0");
  cluster.wait_until_serving();
  for (int i = 0; i < 10; ++i) {
    StreamClient client(cluster.client_port());
    for (std::uint64_t tag = 1; tag <= 20; ++tag) client.send(byte_request("a", tag));
    ASSERT_TRUE(client.run_until([&] { return !client.replies().empty(); }, seconds(20)));
  }
  const auto clients = [&cluster] {
    const serve::FrontendStatus status = cluster.status();
    return status.models[0].queued;
  };
  const auto until = std::chrono::steady_clock::now() + seconds(20);
  while (clients() > 0 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  EXPECT_EQ(clients(), 0U);
  StreamClient client(cluster.client_port());
  const auto reply = client.ask(byte_request("a", 1), seconds(20));
  ASSERT_TRUE(reply);
  EXPECT_TRUE(reply->status.ok()) << reply->status.to_string();
}

TEST_P(IoThreadsTest, StoppingAnswersRequestsInFlightFirst) {
  Cluster cluster({{"a", 40, 2000, 20}}, {}, with_threads());
  cluster.add_backend("n0");
  cluster.wait_until_serving();
  std::vector<std::unique_ptr<StreamClient>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<StreamClient>(cluster.client_port()));
    for (std::uint64_t tag = 1; tag <= 3; ++tag) clients.back()->send(byte_request("a", tag));
  }
  HttpConnection connection(cluster.http_port());
  send_inference(connection, "a", 1, 'x');
  ASSERT_TRUE(clients[0]->run_until(
      [&] {
        for (const auto& client : clients) {  // each one sends inside its calls
          (void)client->run_until([turns = 0]() mutable { return turns++ > 0; }, seconds(1));
        }
        return cluster.status().models[0].counters.offered == 10;
      },
      seconds(10)));
  cluster.stop_frontend();
  for (const auto& client : clients) {
    ASSERT_TRUE(client->run_until([&] { return client->replies().size() == 3; }, seconds(5)));
    for (const auto& [tag, replies] : client->replies()) EXPECT_TRUE(replies[0].status.ok()) << tag;
    EXPECT_TRUE(client->run_until([&] { return client->closed(); }, seconds(5)));
  }
  EXPECT_EQ(support::http_status(connection.answer()), 200U);
}

INSTANTIATE_TEST_SUITE_P(Threads, IoThreadsTest, ::testing::Values(0U, 1U, 4U));

}  // namespace
}  // namespace gpulet::testing::io_threads_test
