#include "gpulet/net/connection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/asio/write.hpp>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/net/loop.h"
#include "tests/protocol/frame_bytes.h"
#include "tests/support/names.h"

namespace gpulet::net {
namespace {

using support::names;
using namespace testing;
using namespace protocol::testing;
using namespace std::chrono_literals;

// A frame with the message `text`, without the codec.
protocol::OutgoingFrame frame_of(const std::string& text, std::vector<Bytes> payload = {}) {
  std::size_t payload_bytes = 0;
  for (const Bytes& piece : payload) payload_bytes += piece.size();
  const auto header = protocol::encode_frame_header({protocol::MessageType::infer_request,
                                                     static_cast<std::uint32_t>(text.size()),
                                                     static_cast<std::uint32_t>(payload_bytes)});
  return {std::string(reinterpret_cast<const char*>(header.data()), header.size()) + text,
          std::move(payload)};
}

Bytes pattern(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i % 251);
  return Bytes::own(std::move(bytes));
}

bool same(const Bytes& a, const Bytes& b) { return std::ranges::equal(a.view(), b.view()); }

// Records all callbacks; a test may hook into the frames.
class Recorder : public ConnectionHandler {
 public:
  Result<MutableBytes> payload_memory(const protocol::FrameHeader& header,
                                      std::span<const std::byte>) override {
    ++payloads_wanted;
    if (refuse_payloads) return Status(StatusCode::invalid, "no room");
    if (discard_payloads) return MutableBytes();
    return memory_for(header.payload_bytes);
  }
  Status payload_received(std::size_t bytes) override {
    received = bytes;
    if (bytes > most_received) return {StatusCode::overloaded, "no more room"};
    return {};
  }
  void on_frame(const protocol::FrameHeader&, std::span<const std::byte> message,
                MutableBytes payload) override {
    messages.emplace_back(reinterpret_cast<const char*>(message.data()), message.size());
    payloads.push_back(payload.freeze());
    if (on_each) on_each();
  }
  std::optional<protocol::OutgoingFrame> goodbye(const Status& failure,
                                                 protocol::Dialect spoken) override {
    dialect = spoken;
    if (says_goodbye) return frame_of(failure.message());
    return std::nullopt;
  }
  void on_closed(const Status& reason) override {
    ++closed_calls;
    closed = reason;
  }

  [[nodiscard]] bool is_closed() const { return closed_calls > 0; }

  std::vector<std::string> messages;
  std::vector<Bytes> payloads;
  std::function<void()> on_each;
  bool refuse_payloads = false;
  bool discard_payloads = false;
  std::size_t received = 0;  // bytes of the payload, as last reported
  std::size_t most_received = std::numeric_limits<std::size_t>::max();
  bool says_goodbye = false;
  protocol::Dialect dialect = protocol::Dialect::unknown;  // the argument of goodbye
  int payloads_wanted = 0;
  int closed_calls = 0;
  Status closed;
};

// The ends of a Unix socket pair; each may become a Connection or stay a plain socket.
class ConnectionTest : public ::testing::Test {
 protected:
  using LocalSocket = asio::local::stream_protocol::socket;

  ConnectionTest() { new_pair(); }

  void new_pair() {
    LocalSocket one(loop_.context());
    LocalSocket two(loop_.context());
    asio::local::connect_pair(one, two);
    here_ = std::move(one);
    there_ = std::move(two);
  }

  std::shared_ptr<Connection> start(StreamSocket& socket, ConnectionHandler& handler,
                                    const ConnectionOptions& options = {}) {
    return Connection::start(std::move(socket), options, handler);
  }

  void write_raw(const std::vector<std::byte>& bytes) { asio::write(there_, asio::buffer(bytes)); }

  // Reads the plain end until it is closed, while the loop runs.
  std::vector<std::byte> read_to_end() {
    std::vector<std::byte> all;
    std::vector<std::byte> block(1U << 16U);
    there_.non_blocking(true);
    EXPECT_TRUE(loop_.run_until([&] {
      boost::system::error_code error;
      while (!error) {
        const std::size_t bytes = there_.read_some(asio::buffer(block), error);
        all.insert(all.end(), block.begin(), block.begin() + static_cast<std::ptrdiff_t>(bytes));
      }
      return error != asio::error::would_block;
    }));
    return all;
  }

  Loop loop_;
  StreamSocket here_{loop_.context()};
  StreamSocket there_{loop_.context()};
  Recorder recorder_;
};

TEST_F(ConnectionTest, TransfersFramesOfAnySizeInBothDirectionsInOrder) {
  Recorder peer;
  const auto a = start(here_, recorder_);
  const auto b = start(there_, peer);
  const std::vector<std::size_t> sizes{0, 1, 3136, 65'536, 602'112, 4'800'000};
  std::size_t sent = 0;
  for (int round = 0; round < 3; ++round) {
    for (const std::size_t size : sizes) {
      const Bytes payload = pattern(size);
      a->send(frame_of("to b " + std::to_string(sent),
                       {payload.slice(0, size / 3), payload.slice(size / 3, size - size / 3)}));
      b->send(frame_of("to a " + std::to_string(sent), {payload}));
      ++sent;
    }
  }
  ASSERT_TRUE(loop_.run_until(
      [&] { return recorder_.messages.size() == sent && peer.messages.size() == sent; }));
  for (std::size_t i = 0; i < sent; ++i) {
    EXPECT_EQ(recorder_.messages[i], "to a " + std::to_string(i));
    EXPECT_EQ(peer.messages[i], "to b " + std::to_string(i));
    EXPECT_TRUE(same(peer.payloads[i], pattern(sizes[i % sizes.size()])));
    EXPECT_TRUE(same(recorder_.payloads[i], pattern(sizes[i % sizes.size()])));
  }
  EXPECT_EQ(a->queued_bytes(), 0U);
}

TEST_F(ConnectionTest, MakesNoCallbackFromWithinACall) {
  write_raw(bytes_of(frame_of("hello")));
  const auto connection = start(here_, recorder_);
  EXPECT_TRUE(recorder_.messages.empty());
  connection->close({StatusCode::cancelled, "enough"});
  EXPECT_FALSE(recorder_.is_closed());
  ASSERT_TRUE(loop_.run_until([&] { return recorder_.is_closed(); }));
  EXPECT_EQ(recorder_.closed, Status(StatusCode::cancelled, "enough"));
  EXPECT_TRUE(recorder_.messages.empty());
}

TEST_F(ConnectionTest, GathersTheRepliesOfOneTurn) {
  const auto connection = start(here_, recorder_);
  std::size_t available_before_turn = 0;
  recorder_.on_each = [&] {
    connection->send(frame_of("answer"));
    EXPECT_EQ(there_.available(), available_before_turn);
  };
  std::vector<std::byte> requests;
  for (int i = 0; i < 50; ++i) {
    const auto bytes = bytes_of(frame_of("request"));
    requests.insert(requests.end(), bytes.begin(), bytes.end());
  }
  write_raw(requests);
  // The loop evaluates the condition between turns; a turn that takes long ends before the fiftieth
  // frame.
  ASSERT_TRUE(loop_.run_until([&] {
    available_before_turn = there_.available();
    return available_before_turn == 50 * bytes_of(frame_of("answer")).size();
  }));
}

TEST_F(ConnectionTest, AFloodOfFramesDoesNotBlockOtherConnections) {
  Recorder other;
  StreamSocket flood = std::move(there_);
  StreamSocket flooded = std::move(here_);
  new_pair();
  const auto first = start(flooded, recorder_);
  const auto second = start(here_, other);
  std::vector<std::byte> flooding;
  for (int i = 0; i < 2000; ++i) {
    const auto bytes = bytes_of(frame_of("x"));
    flooding.insert(flooding.end(), bytes.begin(), bytes.end());
  }
  asio::write(flood, asio::buffer(flooding));
  write_raw(bytes_of(frame_of("me too")));
  ASSERT_TRUE(loop_.run_until([&] { return !other.messages.empty(); }));
  EXPECT_LT(recorder_.messages.size(), 2000U);
  ASSERT_TRUE(loop_.run_until([&] { return recorder_.messages.size() == 2000U; }));
}

TEST_F(ConnectionTest, SlowFramesDoNotBlockOtherConnections) {
  Recorder other;
  StreamSocket flood = std::move(there_);
  StreamSocket flooded = std::move(here_);
  new_pair();
  const auto first = start(flooded, recorder_);
  const auto second = start(here_, other);
  recorder_.on_each = [] {
    const auto until = std::chrono::steady_clock::now() + 2ms;
    while (std::chrono::steady_clock::now() < until) {
    }
  };
  std::size_t before_other = 0;
  other.on_each = [&] { before_other = recorder_.messages.size(); };
  std::vector<std::byte> flooding;
  for (int i = 0; i < 40; ++i) {
    const auto bytes = bytes_of(frame_of("x"));
    flooding.insert(flooding.end(), bytes.begin(), bytes.end());
  }
  asio::write(flood, asio::buffer(flooding));
  write_raw(bytes_of(frame_of("me too")));
  ASSERT_TRUE(
      loop_.run_until([&] { return recorder_.messages.size() == 40U && !other.messages.empty(); }));
  EXPECT_LT(before_other, 10U);
}

TEST_F(ConnectionTest, ClosesWhenThePeerCloses) {
  const auto connection = start(here_, recorder_);
  there_.close();
  ASSERT_TRUE(loop_.run_until([&] { return recorder_.is_closed(); }));
  EXPECT_EQ(recorder_.closed.code(), StatusCode::cancelled);
}

TEST_F(ConnectionTest, APeerThatShutsDownSendingGetsItsLastReply) {
  const auto connection = start(here_, recorder_);
  recorder_.on_each = [&] { connection->send(frame_of("answer")); };
  write_raw(bytes_of(frame_of("last words")));
  there_.shutdown(StreamSocket::shutdown_send);
  EXPECT_EQ(read_to_end(), bytes_of(frame_of("answer")));
  ASSERT_TRUE(loop_.run_until([&] { return recorder_.is_closed(); }));
  EXPECT_EQ(recorder_.messages, std::vector<std::string>{"last words"});
  EXPECT_EQ(recorder_.closed.code(), StatusCode::cancelled);
}

TEST_F(ConnectionTest, ReportsAPeerThatClosesWithinAFrame) {
  const auto connection = start(here_, recorder_);
  std::vector<std::byte> half = bytes_of(frame_of("half a frame"));
  half.resize(half.size() - 3);
  write_raw(half);
  there_.close();
  ASSERT_TRUE(loop_.run_until([&] { return recorder_.is_closed(); }));
  EXPECT_EQ(recorder_.closed.code(), StatusCode::cancelled);
  EXPECT_TRUE(names(recorder_.closed, "frame"));
}

TEST_F(ConnectionTest, SendsGoodbyeAfterAProtocolViolation) {
  recorder_.says_goodbye = true;
  const auto connection = start(here_, recorder_);
  write_raw(std::vector<std::byte>(100'000));  // more than is ever read
  const std::vector<std::byte> got = read_to_end();
  ASSERT_GT(got.size(), protocol::kFrameHeaderBytes);
  there_.close();
  ASSERT_TRUE(loop_.run_until([&] { return recorder_.is_closed(); }));
  EXPECT_EQ(recorder_.closed.code(), StatusCode::malformed);
  EXPECT_EQ(got, bytes_of(frame_of(recorder_.closed.message())));
}

std::vector<std::byte> raw(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

TEST_F(ConnectionTest, DetectsHttpOnTheWrongPort) {
  const auto connection = start(here_, recorder_);
  write_raw(raw("GET / HTTP/1.1\r\nHost: x\r\n\r\n"));
  ASSERT_TRUE(loop_.run_until([&] { return recorder_.is_closed(); }));
  EXPECT_EQ(recorder_.dialect, protocol::Dialect::http);
  EXPECT_EQ(recorder_.closed.code(), StatusCode::malformed);
}

TEST_F(ConnectionTest, DetectsTlsInAShortReply) {
  const auto connection = start(here_, recorder_);
  write_raw(raw("\x15\x03\x03\x01\x02\x02\x28"));  // an alert
  there_.close();
  ASSERT_TRUE(loop_.run_until([&] { return recorder_.is_closed(); }));
  EXPECT_EQ(recorder_.closed.code(), StatusCode::malformed);
  EXPECT_TRUE(names(recorder_.closed, "TLS"));
}

TEST_F(ConnectionTest, AllocatesNothingForAnOverlongLength) {
  const auto connection = start(here_, recorder_);
  const auto header = protocol::encode_frame_header({protocol::MessageType::batch, 0, 0xffffffff});
  write_raw({header.begin(), header.end()});
  ASSERT_TRUE(loop_.run_until([&] { return recorder_.is_closed(); }));
  EXPECT_EQ(recorder_.closed.code(), StatusCode::invalid);
  EXPECT_EQ(recorder_.payloads_wanted, 0);
}

TEST_F(ConnectionTest, ClosesWithTheHandlersReasonForRefusingAPayload) {
  recorder_.refuse_payloads = true;
  const auto connection = start(here_, recorder_);
  write_raw(bytes_of(frame_of("big", {pattern(100)})));
  ASSERT_TRUE(loop_.run_until([&] { return recorder_.is_closed(); }));
  EXPECT_EQ(recorder_.closed, Status(StatusCode::invalid, "no room"));
}

TEST_F(ConnectionTest, DiscardsAPayloadWithoutMemoryAndContinues) {
  recorder_.discard_payloads = true;
  const auto connection = start(here_, recorder_);
  Recorder peer;
  const auto sender = start(there_, peer);
  sender->send(frame_of("unwanted", {pattern(3'000'000)}));
  sender->send(frame_of("next"));
  ASSERT_TRUE(loop_.run_until([&] { return recorder_.messages.size() == 2; }));
  EXPECT_EQ(recorder_.messages[1], "next");
  EXPECT_TRUE(recorder_.payloads[0].empty());
  EXPECT_FALSE(recorder_.is_closed());
}

TEST_F(ConnectionTest, ReportsPayloadProgressAndClosesOnFailure) {
  recorder_.most_received = 1'000'000;
  const auto connection = start(here_, recorder_);
  Recorder peer;
  const auto sender = start(there_, peer);
  sender->send(frame_of("fits", {pattern(1'000'000)}));
  ASSERT_TRUE(loop_.run_until([&] { return recorder_.messages.size() == 1; }));
  EXPECT_EQ(recorder_.received, 1'000'000U);
  sender->send(frame_of("does not", {pattern(2'000'000)}));
  ASSERT_TRUE(loop_.run_until([&] { return recorder_.is_closed(); }));
  EXPECT_EQ(recorder_.closed.code(), StatusCode::overloaded);
  EXPECT_EQ(recorder_.messages.size(), 1U);
}

TEST_F(ConnectionTest, ClosesASilentPeer) {
  Recorder spoke;
  StreamSocket silent = std::move(there_);
  StreamSocket unheard = std::move(here_);
  new_pair();
  ConnectionOptions options;
  options.first_timeout = 60ms;
  const auto first = start(unheard, recorder_, options);
  const auto second = start(here_, spoke, options);
  EXPECT_TRUE(second->silent());
  write_raw(bytes_of(frame_of("here I am")));
  ASSERT_TRUE(loop_.run_until([&] { return recorder_.is_closed(); }));
  EXPECT_EQ(recorder_.closed.code(), StatusCode::timeout);
  EXPECT_FALSE(spoke.is_closed());
  EXPECT_FALSE(second->silent());
}

TEST_F(ConnectionTest, SendsGoodbyeToASlowSenderAndCloses) {
  recorder_.says_goodbye = true;
  ConnectionOptions options;
  options.pace = {.bytes_per_second = 1'000'000, .window = 60ms};
  const auto connection = start(here_, recorder_, options);
  std::vector<std::byte> begun = bytes_of(frame_of("slow", {pattern(100'000)}));
  begun.resize(1000);
  write_raw(begun);
  // Single bytes are too slow.
  asio::steady_timer timer(loop_.context());
  std::function<void()> dribble = [&] {
    timer.expires_after(10ms);
    timer.async_wait([&](const boost::system::error_code& error) {
      boost::system::error_code gone;
      if (!error) asio::write(there_, asio::buffer("x", 1), gone);
      if (!error && !gone) dribble();
    });
  };
  dribble();
  const std::vector<std::byte> got = read_to_end();
  timer.cancel();
  there_.close();
  ASSERT_TRUE(loop_.run_until([&] { return recorder_.is_closed(); }));
  EXPECT_EQ(recorder_.closed.code(), StatusCode::timeout);
  EXPECT_EQ(got, bytes_of(frame_of(recorder_.closed.message())));
}

TEST_F(ConnectionTest, ClosesWhenTheSendQueueIsFull) {
  ConnectionOptions options;
  options.max_queued_bytes = 1U << 20U;
  const auto connection = start(here_, recorder_, options);
  const Bytes payload = pattern(100'000);
  ASSERT_TRUE(loop_.run_until([&] {
    connection->send(frame_of("more", {payload}));
    EXPECT_LE(connection->queued_bytes(), options.max_queued_bytes);
    return recorder_.is_closed();
  }));
  EXPECT_EQ(recorder_.closed.code(), StatusCode::overloaded);
}

TEST_F(ConnectionTest, ReadsNoMoreFromAPeerThatTakesTooLittle) {
  constexpr int kAsked = 100;
  const Bytes answer = pattern(100'000);
  ConnectionOptions options;
  options.max_queued_bytes = 2U << 20U;
  options.pause_above_bytes = 1U << 20U;
  const auto connection = start(here_, recorder_, options);
  recorder_.on_each = [&] { connection->send(frame_of("answer", {answer})); };
  for (int i = 0; i < kAsked; ++i) write_raw(bytes_of(frame_of("request")));
  ASSERT_TRUE(loop_.run_until([&] { return connection->queued_bytes() > 1U << 20U; }));
  loop_.context().poll();
  EXPECT_FALSE(recorder_.is_closed());
  const std::size_t answered = recorder_.messages.size();
  EXPECT_LT(answered, static_cast<std::size_t>(kAsked));
  Recorder peer;
  const auto reader = start(there_, peer);
  ASSERT_TRUE(loop_.run_until([&] { return peer.messages.size() == kAsked; }));
  EXPECT_EQ(recorder_.messages.size(), static_cast<std::size_t>(kAsked));
}

TEST_F(ConnectionTest, LimitsAQueueOfTinyFramesByTheirMemory) {
  ConnectionOptions options;
  options.max_queued_bytes = 1U << 20U;
  const auto connection = start(here_, recorder_, options);
  int frames = 0;
  while (connection->queued_bytes() < options.max_queued_bytes - 200 && frames < 20'000) {
    connection->send(frame_of(""));
    ++frames;
  }
  EXPECT_LT(frames, 10'000);
}

TEST_F(ConnectionTest, ClosesAPeerThatNeverReadsAfterTheWriteTimeoutOnly) {
  Recorder other;
  Recorder others_peer;
  StreamSocket silent = std::move(there_);
  StreamSocket ignored = std::move(here_);
  new_pair();
  ConnectionOptions options;
  options.write_timeout = 100ms;
  const auto stuck = start(ignored, recorder_, options);
  const auto healthy = start(here_, other, options);
  const auto healthy_peer = start(there_, others_peer, options);
  stuck->send(frame_of("never read", {pattern(8'000'000)}));
  others_peer.on_each = [&] { healthy_peer->send(frame_of("pong")); };
  other.on_each = [&] { healthy->send(frame_of("ping")); };
  healthy->send(frame_of("ping"));
  ASSERT_TRUE(loop_.run_until([&] { return recorder_.is_closed(); }));
  EXPECT_EQ(recorder_.closed.code(), StatusCode::timeout);
  const std::size_t before = other.messages.size();
  EXPECT_GT(before, 0U);
  EXPECT_TRUE(loop_.run_until([&] { return other.messages.size() > before + 10; }));
  EXPECT_FALSE(other.is_closed());
}

TEST_F(ConnectionTest, ClosesAPeerWithoutHeartbeats) {
  ConnectionOptions options;
  options.read_timeout = 60ms;
  const auto connection = start(here_, recorder_, options);
  ASSERT_TRUE(loop_.run_until([&] { return recorder_.is_closed(); }));
  EXPECT_EQ(recorder_.closed.code(), StatusCode::timeout);
}

// Both ends live on the loop that stands still. After it, the peer speaks before its deadline is
// examined, and its bytes are read later.
TEST_F(ConnectionTest, DoesNotTakeItsOwnStandstillForThePeersSilence) {
  constexpr auto kTimeout = 300ms;
  ConnectionOptions options;
  options.read_timeout = kTimeout;
  Recorder peer;
  const auto connection = start(here_, recorder_, options);
  const auto there = start(there_, peer);
  asio::steady_timer speaks(loop_.context(), kTimeout / 2);
  speaks.async_wait([&](const boost::system::error_code&) { there->send(frame_of("beat")); });
  const auto until = std::chrono::steady_clock::now() + 3 * kTimeout;
  asio::post(loop_.context(), [until] {
    while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
  });
  ASSERT_TRUE(
      loop_.run_until([&] { return !recorder_.messages.empty() || recorder_.is_closed(); }));
  EXPECT_FALSE(recorder_.is_closed());
  // The grace is given once.
  ASSERT_TRUE(loop_.run_until([&] { return recorder_.is_closed(); }));
  EXPECT_EQ(recorder_.closed.code(), StatusCode::timeout);
}

TEST_F(ConnectionTest, ClosesAPeerThatStopsWithinAFrameButNotAnIdleOne) {
  Recorder idle;
  StreamSocket stalled = std::move(there_);
  StreamSocket waiting = std::move(here_);
  new_pair();
  ConnectionOptions options;
  options.frame_timeout = 60ms;
  const auto first = start(waiting, recorder_, options);
  const auto second = start(here_, idle, options);
  write_raw(bytes_of(frame_of("whole")));
  std::vector<std::byte> half = bytes_of(frame_of("half", {pattern(1000)}));
  half.resize(500);
  asio::write(stalled, asio::buffer(half));
  ASSERT_TRUE(loop_.run_until([&] { return recorder_.is_closed(); }));
  EXPECT_EQ(recorder_.closed.code(), StatusCode::timeout);
  EXPECT_EQ(idle.messages.size(), 1U);
  EXPECT_FALSE(idle.is_closed());
}

TEST_F(ConnectionTest, SendsEverythingBeforeClosingDespiteUnreadInput) {
  const auto connection = start(here_, recorder_);
  connection->send(frame_of("all of it", {pattern(3'000'000)}));
  connection->close_after_sending();
  connection->send(frame_of("too late"));
  write_raw(bytes_of(frame_of("ignored", {pattern(50'000)})));
  EXPECT_EQ(read_to_end(), bytes_of(frame_of("all of it", {pattern(3'000'000)})));
  there_.close();
  ASSERT_TRUE(loop_.run_until([&] { return recorder_.is_closed(); }));
  EXPECT_EQ(recorder_.closed.code(), StatusCode::cancelled);
  EXPECT_TRUE(recorder_.messages.empty());
}

TEST_F(ConnectionTest, ClosesAfterSendingAlthoughThePeerStaysOpen) {
  ConnectionOptions options;
  options.write_timeout = 50ms;
  const auto connection = start(here_, recorder_, options);
  connection->close_after_sending();
  ASSERT_TRUE(loop_.run_until([&] { return recorder_.is_closed(); }));
  EXPECT_EQ(recorder_.closed.code(), StatusCode::cancelled);
}

TEST_F(ConnectionTest, TheHandlerMayCloseBetweenFrames) {
  const auto connection = start(here_, recorder_);
  recorder_.on_each = [&] {
    if (recorder_.messages.size() == 2)
      connection->close({StatusCode::cancelled, "two are enough"});
  };
  for (int i = 0; i < 5; ++i) write_raw(bytes_of(frame_of("frame", {pattern(10)})));
  ASSERT_TRUE(loop_.run_until([&] { return recorder_.is_closed(); }));
  EXPECT_EQ(recorder_.messages.size(), 2U);
  connection->close({StatusCode::internal, "again"});
  loop_.run_ready();
  EXPECT_EQ(recorder_.closed_calls, 1);
}

TEST_F(ConnectionTest, MayBeDestroyedWithOperationsInFlight) {
  auto handler = std::make_unique<Recorder>();
  auto connection = start(here_, *handler);
  connection->send(frame_of("unsent", {pattern(5'000'000)}));
  write_raw(bytes_of(frame_of("unread")));
  loop_.run_ready();
  write_raw(bytes_of(frame_of("unread", {pattern(100'000)})));
  connection.reset();
  handler.reset();
  read_to_end();
  loop_.run_ready();
}

TEST_F(ConnectionTest, TheHandlerMayDestroyItInACallback) {
  std::shared_ptr<Connection> connection = start(here_, recorder_);
  recorder_.on_each = [&] { connection.reset(); };
  for (int i = 0; i < 3; ++i) write_raw(bytes_of(frame_of("frame")));
  read_to_end();
  loop_.run_ready();
  EXPECT_EQ(recorder_.messages.size(), 1U);
  EXPECT_FALSE(recorder_.is_closed());
}

}  // namespace
}  // namespace gpulet::net
