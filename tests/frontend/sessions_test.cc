#include "frontend/frames/sessions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gpulet/net/listener.h"
#include "gpulet/protocol/codec.h"
#include "tests/net/loop.h"
#include "tests/support/hostile/hostile_backend.h"
#include "tests/support/names.h"

namespace gpulet::frontend {
namespace {

using gpulet::testing::HostileBackend;
using gpulet::testing::plain_hello;
using serve::PeerViolation;

class BackendSessionTest : public ::testing::Test, private BackendSession::Owner {
 protected:
  BackendSessionTest() {
    auto listener = net::Listener::listen(
        loop_.executor(), "127.0.0.1", 0, {},
        [this](net::Stream stream, net::ConnectionSlotPointer slot) {
          BackendSession::Owner& owner = *this;
          session_ = std::make_unique<BackendSession>(loop_.executor(), std::move(stream),
                                                      std::move(slot), options_, buffers_, owner);
        });
    EXPECT_TRUE(listener.ok());
    listener_ = std::move(listener).value();
  }
  // Both sides run until the condition holds.
  bool run_both(HostileBackend& peer, const std::function<bool()>& condition) {
    return peer.run_until([&] {
      loop_.run_ready();
      return condition();
    });
  }

  net::testing::Loop loop_;
  net::BufferPool buffers_{net::BufferPoolOptions()};
  BackendSession::Options options_;
  const BatchId own_{3};
  std::unique_ptr<BackendSession> session_;
  std::unique_ptr<net::Listener> listener_;
  std::vector<BackendMessage> messages_;
  std::vector<PeerViolation> breaches_;
  bool closed_ = false;

 private:
  void on_message(BackendId /*from*/, BackendMessage message) override {
    messages_.push_back(std::move(message));
  }
  [[nodiscard]] std::optional<serve::PeerBreach> breach_of_result(BackendId /*from*/,
                                                                  BatchId batch) const override {
    if (batch == own_) return std::nullopt;
    return serve::PeerBreach{PeerViolation::foreign_batch, {StatusCode::invalid, "another's"}};
  }
  void on_breach(BackendId /*backend*/, const serve::PeerBreach& breach) override {
    breaches_.push_back(breach.kind);
    session_->refuse(breach.why);
  }
  void on_closed(BackendId /*backend*/, const Status& /*reason*/) override { closed_ = true; }
};

TEST_F(BackendSessionTest, GivesNoMemoryToAPayloadThatIsNotAllowed) {
  constexpr std::uint32_t kMuch = 200U << 20U;
  HostileBackend early(listener_->port());
  early.announce_payload(protocol::MessageType::batch_result, "", kMuch);
  ASSERT_TRUE(run_both(early, [&] { return early.closed(); }));
  EXPECT_EQ(breaches_, std::vector{PeerViolation::before_hello});
  EXPECT_TRUE(early.refused());
  EXPECT_EQ(buffers_.used_bytes(), 0U);

  HostileBackend foreign(listener_->port());
  foreign.say(plain_hello("n1", 1));
  foreign.announce_payload(protocol::MessageType::batch_result, "", kMuch);
  ASSERT_TRUE(run_both(foreign, [&] { return foreign.closed(); }));
  EXPECT_EQ(breaches_.back(), PeerViolation::foreign_batch);
  EXPECT_EQ(buffers_.used_bytes(), 0U);
  EXPECT_EQ(messages_.size(), 1U);
}

TEST_F(BackendSessionTest, ReceivesAResultOfItsOwnBatch) {
  HostileBackend peer(listener_->port());
  peer.say(plain_hello("n1", 1));
  BatchResult result;
  result.id = own_;
  result.outputs = Bytes::own({std::byte{1}, std::byte{2}});
  peer.say(result);
  ASSERT_TRUE(run_both(peer, [&] { return messages_.size() == 2; }));
  EXPECT_TRUE(breaches_.empty());
  EXPECT_TRUE(session_->introduced());
}

TEST_F(BackendSessionTest, RefusesAPeerWithoutAHelloInTime) {
  options_.hello_within = std::chrono::milliseconds(50);
  HostileBackend peer(listener_->port());
  ASSERT_TRUE(run_both(peer, [&] { return peer.closed(); }));
  EXPECT_EQ(breaches_, std::vector{PeerViolation::no_hello});
  ASSERT_TRUE(peer.refused());
  EXPECT_EQ(peer.refused()->code(), StatusCode::timeout);
}

TEST_F(BackendSessionTest, ReportsAnUndecodableMessageAsAViolation) {
  HostileBackend peer(listener_->port());
  peer.say(plain_hello("n1", 1));
  protocol::OutgoingFrame frame = protocol::encode(BackendCommand(Welcome{}));
  peer.say_frame(std::move(frame));  // only frontends send it
  ASSERT_TRUE(run_both(peer, [&] { return peer.closed(); }));
  EXPECT_EQ(breaches_, std::vector{PeerViolation::malformed});
}

using protocol::Dialect;
using protocol::MessageType;
using support::names;
using ::testing::StartsWith;

constexpr FramePort kClients{FramePort::Peers::clients, 7000, 7001, 8000, 0};
constexpr FramePort kBackends{FramePort::Peers::backends, 7000, 7001, 8000, 0};

protocol::FrameHeader header_of(const protocol::OutgoingFrame& frame) {
  const auto bytes = std::as_bytes(std::span(frame.head)).first<protocol::kFrameHeaderBytes>();
  return protocol::decode_frame_header(bytes, {}).value();
}
std::span<const std::byte> message_of(const protocol::OutgoingFrame& frame) {
  return std::as_bytes(std::span(frame.head)).subspan(protocol::kFrameHeaderBytes);
}

TEST(WrongPortTest, SendsABackendFromTheClientPortToTheBackendPort) {
  const auto wrong = check_port(kClients, MessageType::hello);
  ASSERT_TRUE(wrong.has_value());
  EXPECT_TRUE(names(wrong->reason, "7001"));
  const auto decoded = protocol::decode<BackendCommand>(header_of(wrong->goodbye),
                                                        message_of(wrong->goodbye), Bytes());
  ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
  const auto& refused = std::get<Refused>(decoded.value());
  EXPECT_EQ(refused.why.code(), StatusCode::invalid);
  EXPECT_EQ(refused.why.message(), wrong->reason);
}

TEST(WrongPortTest, SendsAClientFromTheBackendPortToTheClientPort) {
  for (const MessageType type : {MessageType::authenticate, MessageType::infer_request,
                                 MessageType::status_request, MessageType::models_request}) {
    const auto wrong = check_port(kBackends, type);
    ASSERT_TRUE(wrong.has_value());
    EXPECT_TRUE(names(wrong->reason, "7000"));
    const auto decoded = protocol::decode<FrontendReply>(header_of(wrong->goodbye),
                                                         message_of(wrong->goodbye), Bytes());
    ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
    EXPECT_EQ(std::get<InferReply>(decoded.value()).status.code(), StatusCode::invalid);
  }
}

TEST(WrongPortTest, AcceptsPeersAtTheRightPort) {
  EXPECT_FALSE(check_port(kClients, MessageType::infer_request).has_value());
  EXPECT_FALSE(check_port(kBackends, MessageType::hello).has_value());
  EXPECT_FALSE(check_port(kBackends, MessageType::heartbeat).has_value());
}

TEST(WrongPortTest, AnswersHttpWithHttp) {
  const Status failure(StatusCode::malformed, "no frame");
  const std::string answer = goodbye_frame(kClients, failure, Dialect::http).head;
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 400 "));
  EXPECT_TRUE(names(answer, "8000"));
  const std::string grpc_answer = goodbye_frame(kBackends, failure, Dialect::http2).head;
  EXPECT_THAT(grpc_answer, StartsWith("HTTP/1.1 400 "));
  EXPECT_FALSE(names(grpc_answer, "8000")) << "gRPC is off";
}

TEST(WrongPortTest, ReportsOtherFailuresInFrames) {
  const Status failure(StatusCode::malformed, "no frame");
  for (const Dialect spoken : {Dialect::frames, Dialect::unknown, Dialect::tls}) {
    EXPECT_EQ(header_of(goodbye_frame(kClients, failure, spoken)).type, MessageType::infer_reply);
    EXPECT_EQ(header_of(goodbye_frame(kBackends, failure, spoken)).type, MessageType::refused);
  }
}

}  // namespace
}  // namespace gpulet::frontend
