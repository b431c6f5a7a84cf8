// The Open Inference Protocol over HTTP with real daemons: proxies answer requests, which show in
// statistics, metrics and traces.
#include <gtest/gtest.h>
#include <signal.h>

#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/cluster/cluster.h"

namespace gpulet::testing {
namespace {

using net::asio::ip::tcp;

// A scripted connection.
class HttpClient {
 public:
  explicit HttpClient(std::uint16_t port) : socket_(io_) {
    socket_.connect({net::asio::ip::make_address("127.0.0.1"), port});
  }
  void send(const std::string& method, const std::string& target, const std::string& body = "") {
    const std::string text = method + " " + target + " HTTP/1.1\r\nHost: test\r\nContent-Length: " +
                             std::to_string(body.size()) + "\r\nConnection: close\r\n\r\n" + body;
    net::asio::write(socket_, net::asio::buffer(text));
  }
  // Reads headers and body until the server closes.
  std::string receive() {
    std::string text;
    boost::system::error_code error;
    net::asio::read(socket_, net::asio::dynamic_buffer(text), error);
    return text;
  }

 private:
  net::asio::io_context io_;
  tcp::socket socket_;
};

std::string ask(std::uint16_t port, const std::string& method, const std::string& target,
                const std::string& body = "") {
  HttpClient client(port);
  client.send(method, target, body);
  return client.receive();
}

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(ProtocolTest, HttpIsAnsweredByTheProxies) {
  Cluster cluster({{"a", 2, 500, 50, 3}});
  cluster.add_backend("n0");
  cluster.wait_until_serving();
  const std::uint16_t port = cluster.http_port();
  EXPECT_TRUE(holds(ask(port, "GET", "/v2/health/ready"), "200 OK"));
  EXPECT_TRUE(holds(ask(port, "GET", "/v2/models/a"), R"("shape":[-1,3])"));
  const std::string answer = ask(
      port, "POST", "/v2/models/a/infer",
      R"({"id":"7","inputs":[{"name":"x","datatype":"UINT8","shape":[2,3],"data":[1,2,3,4,5,6]}]})");
  EXPECT_TRUE(holds(answer, R"("id":"7")")) << answer;
  EXPECT_TRUE(holds(answer, R"("data":[1,2,3,4,5,6])")) << answer;
  EXPECT_TRUE(holds(ask(port, "POST", "/v2/models/b/infer", "{}"), "404 Not Found"));
  const std::string statistics = ask(port, "GET", "/v2/models/a/stats");
  EXPECT_TRUE(holds(statistics, R"("inference_count":2)")) << statistics;
  // The page may show the moment before: a status is reused for a while.
  const auto counted = [&] {
    return holds(ask(cluster.metrics_port(), "GET", "/metrics"),
                 "gpulet_requests_total{model=\"a\",kind=\"model\"} 2");
  };
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!counted() && std::chrono::steady_clock::now() < deadline) {
  }
  EXPECT_TRUE(counted());
}

TEST(ProtocolTest, LoadIsAnsweredOnceTheModelServesOrFails) {
  Cluster cluster({{"a", 2, 500, 50, 1}, {"b", 2, 500, 50, 1}});
  cluster.add_backend("n0");
  cluster.wait_until_serving();
  const std::uint16_t port = cluster.http_port();
  const auto write = [file = cluster.setup().config.models](const std::string& text) {
    const std::filesystem::path beside = file.string() + ".new";
    std::ofstream(beside) << text;
    std::filesystem::rename(beside, file);
  };
  std::ifstream stream(cluster.setup().config.models);
  auto models = nlohmann::json::parse(stream);
  const auto before = models;
  models["models"][0]["slo_ms"] = 0.01;
  write(models.dump());
  const std::string refused = ask(port, "POST", "/v2/repository/models/a/load");
  EXPECT_TRUE(holds(refused, "503 Service Unavailable")) << refused;
  EXPECT_TRUE(holds(refused, "SLO of 0.01 ms is out of reach")) << refused;
  EXPECT_TRUE(holds(ask(port, "GET", "/v2/models/a/ready"), "400 Bad Request"));
  EXPECT_TRUE(holds(ask(port, "POST", "/v2/repository/models/b/load"), "200 OK"));
  write(before.dump());
  EXPECT_TRUE(holds(ask(port, "POST", "/v2/repository/models/a/load"), "200 OK"));
  EXPECT_TRUE(holds(ask(port, "GET", "/v2/models/a/ready"), "200 OK"))
      << "it serves after the answer";
}

// A load balancer learns that the frontend leaves before it can lose a request.
TEST(ProtocolTest, AStoppingFrontendIsNotReadyAndServesForTheGracePeriod) {
  ClusterChanges changes;
  changes.frontend = [](config::FrontendConfig& config) {
    config.drain_grace = std::chrono::seconds(3);
  };
  Cluster cluster(std::vector<ClusterModel>{{"a", 2, 500, 50, 1}}, {}, changes);
  cluster.add_backend("n0");
  cluster.wait_until_serving();
  const std::uint16_t port = cluster.http_port();
  const auto answer = [port] {
    return ask(port, "POST", "/v2/models/a/infer",
               R"({"inputs":[{"name":"x","datatype":"UINT8","shape":[1,1],"data":[7]}]})");
  };
  ASSERT_TRUE(holds(answer(), "200 OK"));
  const std::jthread stops([&cluster] { cluster.stop_frontend(); });
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (holds(ask(port, "GET", "/v2/health/ready"), "200 OK") &&
         std::chrono::steady_clock::now() < patience) {
  }
  EXPECT_TRUE(holds(ask(port, "GET", "/v2/health/ready"), "400 Bad Request"));
  EXPECT_TRUE(holds(ask(port, "GET", "/v2/health/live"), "200 OK"));
  EXPECT_TRUE(holds(answer(), "200 OK"));
  const auto listens = [port] {
    try {
      const HttpClient client(port);
      return true;
    } catch (const std::exception&) {
      return false;
    }
  };
  while (listens() && std::chrono::steady_clock::now() < patience) std::this_thread::yield();
  EXPECT_FALSE(listens());
}

TEST(ProtocolTest, IsNotReadyWithoutABackend) {
  Cluster cluster({{"a", 2, 500, 50, 1}});
  const std::uint16_t port = cluster.http_port();
  EXPECT_TRUE(holds(ask(port, "GET", "/v2/health/ready"), "400 Bad Request"));
  const pid_t backend = cluster.spawn_backend("n0");
  cluster.wait_until_serving();
  EXPECT_TRUE(holds(ask(port, "GET", "/v2/health/ready"), "200 OK"));
  EXPECT_TRUE(holds(ask(port, "GET", "/v2/models/a/ready"), "200 OK"));
  ::kill(backend, SIGKILL);
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!cluster.status().backends.empty() && std::chrono::steady_clock::now() < patience)
    std::this_thread::yield();
  EXPECT_TRUE(holds(ask(port, "GET", "/v2/health/ready"), "400 Bad Request"));
  EXPECT_TRUE(holds(ask(port, "GET", "/v2/models/a/ready"), "400 Bad Request"));
  const std::string answer =
      ask(port, "POST", "/v2/models/a/infer",
          R"({"inputs":[{"name":"x","datatype":"UINT8","shape":[1,1],"data":[1]}]})");
  EXPECT_TRUE(holds(answer, "503 Service Unavailable")) << answer;
  EXPECT_TRUE(holds(answer, "no backend is connected")) << answer;
}

TEST(ProtocolTest, TheRequestOfADisconnectedClientIsCancelled) {
  Cluster cluster({{"a", 2, 500, 50, 1}});  // no backend yet: the request waits
  {
    HttpClient client(cluster.http_port());
    client.send("POST", "/v2/models/a/infer",
                R"({"inputs":[{"name":"x","datatype":"UINT8","shape":[1,1],"data":[1]}],)"
                R"("parameters":{"timeout":60000000}})");
    while (cluster.status().models[0].queued == 0) std::this_thread::yield();
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (cluster.status().models[0].queued > 0 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  EXPECT_EQ(cluster.status().models[0].queued, 0U);
}

TEST(ProtocolTest, TracesRequestsDuringTheCall) {
  Cluster cluster({{"a", 2, 500, 50, 1}});
  cluster.add_backend("n0");
  cluster.wait_until_serving();
  const std::uint16_t port = cluster.http_port();
  HttpClient trace(port);
  trace.send("GET", "/gpulet/trace?seconds=1");
  std::string traced;
  std::jthread reader([&] { traced = trace.receive(); });
  EXPECT_TRUE(holds(ask(port, "POST", "/v2/models/a/infer",
                        R"({"inputs":[{"name":"x","datatype":"UINT8","shape":[1,1],"data":[1]}]})"),
                    "200 OK"));
  reader.join();
  EXPECT_TRUE(holds(traced, "traceEvents")) << traced;
  EXPECT_TRUE(holds(traced, R"("outcome":"ok")")) << traced;
  EXPECT_TRUE(holds(ask(port, "GET", "/gpulet/trace?seconds=x"), "400 Bad Request"));
}

TEST(ProtocolTest, RejectsASecondTraceWithRetryAfter) {
  Cluster cluster({{"a", 2, 500, 50, 1}});
  const std::uint16_t port = cluster.http_port();
  std::vector<std::unique_ptr<HttpClient>> askers;
  for (int i = 0; i < 10; ++i) {
    askers.push_back(std::make_unique<HttpClient>(port));
    askers.back()->send("GET", "/gpulet/trace?seconds=1");
  }
  int traced = 0;
  int refused = 0;
  for (const auto& asker : askers) {
    const std::string answer = asker->receive();
    if (holds(answer, "traceEvents")) ++traced;
    if (holds(answer, "429 ") && holds(answer, "Retry-After: ")) ++refused;
  }
  EXPECT_EQ(traced, 1);
  EXPECT_EQ(refused, 9);
  EXPECT_TRUE(holds(ask(port, "GET", "/gpulet/trace"), "traceEvents"))
      << "the first trace has ended";
}

}  // namespace
}  // namespace gpulet::testing
