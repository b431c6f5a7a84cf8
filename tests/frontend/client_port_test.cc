// Clients of gpulet's own protocol on I/O threads, with an engine on another thread: the test's.
#include "frontend/frames/client_port.h"

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "frontend/frames/connection_options.h"
#include "gpulet/net/event_loop.h"
#include "gpulet/protocol/codec.h"
#include "tests/net/loop.h"
#include "tests/support/cluster/stream_client.h"

namespace gpulet::frontend::client_port_test {
namespace {

using gpulet::testing::byte_request;
using gpulet::testing::StreamClient;
using namespace std::chrono_literals;

constexpr std::size_t kThreads = 2;
constexpr std::size_t kLarge = 70'000;  // more than an unchecked payload

class ClientPortTest : public ::testing::Test, private EventSink, private ClientRequests {
 protected:
  ClientPortTest() {
    // The library of logs is not instrumented: ThreadSanitizer does not see that it makes its
    // loggers once, whichever thread comes first.
    spdlog::default_logger();
    auto model = std::make_shared<PublishedModel>();
    model->model.name = "m";
    model->model.inputs = {{"x", DataType::uint8, {kLarge}}};
    model->model.input_bytes = kLarge;
    board_.publish(std::make_shared<const PublishedModels>(
        std::vector<PublishedModels::Entry>{{std::move(model), {}}}));
    std::vector<ConnectionPlace> places;
    std::vector<ReplyOutbox*> outboxes;
    for (std::size_t i = 0; i < kThreads; ++i) {
      remotes_.push_back(
          std::make_unique<RemoteEngine>(EngineThread{loop_.context(), inbox_, board_, *this},
                                         threads_.io(i), ThreadOfConnections{i + 1, kThreads + 1}));
      RemoteEngine& remote = *remotes_.back();
      outboxes.push_back(&remote.outbox());
      places.push_back({remote.io(), remote.link(), remote.requests(), &remote});
    }
    replies_.connect(outboxes);
    port_ = std::make_unique<ClientPort>(places, config_, gate_, buffers_);
    listener_ = net::Listener::listen(loop_.executor(), "127.0.0.1", 0,
                                      client_listener_options(config_, nullptr), port_->receivers())
                    .value();
    FramePort port;
    port.clients = listener_->port();
    port_->open(port);
  }
  ~ClientPortTest() override {
    inbox_.close();
    threads_.join();
  }

  // Runs the engine and the client until the condition holds.
  template <typename Condition>
  bool run(StreamClient& client, Condition condition) {
    return client.run_until(
        [&] {
          loop_.run_ready();
          return condition();
        },
        20s);
  }
  std::optional<InferReply> ask(StreamClient& client, const InferRequest& request) {
    client.send(request);
    if (!run(client, [&] { return client.replies().contains(request.tag); })) return std::nullopt;
    return client.replies().at(request.tag).back();
  }

  net::testing::Loop loop_;
  net::IoThreads threads_{kThreads};
  net::BufferPool buffers_{{}};
  config::FrontendConfig config_;
  std::shared_ptr<access::Gate> gate_ = std::make_shared<access::Gate>();
  bool holding_ = false;
  std::vector<serve::RequestReceived> held_;
  std::vector<ClientId> disconnected_;
  std::vector<ClientId> gone_;

  EventSink& events_ = *this;
  EngineInbox inbox_{loop_.context(), events_};
  ModelBoard board_;
  ReplyRouter replies_{{0, kThreads + 1}};
  std::vector<std::unique_ptr<RemoteEngine>> remotes_;
  std::unique_ptr<ClientPort> port_;
  std::unique_ptr<net::Listener> listener_;

  void answer(const serve::RequestReceived& received) {
    InferReply reply;
    reply.tag = received.request.tag;
    reply.outputs = received.request.inputs;
    reply.payload = {received.request.payload};
    replies_.reply(received.client, std::move(reply));
  }

 private:
  void deliver(serve::FrontendEvent event) override {
    if (const auto* const left = std::get_if<serve::ClientDisconnected>(&event)) {
      disconnected_.push_back(left->client);
    } else if (auto& received = std::get<serve::RequestReceived>(event); holding_) {
      held_.push_back(std::move(received));
    } else {
      answer(received);
    }
  }
  void deliver_from(std::string_view /*address*/, serve::FrontendEvent event) override {
    deliver(std::move(event));
  }
  void on_models_request(ClientId client, const ModelsRequest& /*request*/) override {
    replies_.send(client, protocol::encode(FrontendReply(ModelsReply{})));
  }
  void on_change(ClientId /*client*/, ModelsChange /*change*/,
                 const access::PeerIdentity& /*peer*/) override {}
  void on_status_request(ClientId /*client*/, const StatusRequest& /*request*/) override {}
  void on_gone(ClientId client) override { gone_.push_back(client); }
};

TEST_F(ClientPortTest, AnswersTheRequestsOfAllClientsInTheirOrder) {
  std::vector<std::unique_ptr<StreamClient>> clients;
  for (int i = 0; i < 5; ++i) clients.push_back(std::make_unique<StreamClient>(listener_->port()));
  for (std::uint64_t tag = 1; tag <= 40; ++tag) {
    for (const auto& client : clients) client->send(byte_request("m", tag, 100));
  }
  for (const auto& client : clients) {
    ASSERT_TRUE(run(*client, [&] { return client->replies().size() == 40; }));
    for (const auto& [tag, replies] : client->replies()) {
      ASSERT_EQ(replies.size(), 1U);
      ASSERT_TRUE(replies[0].status.ok());
      EXPECT_EQ(replies[0].payload[0].view()[0], static_cast<std::byte>(tag & 0xffU));
    }
  }
  EXPECT_EQ(port_->size(), 5U);
}

TEST_F(ClientPortTest, JudgesALargePayloadByThePublishedModels) {
  StreamClient client(listener_->port());
  const auto served = ask(client, byte_request("m", 1, kLarge));
  ASSERT_TRUE(served);
  EXPECT_TRUE(served->status.ok()) << served->status.to_string();
  const auto other_size = ask(client, byte_request("m", 2, kLarge + 1));
  ASSERT_TRUE(other_size);
  EXPECT_EQ(other_size->status.code(), StatusCode::invalid);
  const auto unknown = ask(client, byte_request("n", 3, kLarge));
  ASSERT_TRUE(unknown);
  EXPECT_EQ(unknown->status.code(), StatusCode::not_found);
  EXPECT_EQ(buffers_.used_bytes(), 0U);
}

TEST_F(ClientPortTest, TellsTheEngineThatAClientIsGoneAfterItsRequests) {
  holding_ = true;
  auto client = std::make_unique<StreamClient>(listener_->port());
  client->send(byte_request("m", 1, 100));
  client->send(byte_request("m", 2, 100));
  ASSERT_TRUE(run(*client, [&] { return held_.size() == 2; }));
  EXPECT_EQ(port_->size(), 1U);
  client.reset();
  ASSERT_TRUE(loop_.run_until([&] { return disconnected_.size() == 1; }));
  EXPECT_EQ(disconnected_[0], held_[0].client);
  EXPECT_EQ(gone_, disconnected_);
  answer(held_[0]);  // nobody gets it
  EXPECT_TRUE(loop_.run_until([&] { return port_->size() == 0 && listener_->connections() == 0; }));
}

TEST_F(ClientPortTest, AsksAllClientsToLeaveAndClosesAfterTheirReplies) {
  std::vector<std::unique_ptr<StreamClient>> clients;
  for (std::size_t i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<StreamClient>(listener_->port()));
    const auto reply = ask(*clients[i], byte_request("m", 1, 100));
    ASSERT_TRUE(reply);
    EXPECT_FALSE(reply->leaving);
  }
  port_->start_leaving();
  holding_ = true;
  for (std::size_t i = 0; i < 4; ++i) {
    clients[i]->send(byte_request("m", 2, 100));
    ASSERT_TRUE(run(*clients[i], [&] { return held_.size() == i + 1; }));
  }
  for (const serve::RequestReceived& received : held_) answer(received);
  loop_.run_ready();  // the replies are on their way before the connections close
  port_->close_after_sending();
  for (const auto& client : clients) {
    ASSERT_TRUE(run(*client, [&] { return client->closed(); }));
    ASSERT_TRUE(client->replies().contains(2));
    EXPECT_TRUE(client->replies().at(2).back().leaving);
  }
}

TEST_F(ClientPortTest, EvictsAnIdleConnectionOfAnotherThread) {
  config_.max_connections = 2;
  config_.max_connections_per_address = 2;
  net::ListenerOptions options = client_listener_options(config_, nullptr);
  options.connections.least_idle = Duration::zero();
  listener_ =
      net::Listener::listen(loop_.executor(), "127.0.0.1", 0, options, port_->receivers()).value();
  std::vector<std::unique_ptr<StreamClient>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<StreamClient>(listener_->port()));
    const auto reply = ask(*clients.back(), byte_request("m", 1, 100));
    ASSERT_TRUE(reply);
    EXPECT_TRUE(reply->status.ok()) << reply->status.to_string();
  }
  EXPECT_EQ(listener_->slots().evicted(), 1U);
  EXPECT_TRUE(run(*clients[0], [&] { return clients[0]->closed(); }));
}

}  // namespace
}  // namespace gpulet::frontend::client_port_test
