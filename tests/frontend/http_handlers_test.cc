// Traces over HTTP, from a log that the test fills.
#include "frontend/endpoints/http_handlers.h"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "frontend/endpoints/endpoint_router.h"
#include "gpulet/access/gate.h"
#include "gpulet/net/event_loop.h"
#include "tests/net/http/http_client.h"

namespace gpulet::frontend {
namespace {

using net::http::testing::Answer;
using net::http::testing::Client;

std::string get(const std::string& target, const std::string& method = "GET") {
  return method + " " + target + " HTTP/1.1\r\nHost: x\r\n\r\n";
}

class TraceHandlerTest : public ::testing::Test,
                         private TraceHandler::Source,
                         private MetricsSource {
 protected:
  void fill(std::uint64_t records) {
    for (std::uint64_t id = 1; id <= records; ++id) {
      observe::RequestTraceRecord record;
      record.id = RequestId{id};
      record.model = "m";
      log_.add(std::move(record));
    }
  }
  std::unique_ptr<Client> client() { return std::make_unique<Client>(loop_, server_->port()); }

  net::testing::Loop loop_;
  TraceLog log_;
  int begun_ = 0;
  net::BufferPool buffers_{{}};
  access::Gate gate_;
  EndpointRouter router_{gate_, metrics_error};
  TraceHandler& handler_ = add_services();
  std::unique_ptr<net::http::HttpServer> server_ =
      net::http::HttpServer::listen(loop_.executor(), "127.0.0.1", 0, {}, buffers_, router_)
          .value();

 private:
  TraceHandler& add_services() {
    TraceHandler::Source& traces = *this;
    MetricsSource& metrics = *this;
    TraceHandler& handler =
        router_.add(std::make_unique<TraceHandler>(loop_.context(), traces, metrics_error));
    router_.add(std::make_unique<MetricsHandler>(metrics));
    return handler;
  }
  std::uint64_t begin(Duration length) override {
    ++begun_;
    return length > Duration::zero() ? log_.mark() : 0;
  }
  observe::TraceRecords since(std::uint64_t mark) override { return log_.since(mark); }
  void metrics(OnPage done) override { done(net::http::bytes_of("metrics")); }
};

TEST_F(TraceHandlerTest, SendsALongDocumentCompletely) {
  fill(20'000);
  const auto one = client();
  const std::optional<Answer> answer = one->ask(get("/gpulet/trace"));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 200U);
  EXPECT_EQ(answer->header("Content-Type"), "application/json");
  EXPECT_EQ(nlohmann::json::parse(answer->body)["traceEvents"].size(), 2 + 2 * 20'000U);
  EXPECT_EQ(client()->ask(get("/metrics"))->body, "metrics");
}

TEST_F(TraceHandlerTest, AnswersHeadWithoutTracing) {
  const auto one = client();
  one->send(get("/gpulet/trace?seconds=600", "HEAD"));
  ASSERT_TRUE(one->answer(true));
  EXPECT_EQ(begun_, 0);
}

TEST_F(TraceHandlerTest, RefusesASecondTraceWithRetryAfter) {
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

TEST_F(TraceHandlerTest, ADisconnectedClientEndsItsTrace) {
  auto first = client();
  first->send(get("/gpulet/trace?seconds=500"));
  ASSERT_TRUE(loop_.run_until([this] { return begun_ == 1; }));
  first.reset();
  ASSERT_TRUE(loop_.run_until([this] { return server_->connections() == 0; }));
  EXPECT_EQ(client()->ask(get("/gpulet/trace"))->status, 200U);
}

TEST_F(TraceHandlerTest, StopEndsTheTrace) {
  const auto one = client();
  one->send(get("/gpulet/trace?seconds=600"));
  ASSERT_TRUE(loop_.run_until([this] { return begun_ == 1; }));
  handler_.stop();
  EXPECT_EQ(one->answer()->status, 503U);
  EXPECT_EQ(client()->ask(get("/gpulet/trace"))->status, 503U);
}

TEST_F(TraceHandlerTest, ASlowReaderDoesNotBlockOtherRequests) {
  fill(25'000);
  const auto slow = client();
  slow->stop_reading();
  slow->send(get("/gpulet/trace"));
  ASSERT_TRUE(loop_.run_until([&] { return !slow->received().empty(); }));
  EXPECT_EQ(client()->ask(get("/metrics"))->body, "metrics");
  EXPECT_EQ(client()->ask(get("/gpulet/trace"))->status, 429U);
  slow->read_on();
  const std::optional<Answer> answer = slow->answer();
  ASSERT_TRUE(answer);
  EXPECT_EQ(nlohmann::json::parse(answer->body)["traceEvents"].size(), 2 + 2 * 25'000U);
}

void add(TraceLog& log, std::uint64_t first, std::uint64_t last) {
  for (std::uint64_t id = first; id <= last; ++id) {
    observe::RequestTraceRecord record;
    record.id = RequestId{id};
    log.add(std::move(record));
  }
}

std::vector<std::uint64_t> ids(const observe::TraceRecords& records) {
  std::vector<std::uint64_t> all;
  for (const observe::TraceChunk& chunk : records) {
    for (const auto& record : *chunk) all.push_back(record.id.value);
  }
  return all;
}

TEST(TraceLogTest, ReturnsRecordsAddedSinceAMark) {
  TraceLog log;
  EXPECT_TRUE(log.since(0).empty());
  add(log, 1, 3);
  const std::uint64_t mark = log.mark();
  add(log, 4, 5);
  EXPECT_EQ(ids(log.since(mark)), (std::vector<std::uint64_t>{4, 5}));
  EXPECT_EQ(ids(log.since(0)), (std::vector<std::uint64_t>{1, 2, 3, 4, 5}));
  EXPECT_TRUE(log.since(log.mark()).empty());
}

TEST(TraceLogTest, ReturnedRecordsDoNotChange) {
  TraceLog log;
  add(log, 1, 2);
  const observe::TraceRecords given = log.since(0);
  add(log, 3, 3);
  EXPECT_EQ(ids(given).size(), 2U);
}

TEST(TraceLogTest, DropsTheOldestRecordsBeyondTheLimit) {
  TraceLog log;
  const std::uint64_t mark = log.mark();
  constexpr std::uint64_t kCount = TraceLog::kMaxRecords + 3 * TraceLog::kRecordsPerChunk;
  add(log, 1, kCount);
  const std::vector<std::uint64_t> kept = ids(log.since(mark));
  EXPECT_LE(kept.size(), TraceLog::kMaxRecords);
  EXPECT_GT(kept.size(), TraceLog::kMaxRecords - 2 * TraceLog::kRecordsPerChunk);
  EXPECT_EQ(kept.back(), kCount);
}

}  // namespace
}  // namespace gpulet::frontend
