// The dashboard's history, its documents, and its page and live events over HTTP. The page itself
// is tested in a browser (page_test.mjs).
#include "frontend/endpoints/dashboard.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "frontend/endpoints/dashboard_documents.h"
#include "frontend/endpoints/endpoint_router.h"
#include "frontend/endpoints/http_handlers.h"
#include "gpulet/access/gate.h"
#include "gpulet/net/buffer_pool.h"
#include "tests/dashboard/fake_cluster.h"
#include "tests/net/http/http_client.h"

namespace gpulet::frontend {
namespace {

using gpulet::testing::FakeCluster;
using net::http::testing::Answer;
using net::http::testing::Client;
using nlohmann::json;

constexpr Time at_s(double seconds) { return Time(from_seconds(seconds)); }
observe::WallClock wall_at(Time now) {
  return {now, now.time_since_epoch() + std::chrono::seconds(1'700'000'000)};
}

serve::FrontendStatus counted(const std::string& model, const serve::ModelCounters& counters) {
  serve::FrontendStatus status;
  status.models.emplace_back();
  status.models[0].name = model;
  status.models[0].counters = counters;
  status.models[0].p99_ms = 12;
  return status;
}

TEST(DashboardHistoryTest, ComputesRatesFromCounters) {
  DashboardHistory history;
  history.add(counted("a", {100, 90, 0, 5, 0}), at_s(1));
  EXPECT_TRUE(std::isnan(history.last("a").offered));  // the first sample has no predecessor
  EXPECT_EQ(history.last("a").p99_ms, 12);
  history.add(counted("a", {140, 120, 4, 7, 2}), at_s(3));
  EXPECT_EQ(history.last("a").offered, 20);
  EXPECT_EQ(history.last("a").served, 15);
  EXPECT_EQ(history.last("a").violations, 4);
  history.add(counted("a", {1, 1, 0, 0, 0}), at_s(4));  // another model with the same name
  EXPECT_TRUE(std::isnan(history.last("a").offered));
  EXPECT_TRUE(std::isnan(history.last("b").offered));
}

struct Past {
  json head;
  std::vector<double> times;
  std::vector<float> values;  // model by model, series by series
};
Past read_past(const Bytes& bytes) {
  Past past;
  const std::byte* at = bytes.view().data();
  std::uint32_t length = 0;
  std::memcpy(&length, at, sizeof length);
  past.head = json::parse(std::string(reinterpret_cast<const char*>(at) + sizeof length, length));
  past.times.resize(past.head["samples"].get<std::size_t>());
  EXPECT_EQ((sizeof length + length) % sizeof(double), 0U);
  std::memcpy(past.times.data(), at + sizeof length + length, past.times.size() * sizeof(double));
  const std::size_t begin = sizeof length + length + past.times.size() * sizeof(double);
  past.values.resize((bytes.size() - begin) / sizeof(float));
  std::memcpy(past.values.data(), at + begin, bytes.size() - begin);
  return past;
}

TEST(DashboardHistoryTest, KeepsTenMinutesOfPresentModels) {
  DashboardHistory history;
  serve::ModelCounters counters;
  history.add(counted("gone", counters), at_s(0));
  for (int second = 1; second <= 700; ++second) {
    counters.offered += static_cast<std::uint64_t>(second);
    history.add(counted("a", counters), at_s(second));
  }
  const Past past = read_past(history.document(wall_at(at_s(700))));
  EXPECT_EQ(past.head["models"], json::array({"a"}));
  ASSERT_EQ(past.times.size(), 600U);
  EXPECT_DOUBLE_EQ(past.times.front(), 1'700'000'101);
  EXPECT_DOUBLE_EQ(past.times.back(), 1'700'000'700);
  ASSERT_EQ(past.values.size(), 5U * 600U);
  EXPECT_EQ(past.values[0], 101);
  EXPECT_EQ(past.values[599], 700);
  EXPECT_EQ(past.values[std::size_t{4} * 600], 12);  // p99
}

TEST(DashboardHistoryTest, KeepsControlSamplesOfControlledModels) {
  DashboardHistory history;
  serve::FrontendStatus status = counted("free", {});
  status.models.emplace_back();
  status.models[1].name = "held";
  history.add(status, at_s(1));
  EXPECT_FALSE(read_past(history.document(wall_at(at_s(1)))).head.contains("controlled"));
  status.models[1].control = serve::ModelControlStatus{40, 38, 0.75, 2.5, 2, 1, 0, 9, 3, 2};
  history.add(status, at_s(2));
  status.models[1].control->response_ms = 0;  // no request was answered
  history.add(status, at_s(3));
  const Past past = read_past(history.document(wall_at(at_s(3))));
  EXPECT_EQ(past.head["controlled"], json::array({"held"}));
  EXPECT_EQ(past.head["control_series"][0], "response_ms");
  ASSERT_EQ(past.values.size(), (2U * 5 + 4) * 3);
  const float* const control = past.values.data() + std::size_t{2} * 5 * 3;
  EXPECT_TRUE(std::isnan(control[0]));  // not controlled yet
  EXPECT_EQ(control[1], 38);
  EXPECT_TRUE(std::isnan(control[2]));
  EXPECT_EQ(control[3 + 1], 0.75);
  EXPECT_EQ(control[6 + 2], 2.5);
  EXPECT_EQ(control[9 + 2], 2);
}

TEST(DashboardHistoryTest, KeepsReorganisationsOfTheLastTenMinutes) {
  FakeCluster cluster(1, 2);
  DashboardHistory history;
  history.add(cluster.status(at_s(1)), at_s(1));
  EXPECT_TRUE(history.reorganisations().empty());
  cluster.reorganise(at_s(1.5));
  history.add(cluster.status(at_s(2)), at_s(2));
  history.add(cluster.status(at_s(3)), at_s(3));
  ASSERT_EQ(history.reorganisations().size(), 1U);
  EXPECT_EQ(history.reorganisations()[0].since, at_s(1.5));
  EXPECT_EQ(history.reorganisations()[0].epoch, Epoch{2});
  history.add(cluster.status(at_s(602)), at_s(602));
  EXPECT_TRUE(history.reorganisations().empty());
}

serve::PlanInForce in_force(std::uint64_t number, std::uint64_t epoch, Time since, bool moves) {
  serve::PlanDecision decision;
  decision.number = number;
  decision.plan.gpulets = {{{"n0", 0}, Share{40}, 12.5, {{"a", 20, 8, 6.1, 1, 40}}}};
  decision.created = {moves};
  return {
      std::make_shared<const serve::PlanDecision>(std::move(decision)), Epoch{epoch}, since, {}};
}

TEST(DashboardHistoryTest, ADecisionWithSeveralStagesIsOneReorganisation) {
  DashboardHistory history;
  serve::FrontendStatus status = counted("a", {});
  status.plans = {in_force(1, 1, at_s(1), true), in_force(2, 2, at_s(2), true),
                  in_force(3, 3, at_s(3), false)};
  history.add(status, at_s(4));
  ASSERT_EQ(history.reorganisations().size(), 2U);
  status.plans[1] = in_force(2, 4, at_s(5), true);  // the next stage
  history.add(status, at_s(6));
  ASSERT_EQ(history.reorganisations().size(), 2U);
  EXPECT_EQ(history.reorganisations()[1].epoch, Epoch{4});
}

TEST(DashboardDocumentsTest, ListTheProblemsOfTheStatus) {
  FakeCluster cluster(1, 3);
  EXPECT_EQ(problems_document(cluster.status(at_s(1))), "[]");
  cluster.violated = 0.5;
  cluster.full = true;
  cluster.a_gpulet_failed = true;
  const json document = json::parse(problems_document(cluster.status(at_s(2))));
  ASSERT_EQ(document.size(), 4U);
  EXPECT_EQ(document[0]["cause"], "too_few_devices");
  EXPECT_EQ(document[0]["model"], "model-0");
  EXPECT_EQ(document[0]["grave"], true);
  EXPECT_EQ(document[3]["cause"], "gpulet_failed");
  EXPECT_EQ(document[3]["device"], 0);
  EXPECT_EQ(document[3]["gpulet"], "1");
}

TEST(DashboardDocumentsTest, DescribeThePlanOfADecisionAndItsReasons) {
  FakeCluster cluster(1, 3);
  DashboardHistory history;
  cluster.reorganise(at_s(1));
  const serve::FrontendStatus status = cluster.status(at_s(2));
  EXPECT_EQ(json::parse(layout_document(status))["plan"], 2);
  for (const bool remembered : {false, true}) {
    if (remembered) history.add(status, at_s(2));
    const json document =
        json::parse(plan_document(remembered ? serve::FrontendStatus() : status, history, 2));
    EXPECT_EQ(document["policy"], "elastic");
    EXPECT_EQ(document["took_ms"], 120);
    EXPECT_EQ(document["notes"][0], "the first attempt served everything");
    EXPECT_EQ(document["unserved"][0]["model"], "model-1");
    const json& gpulet = document["gpulets"][0];
    EXPECT_EQ(gpulet["node"], "node-00");
    EXPECT_EQ(gpulet["size"], 40);
    EXPECT_EQ(gpulet["created"], true);
    EXPECT_EQ(gpulet["why"], "40 % is the smallest size that serves 20 requests/s.");
    EXPECT_EQ(gpulet["models"][0]["batch"], 8);
  }
  EXPECT_EQ(plan_document(status, history, 9), "");
}

TEST(DashboardDocumentsTest, OmitTheEventsOfAReorganisationFromTheLog) {
  FakeCluster cluster(1, 3);
  DashboardHistory history;
  cluster.reorganise(at_s(1));
  cluster.warn(at_s(1), "again", 4);
  const serve::FrontendStatus status = cluster.status(at_s(2));
  history.add(status, at_s(2));
  const json document = json::parse(events_document(status, history, wall_at(at_s(2))));
  EXPECT_EQ(document["log"], json::array({json::array({1'700'000'001, "again", true, 4})}));
  ASSERT_EQ(document["reorganisations"].size(), 1U);
  EXPECT_EQ(document["reorganisations"][0][3], 2);
  EXPECT_EQ(document["reorganisations"][0][4], 120);
}

TEST(DashboardDocumentsTest, ListModelsAndGpuletsInTheOrderOfTheLayout) {
  FakeCluster cluster(9, 5);
  cluster.unavailable.insert("model-1");
  cluster.a_gpulet_failed = true;
  cluster.warn(at_s(1), "said \"no\"\nand\tgone");
  DashboardHistory history;
  const serve::FrontendStatus status = cluster.status(at_s(2));
  history.add(status, at_s(2));
  const json layout = json::parse(layout_document(status));
  const json tick =
      json::parse(tick_document(status, history, {wall_at(at_s(2)), at_s(2) - Time(), 3}));
  const json events = json::parse(events_document(status, history, wall_at(at_s(2))));
  ASSERT_EQ(layout["devices"].size(), 9U);
  EXPECT_EQ(layout["devices"][8]["node"], "node-01");
  EXPECT_EQ(layout["devices"][0]["gpulets"].size(), 3U);
  EXPECT_EQ(layout["devices"][0]["gpulets"][0]["state"], "failed");
  EXPECT_EQ(layout["devices"][0]["gpulets"][0]["models"][0], json::array({1, 27, 8, 6.1}));
  EXPECT_EQ(layout["devices"][0]["gpulets"][2]["models"].size(), 2U);
  EXPECT_EQ(layout["models"][1]["reason"], "no device has memory for it");
  EXPECT_EQ(tick["busy"].size(), 27U);
  EXPECT_EQ(tick["models"].size(), 5U);
  EXPECT_TRUE(tick["models"][0][0].is_null());
  EXPECT_EQ(tick["clients"], 3);
  EXPECT_EQ(events["log"][0], json::array({1'700'000'001, "said \"no\"\nand\tgone", true, 1}));
}

TEST(DashboardDocumentsTest, DescribeControlledModelsOnly) {
  FakeCluster cluster(4, 2);
  const DashboardHistory history;
  const auto tick_of = [&history](const serve::FrontendStatus& status) {
    return json::parse(tick_document(status, history, {wall_at(at_s(2)), at_s(2) - Time(), 3}));
  };
  EXPECT_FALSE(tick_of(cluster.status(at_s(1))).contains("control"));
  cluster.controlled = true;
  serve::FrontendStatus status = cluster.status(at_s(2));
  status.models[1].control.reset();
  const json layout = json::parse(layout_document(status));
  EXPECT_EQ(layout["models"][0]["set_point_ms"], 32);
  EXPECT_FALSE(layout["models"][1].contains("set_point_ms"));
  EXPECT_FALSE(layout["devices"][0].contains("cores"));
  EXPECT_EQ(layout["devices"][0]["gpulets"][0]["service"], "by_need");
  EXPECT_EQ(layout["devices"][1]["cores"], 6);
  EXPECT_EQ(layout["devices"][1]["gpulets"][0]["service"], "controlled");
  const json control = tick_of(status)["control"];
  EXPECT_EQ(control["models"][0].size(), 6U);
  EXPECT_TRUE(control["models"][1].is_null());
  ASSERT_EQ(control["cores"].size(), 6U);
  EXPECT_TRUE(control["cores"][0].is_null());
  EXPECT_GT(control["cores"][1], 0);
  ASSERT_EQ(control["nodes"].size(), 2U);
  EXPECT_EQ(control["nodes"][1][0], "node-01 / 1");
  EXPECT_EQ(control["nodes"][1][1], 6);
}

// ---- over HTTP

constexpr DashboardAsset kAssets[] = {
    {"/", "text/html; charset=utf-8", "\"one\"", false, "<page>", "packed"},
    {"/assets/main-1.js", "text/javascript", "\"two\"", true, "script", ""}};

class DashboardHttpTest : public ::testing::Test, private SnapshotSource, private MetricsSource {
 protected:
  static Time now() { return Time(std::chrono::steady_clock::now().time_since_epoch()); }

  DashboardHttpTest()
      : handler_(add_services()),
        server_(
            net::http::HttpServer::listen(loop_.executor(), "127.0.0.1", 0, {}, buffers_, router_)
                .value()),
        client_(loop_, server_->port()) {}

  StatusSnapshot sample() {
    TimedStatus timed;
    timed.status = cluster_.status(now());
    timed.wall = wall_at(now());
    timed.context = {.started = now(), .now = now(), .clients = 1};
    return std::make_shared<const TimedStatus>(std::move(timed));
  }
  Answer get(const std::string& target, const std::string& headers = "") {
    client_.send("GET " + target + " HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n");
    return client_.answer().value_or(Answer{});
  }

  net::testing::Loop loop_;
  net::BufferPool buffers_{net::BufferPoolOptions{}};
  FakeCluster cluster_{2, 3};
  access::Gate gate_;
  EndpointRouter router_{gate_, metrics_error};
  DashboardHandler& handler_;
  std::unique_ptr<net::http::HttpServer> server_;
  Client client_;

 private:
  DashboardHandler& add_services() {
    SnapshotSource& snapshots = *this;
    MetricsSource& metrics = *this;
    DashboardHandler& handler =
        router_.add(std::make_unique<DashboardHandler>(loop_.context(), snapshots, kAssets));
    router_.add(std::make_unique<MetricsHandler>(metrics));
    return handler;
  }
  void snapshot(OnSnapshot done) override {
    net::asio::post(loop_.context(), [this, done = std::move(done)] { done(sample()); });
  }
  void metrics(OnPage done) override { done(net::http::bytes_of("metrics")); }
};

TEST_F(DashboardHttpTest, ServesThePageWithSecurityHeadersAndMetrics) {
  const Answer page = get("/");
  EXPECT_EQ(page.status, 200U);
  EXPECT_EQ(page.body, "<page>");
  EXPECT_EQ(page.header("Cache-Control"), "no-cache");
  EXPECT_TRUE(page.header("Content-Security-Policy").starts_with("default-src 'self';"));
  EXPECT_EQ(page.header("X-Content-Type-Options"), "nosniff");
  const Answer compressed = get("/", "Accept-Encoding: br, gzip\r\n");
  EXPECT_EQ(compressed.header("Content-Encoding"), "gzip");
  EXPECT_EQ(compressed.body, "packed");
  EXPECT_EQ(get("/", "If-None-Match: \"one\"\r\n").status, 304U);
  EXPECT_EQ(get("/assets/main-1.js").header("Cache-Control"),
            "public, max-age=31536000, immutable");
  EXPECT_EQ(get("/metrics").body, "metrics");
  EXPECT_EQ(get("/elsewhere").status, 404U);
  EXPECT_EQ(read_past(Bytes::own([body = get("/gpulet/history").body] {
              const auto* begin = reinterpret_cast<const std::byte*>(body.data());
              return std::vector<std::byte>(begin, begin + body.size());
            }()))
                .head["models"]
                .size(),
            3U);
}

TEST_F(DashboardHttpTest, SendsAllDocumentsToANewPageAndThenChangedOnes) {
  client_.send("GET /gpulet/events HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto times = [this](std::string_view what) {
    std::size_t found = 0;
    const std::string& text = client_.received();
    for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++found;
    return found;
  };
  ASSERT_TRUE(loop_.run_until([&] { return times("event: tick") == 2; }));
  EXPECT_EQ(times("event: layout"), 1U);
  EXPECT_EQ(times("event: events"), 1U);
  EXPECT_EQ(handler_.pages(), 1U);
  cluster_.reorganise(now());
  ASSERT_TRUE(loop_.run_until([&] { return times("event: tick") == 3; }));
  EXPECT_EQ(times("event: layout"), 2U);
  EXPECT_EQ(times("event: events"), 2U);
  handler_.stop();
  ASSERT_TRUE(loop_.run_until([&] { return times("event: stopping") == 1; }));
  EXPECT_EQ(handler_.pages(), 0U);
}

TEST_F(DashboardHttpTest, ServesThePlanOfADecision) {
  cluster_.reorganise(now());
  client_.send("GET /gpulet/events HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto plan_received = [this] {
    return client_.received().find("\"plan\":2") != std::string::npos;
  };
  ASSERT_TRUE(loop_.run_until(plan_received));
  Client other(loop_, server_->port());
  const auto ask = [&](const std::string& target) {
    other.send("GET " + target + " HTTP/1.1\r\nHost: x\r\n\r\n");
    return other.answer().value_or(Answer{});
  };
  const Answer plan = ask("/gpulet/plans/2");
  EXPECT_EQ(plan.status, 200U);
  EXPECT_EQ(plan.header("Content-Type"), "application/json");
  EXPECT_EQ(json::parse(plan.body)["number"], 2);
  EXPECT_EQ(ask("/gpulet/plans/77").status, 404U);
  for (const std::string number : {"", "two", "2x", "-2", "99999999999999999999"})
    EXPECT_EQ(ask("/gpulet/plans/" + number).status, 400U) << number;
}

TEST_F(DashboardHttpTest, RefusesPagesBeyondTheLimit) {
  std::vector<std::unique_ptr<Client>> pages;
  for (std::size_t i = 0; i < DashboardHandler::kMaxPages; ++i) {
    pages.push_back(std::make_unique<Client>(loop_, server_->port()));
    pages.back()->send("GET /gpulet/events HTTP/1.1\r\nHost: x\r\n\r\n");
    ASSERT_TRUE(loop_.run_until([&] { return !pages.back()->received().empty(); }));
  }
  EXPECT_EQ(get("/gpulet/events").status, 503U);
  EXPECT_EQ(get("/").status, 200U);
}

}  // namespace
}  // namespace gpulet::frontend
