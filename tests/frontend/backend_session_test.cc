// What a backend's session does before the core hears anything.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "frontend/sessions.h"
#include "gpulet/net/listener.h"
#include "tests/net/loop.h"
#include "tests/support/hostile/hostile_backend.h"

namespace gpulet::frontend {
namespace {

using gpulet::testing::HostileBackend;
using gpulet::testing::plain_hello;
using serve::PeerViolation;

class BackendSessionTest : public ::testing::Test {
 protected:
  BackendSessionTest() {
    auto listener = net::Listener::listen(
        loop_.executor(), "127.0.0.1", 0, {}, [this](net::Stream stream, net::ConnectionSlot slot) {
          BackendSession::Owner owner;
          owner.on_message = [this](serve::BackendMessage message) {
            messages_.push_back(std::move(message));
          };
          owner.breach_of_result = [this](BatchId batch) -> std::optional<serve::PeerBreach> {
            if (batch == own_) return std::nullopt;
            return serve::PeerBreach{PeerViolation::foreign_batch,
                                     {StatusCode::invalid, "another's"}};
          };
          owner.on_breach = [this](const serve::PeerBreach& breach) {
            breaches_.push_back(breach.kind);
            session_->refuse(breach.why);
          };
          owner.on_closed = [this](const Status&) { closed_ = true; };
          session_ = std::make_unique<BackendSession>(loop_.executor(), std::move(stream),
                                                      std::move(slot), net::ConnectionOptions(),
                                                      options_, buffers_, std::move(owner));
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
  std::vector<serve::BackendMessage> messages_;
  std::vector<PeerViolation> breaches_;
  bool closed_ = false;
};

TEST_F(BackendSessionTest, NoMemoryIsGivenToAPayloadThatMayNotCome) {
  constexpr std::uint32_t kMuch = 200U << 20U;
  HostileBackend early(listener_->port());
  early.announce_payload(net::MessageType::batch_result, "", kMuch);
  ASSERT_TRUE(run_both(early, [&] { return early.closed(); }));
  EXPECT_EQ(breaches_, std::vector{PeerViolation::before_hello});
  EXPECT_TRUE(early.refused());
  EXPECT_EQ(buffers_.used_bytes(), 0U);

  HostileBackend foreign(listener_->port());
  foreign.say(plain_hello("n1", 1));
  foreign.announce_payload(net::MessageType::batch_result, "", kMuch);
  ASSERT_TRUE(run_both(foreign, [&] { return foreign.closed(); }));
  EXPECT_EQ(breaches_.back(), PeerViolation::foreign_batch);
  EXPECT_EQ(buffers_.used_bytes(), 0U);
  EXPECT_EQ(messages_.size(), 1U);
}

TEST_F(BackendSessionTest, AResultOfItsOwnIsReceived) {
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

TEST_F(BackendSessionTest, APeerThatSaysNoHelloInTimeIsRefused) {
  options_.hello_within = std::chrono::milliseconds(50);
  HostileBackend peer(listener_->port());
  ASSERT_TRUE(run_both(peer, [&] { return peer.closed(); }));
  EXPECT_EQ(breaches_, std::vector{PeerViolation::no_hello});
  ASSERT_TRUE(peer.refused());
  EXPECT_EQ(peer.refused()->code(), StatusCode::timeout);
}

TEST_F(BackendSessionTest, BytesThatAreNoMessageAreABreach) {
  HostileBackend peer(listener_->port());
  peer.say(plain_hello("n1", 1));
  net::OutgoingFrame frame = net::encode(serve::BackendCommand(serve::Welcome{}));
  peer.say_frame(std::move(frame));  // a frontend's word
  ASSERT_TRUE(run_both(peer, [&] { return peer.closed(); }));
  EXPECT_EQ(breaches_, std::vector{PeerViolation::malformed});
}

}  // namespace
}  // namespace gpulet::frontend
