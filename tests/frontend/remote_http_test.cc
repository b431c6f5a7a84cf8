// HTTP connections on I/O threads, with an engine on another thread: the test's.
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "frontend/connection_threads.h"
#include "frontend/endpoints/endpoint_router.h"
#include "frontend/endpoints/http_handlers.h"
#include "frontend/endpoints/infer_http.h"
#include "frontend/endpoints/kserve_http.h"
#include "frontend/endpoints/remote_exchange.h"
#include "frontend/endpoints/remote_host.h"
#include "gpulet/access/gate.h"
#include "tests/net/http/http_client.h"
#include "tests/support/protocol_host.h"

namespace gpulet::frontend::remote_http_test {
namespace {

using gpulet::testing::FakeHost;
using net::http::testing::Answer;
using net::http::testing::Client;

std::string get(const std::string& target) {
  return "GET " + target + " HTTP/1.1\r\nHost: x\r\n\r\n";
}

std::string infer(int value) {
  const std::string body = R"({"inputs":[{"name":"x","shape":[1,1],"datatype":"INT32","data":[)" +
                           std::to_string(value) + "]}]}";
  return "POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

class RemoteHttpTest : public ::testing::Test,
                       private EventSink,
                       private PayloadCheck,
                       private ClientRequests,
                       private TraceHandler::Source {
 protected:
  static constexpr std::size_t kThreads = 2;

  RemoteHttpTest() {
    publish("m");
    engine_router_.add(std::make_unique<KserveHttp>(host_, regions_, "1.2.3"));
    std::vector<net::http::HttpServer::Place> places;
    std::vector<ReplyOutbox*> outboxes;
    for (std::size_t i = 0; i < kThreads; ++i) {
      remotes_.push_back(
          std::make_unique<RemoteEngine>(EngineThread{loop_.context(), inbox_, board_, *this},
                                         threads_.io(i), ThreadOfConnections{i + 1, kThreads + 1}));
      RemoteEngine& remote = *remotes_.back();
      outboxes.push_back(&remote.outbox());
      hosts_.push_back(std::make_unique<RemoteHost>(remote));
      routers_.push_back(std::make_unique<EndpointRouter>(gate_, kserve_error));
      routers_[i]->add(std::make_unique<InferHttp>(*hosts_[i], regions_));
      requests_.push_back(std::make_unique<RemoteRequests>(remote));
      routers_[i]->add_endpoints_of(engine_router_, *requests_[i]);
      places.push_back({threads_.io(i).get_executor(), *routers_[i]});
    }
    replies_.connect(outboxes);
    server_ = net::http::HttpServer::listen(loop_.executor(), "127.0.0.1", 0, {}, buffers_, places)
                  .value();
  }
  ~RemoteHttpTest() override {
    inbox_.close();
    threads_.join();
  }

  std::unique_ptr<Client> client() { return std::make_unique<Client>(loop_, server_->port()); }

  void publish(const std::string& name) {
    auto model = std::make_shared<PublishedModel>();
    model->model.name = name;
    model->model.inputs = {{"x", DataType::int32, {1}}};
    model->model.outputs = {{"y", DataType::int32, {1}}};
    board_.publish(std::make_shared<const PublishedModels>(
        std::vector<PublishedModels::Entry>{{std::move(model), {}}}));
  }
  void answer(const serve::RequestReceived& received) {
    InferReply reply;
    reply.tag = received.request.tag;
    reply.outputs = {{"y", DataType::int32, {1}}};
    reply.payload = {received.request.payload};
    replies_.reply(received.client, std::move(reply));
  }

  net::testing::Loop loop_;
  net::IoThreads threads_{kThreads};
  net::BufferPool buffers_{{}};
  access::Gate gate_;
  net::kserve::SharedMemory regions_{true};
  FakeHost host_{loop_.context()};
  TraceLog log_;
  int traces_ = 0;
  bool holding_ = false;  // requests are not answered
  std::vector<serve::RequestReceived> held_;
  std::vector<ClientId> gone_;

  EventSink& events_ = *this;
  EngineInbox inbox_{loop_.context(), events_};
  ModelBoard board_;
  ReplyRouter replies_{{0, kThreads + 1}};
  EndpointRouter engine_router_{gate_, kserve_error};
  TraceHandler& trace_handler_ = engine_router_.add(std::make_unique<TraceHandler>(
      loop_.context(), static_cast<TraceHandler::Source&>(*this), kserve_error));
  std::vector<std::unique_ptr<RemoteEngine>> remotes_;
  std::vector<std::unique_ptr<RemoteHost>> hosts_;
  std::vector<std::unique_ptr<RemoteRequests>> requests_;
  std::vector<std::unique_ptr<EndpointRouter>> routers_;
  std::unique_ptr<net::http::HttpServer> server_;

 private:
  void deliver(serve::FrontendEvent event) override {
    if (const auto* const left = std::get_if<serve::ClientDisconnected>(&event)) {
      gone_.push_back(left->client);
      return;
    }
    auto& received = std::get<serve::RequestReceived>(event);
    if (holding_) {
      held_.push_back(std::move(received));
    } else {
      answer(received);
    }
  }
  void deliver_from(std::string_view /*address*/, serve::FrontendEvent event) override {
    deliver(std::move(event));
  }
  [[nodiscard]] Status accepts(const InferRequest& /*request*/,
                               std::size_t /*payload_bytes*/) const override {
    return {};
  }
  [[nodiscard]] std::optional<serve::PeerBreach> breach_of_result(
      BackendId /*from*/, BatchId /*batch*/) const override {
    return std::nullopt;
  }
  void on_models_request(ClientId /*client*/, const ModelsRequest& /*request*/) override {}
  void on_change(ClientId /*client*/, ModelsChange /*change*/,
                 const access::PeerIdentity& /*peer*/) override {}
  void on_status_request(ClientId /*client*/, const StatusRequest& /*request*/) override {}
  void on_gone(ClientId /*client*/) override {}
  std::uint64_t begin(Duration length) override {
    ++traces_;
    return length > Duration::zero() ? log_.mark() : 0;
  }
  observe::TraceRecords since(std::uint64_t mark) override { return log_.since(mark); }
};

TEST_F(RemoteHttpTest, AnswersTheInferencesOfManyConnections) {
  std::vector<std::unique_ptr<Client>> clients;
  clients.reserve(8);
  for (int i = 0; i < 8; ++i) clients.push_back(client());
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 8; ++i) clients[static_cast<std::size_t>(i)]->send(infer(100 * round + i));
    for (int i = 0; i < 8; ++i) {
      const std::optional<Answer> answer = clients[static_cast<std::size_t>(i)]->answer();
      ASSERT_TRUE(answer);
      ASSERT_EQ(answer->status, 200U) << answer->body;
      const std::string data = R"("data":[)" + std::to_string(100 * round + i) + "]";
      EXPECT_NE(answer->body.find(data), std::string::npos) << answer->body;
    }
  }
  EXPECT_TRUE(gone_.empty());
}

TEST_F(RemoteHttpTest, JudgesInferencesByTheListPublishedLast) {
  const auto one = client();
  EXPECT_EQ(one->ask(infer(1))->status, 200U);
  publish("other");
  EXPECT_EQ(one->ask(infer(1))->status, 404U);
  publish("m");
  EXPECT_EQ(one->ask(infer(1))->status, 200U);
}

TEST_F(RemoteHttpTest, TheEngineAnswersAllOtherRequests) {
  const auto one = client();
  EXPECT_EQ(one->ask(get("/v2/health/live"))->status, 200U);
  EXPECT_EQ(one->ask(get("/v2/health/ready"))->status, 200U);
  host_.is_ready = false;
  EXPECT_EQ(one->ask(get("/v2/health/ready"))->status, 400U);
  EXPECT_EQ(one->ask(get("/v2/models/echo"))->status, 200U);
  EXPECT_EQ(one->ask(get("/v2/models/m"))->status, 404U) << "the engine's host has no such model";
  EXPECT_EQ(one->ask(get("/v2/models/stats"))->status, 200U);
  EXPECT_EQ(one->ask(get("/nowhere"))->status, 404U);
  const std::optional<Answer> refused = one->ask(get("/v2/models/m/infer"));
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 405U);
  EXPECT_EQ(refused->header("Allow"), "POST");
}

TEST_F(RemoteHttpTest, SendsADocumentInParts) {
  for (std::uint64_t id = 1; id <= 20'000; ++id) {
    observe::RequestTraceRecord record;
    record.id = RequestId{id};
    record.model = "m";
    log_.add(std::move(record));
  }
  const auto one = client();
  const std::optional<Answer> answer = one->ask(get("/gpulet/trace"));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 200U);
  EXPECT_GT(answer->body.size(), 1'000'000U);
  EXPECT_NE(answer->body.rfind('}'), std::string::npos);
}

TEST_F(RemoteHttpTest, AnEndpointMayStillRefuse) {
  const auto first = client();
  first->send(get("/gpulet/trace?seconds=500"));
  ASSERT_TRUE(loop_.run_until([this] { return traces_ == 1; }));
  const auto second = client();
  EXPECT_EQ(second->ask(get("/gpulet/trace?seconds=1"))->status, 429U);
  EXPECT_EQ(second->ask(get("/gpulet/trace?seconds=x"))->status, 400U);
}

TEST_F(RemoteHttpTest, AClientThatLeavesEndsItsTrace) {
  auto first = client();
  first->send(get("/gpulet/trace?seconds=500"));
  ASSERT_TRUE(loop_.run_until([this] { return traces_ == 1; }));
  first.reset();
  std::optional<Answer> answer;
  const auto second = client();
  for (int tries = 0; tries < 1000; ++tries) {
    answer = second->ask(get("/gpulet/trace"));
    ASSERT_TRUE(answer);
    if (answer->status == 200U) break;
  }
  EXPECT_EQ(answer->status, 200U);
}

TEST_F(RemoteHttpTest, AClientThatLeavesCancelsItsInference) {
  holding_ = true;
  auto one = client();
  one->send(infer(1));
  ASSERT_TRUE(loop_.run_until([this] { return held_.size() == 1; }));
  one.reset();
  ASSERT_TRUE(loop_.run_until([this] { return gone_.size() == 1; }));
  EXPECT_EQ(gone_[0], held_[0].client);
  answer(held_[0]);  // too late: nobody gets it
  EXPECT_EQ(client()->ask(get("/v2/health/live"))->status, 200U);
}

TEST_F(RemoteHttpTest, DrainsOnAllThreads) {
  holding_ = true;
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(client());
    clients.back()->send(infer(i));
  }
  const auto idle = client();
  EXPECT_EQ(idle->ask(get("/v2/health/live"))->status, 200U);
  ASSERT_TRUE(loop_.run_until([this] { return held_.size() == 4; }));
  server_->drain();
  EXPECT_TRUE(idle->is_closed());
  for (const serve::RequestReceived& received : held_) answer(received);
  for (const auto& one : clients) {
    const std::optional<Answer> answer = one->answer();
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->status, 200U);
    EXPECT_EQ(answer->header("Connection"), "close");
    EXPECT_TRUE(one->is_closed());
  }
  EXPECT_TRUE(loop_.run_until([this] { return server_->connections() == 0; }));
}

TEST_F(RemoteHttpTest, ClosesTheConnectionsThatMatch) {
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(client());
    EXPECT_EQ(clients.back()->ask(get("/v2/health/live"))->status, 200U);
  }
  server_->close_matching([](const access::PeerIdentity&) { return true; });
  for (const auto& one : clients) EXPECT_TRUE(one->is_closed());
}

TEST_F(RemoteHttpTest, MayEndWithCallsOnTheirWay) {
  holding_ = true;
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(client());
    clients.back()->send(i % 2 == 0 ? infer(i) : get("/gpulet/trace?seconds=500"));
  }
  ASSERT_TRUE(loop_.run_until([this] { return traces_ == 1; }));
}

}  // namespace
}  // namespace gpulet::frontend::remote_http_test
