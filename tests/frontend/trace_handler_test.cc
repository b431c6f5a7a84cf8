// Traces over real HTTP, of a log that the test fills.
#include "frontend/trace_handler.h"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "frontend/http_pages.h"
#include "frontend/trace_log.h"
#include "gpulet/net/clock.h"
#include "tests/net/http/http_client.h"

namespace gpulet::frontend {
namespace {

using net::http::testing::Answer;
using net::http::testing::Client;

std::string get(const std::string& target, const std::string& method = "GET") {
  return method + " " + target + " HTTP/1.1\r\nHost: x\r\n\r\n";
}

class TraceHandlerTest : public ::testing::Test {
 protected:
  void fill(std::uint64_t records) {
    for (std::uint64_t id = 1; id <= records; ++id) {
      observe::RequestTraceRecord record;
      record.id = RequestId{id};
      record.model = "m";
      log_.add(std::move(record));
    }
  }
  [[nodiscard]] TraceHandler::Source source() {
    return {[this](Duration length) {
              ++begun_;
              return length > Duration::zero() ? log_.mark() : 0;
            },
            [this](std::uint64_t mark) { return log_.since(mark); },
            [] {
              return observe::WallClock{net::now(), {}};
            }};
  }
  std::unique_ptr<Client> client() { return std::make_unique<Client>(loop_, server_->port()); }

  net::testing::Loop loop_;
  TraceLog log_;
  int begun_ = 0;
  net::BufferPool buffers_{{}};
  TraceHandler handler_{loop_.context(), source(),
                        std::make_unique<MetricsHandler>([](const MetricsHandler::OnPage& done) {
                          done(net::http::bytes_of("metrics"));
                        })};
  std::unique_ptr<net::http::HttpServer> server_ =
      net::http::HttpServer::listen(loop_.executor(), "127.0.0.1", 0, {}, buffers_, handler_)
          .value();
};

TEST_F(TraceHandlerTest, ALongDocumentComesWhole) {
  fill(20'000);
  const auto one = client();
  const std::optional<Answer> answer = one->ask(get("/gpulet/trace"));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 200U);
  EXPECT_EQ(answer->header("Content-Type"), "application/json");
  EXPECT_EQ(nlohmann::json::parse(answer->body)["traceEvents"].size(), 2 + 2 * 20'000U);
  EXPECT_EQ(client()->ask(get("/metrics"))->body, "metrics");
}

TEST_F(TraceHandlerTest, AHeadIsAnsweredAtOnceAndTracesNothing) {
  const auto one = client();
  one->send(get("/gpulet/trace?seconds=600", "HEAD"));
  ASSERT_TRUE(one->answer(true));
  EXPECT_EQ(begun_, 0);
}

TEST_F(TraceHandlerTest, ASecondOneIsToldWhenToComeBack) {
  const auto first = client();
  first->send(get("/gpulet/trace?seconds=500"));
  ASSERT_TRUE(loop_.run_until([this] { return begun_ == 1; }));
  const auto second = client();
  const std::optional<Answer> refused = second->ask(get("/gpulet/trace?seconds=1"));
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 429U);
  const int seconds = std::stoi(std::string(refused->header("Retry-After")));
  EXPECT_GT(seconds, 400);
  EXPECT_LE(seconds, 501);
  EXPECT_EQ(begun_, 1);
}

TEST_F(TraceHandlerTest, WhoeverHangsUpMakesRoomForTheNext) {
  auto first = client();
  first->send(get("/gpulet/trace?seconds=500"));
  ASSERT_TRUE(loop_.run_until([this] { return begun_ == 1; }));
  first.reset();
  ASSERT_TRUE(loop_.run_until([this] { return server_->connections() == 0; }));
  EXPECT_EQ(client()->ask(get("/gpulet/trace"))->status, 200U);
}

TEST_F(TraceHandlerTest, AFrontendThatStopsWaitsForNoTrace) {
  const auto one = client();
  one->send(get("/gpulet/trace?seconds=600"));
  ASSERT_TRUE(loop_.run_until([this] { return begun_ == 1; }));
  handler_.stop();
  EXPECT_EQ(one->answer()->status, 503U);
  EXPECT_EQ(client()->ask(get("/gpulet/trace"))->status, 503U);
}

TEST_F(TraceHandlerTest, AReaderThatStopsHoldsNoMoreThanAPartAndItsBuffersAndNobodyElse) {
  fill(50'000);
  const auto deaf = client();
  deaf->stop_reading();
  deaf->send(get("/gpulet/trace"));
  ASSERT_TRUE(loop_.run_until([&] { return !deaf->received().empty(); }));
  EXPECT_EQ(client()->ask(get("/metrics"))->body, "metrics");
  EXPECT_EQ(client()->ask(get("/gpulet/trace"))->status, 429U);
  deaf->read_on();
  const std::optional<Answer> answer = deaf->answer();
  ASSERT_TRUE(answer);
  EXPECT_EQ(nlohmann::json::parse(answer->body)["traceEvents"].size(), 2 + 2 * 50'000U);
}

}  // namespace
}  // namespace gpulet::frontend
