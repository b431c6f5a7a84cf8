// Connections that go on over another stream.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/net/connection.h"
#include "tests/net/loop.h"

namespace gpulet::net::move_test {
namespace {

using namespace std::chrono_literals;
using protocol::MessageType;

constexpr std::size_t kLarge = 1'500'000;

protocol::OutgoingFrame frame_of(const std::string& text, std::size_t payload_bytes = 0) {
  const auto header = protocol::encode_frame_header({MessageType::heartbeat,
                                                     static_cast<std::uint32_t>(text.size()),
                                                     static_cast<std::uint32_t>(payload_bytes)});
  protocol::OutgoingFrame frame;
  frame.head = std::string(reinterpret_cast<const char*>(header.data()), header.size()) + text;
  if (payload_bytes > 0)
    frame.payload = {Bytes::own(std::vector<std::byte>(payload_bytes, std::byte{1}))};
  return frame;
}

struct Ends {
  StreamSocket one;
  StreamSocket two;
};

Ends make_pair(asio::io_context& io) {
  asio::local::stream_protocol::socket one(io);
  asio::local::stream_protocol::socket two(io);
  asio::local::connect_pair(one, two);
  return {StreamSocket(std::move(one)), StreamSocket(std::move(two))};
}

// One end. It follows a peer that moves where it has a stream to move to.
class End : public ConnectionHandler {
 public:
  End(StreamSocket socket, const ConnectionOptions& options = {})
      : connection_(Connection::start(std::move(socket), options, *this)) {}

  [[nodiscard]] Connection& connection() { return *connection_; }
  void say(const std::string& text, std::size_t payload_bytes = 0) {
    connection_->send(frame_of(text, payload_bytes));
  }
  // Where it goes when the peer does.
  void expect(StreamSocket next) { next_ = std::move(next); }
  void move(StreamSocket next) {
    connection_->move_to(Stream(std::move(next)));
    moves_first_ = true;
  }
  // Does not follow a peer that moves, for now.
  void stay() { stays_ = true; }
  void drop() { connection_.reset(); }

  [[nodiscard]] const std::vector<std::string>& heard() const { return heard_; }
  [[nodiscard]] int moves() const { return moves_; }
  [[nodiscard]] int closed_calls() const { return closed_calls_; }
  [[nodiscard]] const Status& closed() const { return closed_; }

 private:
  Result<MutableBytes> payload_memory(const protocol::FrameHeader& header,
                                      std::span<const std::byte>) override {
    auto memory = std::make_shared<std::vector<std::byte>>(header.payload_bytes);
    const std::span<std::byte> view(*memory);
    return MutableBytes(std::move(memory), view);
  }
  void on_frame(const protocol::FrameHeader& header, std::span<const std::byte> message,
                MutableBytes) override {
    if (header.type != MessageType::moved) {
      heard_.emplace_back(reinterpret_cast<const char*>(message.data()), message.size());
      return;
    }
    if (stays_) return;
    if (!moves_first_ && next_) connection_->move_to(Stream(*std::exchange(next_, std::nullopt)));
    if (!connection_->follow()) return connection_->close({StatusCode::malformed, "nowhere to go"});
    ++moves_;
  }
  void on_closed(const Status& reason) override {
    ++closed_calls_;
    closed_ = reason;
  }

  std::vector<std::string> heard_;
  std::optional<StreamSocket> next_;
  bool moves_first_ = false;
  bool stays_ = false;
  int moves_ = 0;
  int closed_calls_ = 0;
  Status closed_;
  std::shared_ptr<Connection> connection_;
};

class ConnectionMoveTest : public ::testing::Test {
 protected:
  ConnectionMoveTest() {
    Ends first = make_pair(loop_.context());
    a_ = std::make_unique<End>(std::move(first.one));
    b_ = std::make_unique<End>(std::move(first.two));
  }
  // a moves; b goes along.
  void move() {
    Ends next = make_pair(loop_.context());
    b_->expect(std::move(next.two));
    a_->move(std::move(next.one));
  }
  [[nodiscard]] bool both_moved(int times = 1) {
    return loop_.run_until([&] { return a_->moves() == times && b_->moves() == times; });
  }

  testing::Loop loop_;
  std::unique_ptr<End> a_;
  std::unique_ptr<End> b_;
};

std::vector<std::string> numbered(int count) {
  std::vector<std::string> all;
  all.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) all.push_back(std::to_string(i));
  return all;
}

TEST_F(ConnectionMoveTest, KeepsEveryFrameAndTheirOrder) {
  constexpr int kFrames = 60;
  for (int i = 0; i < kFrames; ++i) {
    if (i == kFrames / 3) move();
    a_->say(std::to_string(i), i % 4 == 0 ? kLarge : 0);
    b_->say(std::to_string(i), i % 5 == 0 ? kLarge : 0);
    if (i % 7 == 0) loop_.run_ready();
  }
  ASSERT_TRUE(loop_.run_until([&] {
    return a_->heard().size() == std::size_t{kFrames} && b_->heard().size() == std::size_t{kFrames};
  }));
  EXPECT_EQ(a_->heard(), numbered(kFrames));
  EXPECT_EQ(b_->heard(), numbered(kFrames));
  EXPECT_TRUE(both_moved());
}

TEST(ConnectionMoveProperty, KeepsOrderWhereverItMoves) {
  const auto property = [] {
    testing::Loop loop;
    Ends first = make_pair(loop.context());
    End a(std::move(first.one));
    End b(std::move(first.two));
    const int frames = *rc::gen::inRange(1, 40);
    const int at = *rc::gen::inRange(0, frames);
    for (int i = 0; i < frames; ++i) {
      if (i == at) {
        Ends next = make_pair(loop.context());
        b.expect(std::move(next.two));
        a.move(std::move(next.one));
      }
      a.say(std::to_string(i), *rc::gen::element(std::size_t{0}, std::size_t{300'000}));
      b.say(std::to_string(i), *rc::gen::element(std::size_t{0}, std::size_t{300'000}));
      if (*rc::gen::arbitrary<bool>()) loop.run_ready();
    }
    const auto all = static_cast<std::size_t>(frames);
    RC_ASSERT(loop.run_until([&] { return a.heard().size() == all && b.heard().size() == all; }));
    RC_ASSERT(a.heard() == numbered(frames));
    RC_ASSERT(b.heard() == numbered(frames));
    RC_ASSERT(a.closed_calls() == 0 && b.closed_calls() == 0);
  };
  EXPECT_TRUE(rc::check(property));
}

TEST_F(ConnectionMoveTest, MayMoveAgain) {
  for (int i = 0; i < 3; ++i) {
    move();
    a_->say(std::to_string(i));
    ASSERT_TRUE(both_moved(i + 1));
  }
  ASSERT_TRUE(loop_.run_until([&] { return b_->heard().size() == 3; }));
  EXPECT_EQ(b_->heard(), numbered(3));
}

TEST_F(ConnectionMoveTest, IsNoLongerSilentWhereItWasNotBefore) {
  b_->say("hello");
  ASSERT_TRUE(loop_.run_until([&] { return !a_->heard().empty(); }));
  const auto last = a_->connection().last_frame();
  move();
  ASSERT_TRUE(both_moved());
  EXPECT_FALSE(a_->connection().silent());
  EXPECT_EQ(a_->connection().last_frame(), last);
}

TEST_F(ConnectionMoveTest, APeerThatMovesWithoutAskingIsAtFault) {
  b_->connection().send(protocol::bare_frame(MessageType::moved));
  ASSERT_TRUE(loop_.run_until([&] { return a_->closed_calls() > 0; }));
  EXPECT_EQ(a_->closed().code(), StatusCode::malformed);
  EXPECT_FALSE(a_->connection().follow());
}

TEST_F(ConnectionMoveTest, AFailureOfEitherStreamClosesItOnce) {
  for (const bool of_former : {true, false}) {
    Ends first = make_pair(loop_.context());
    Ends next = make_pair(loop_.context());
    End a(std::move(first.one));
    a.move(std::move(next.one));
    (of_former ? first : next).two.close();
    a.say("something", kLarge);
    ASSERT_TRUE(loop_.run_until([&] { return a.closed_calls() > 0; })) << of_former;
    first.two.close();
    next.two.close();
    loop_.run_ready();
    EXPECT_EQ(a.closed_calls(), 1) << of_former;
  }
}

TEST_F(ConnectionMoveTest, ClosesWhileItMoves) {
  move();
  a_->connection().close({StatusCode::cancelled, "enough"});
  ASSERT_TRUE(loop_.run_until([&] { return a_->closed_calls() == 1 && b_->closed_calls() == 1; }));
  EXPECT_EQ(a_->closed(), Status(StatusCode::cancelled, "enough"));
}

TEST_F(ConnectionMoveTest, SendsWhatIsQueuedBeforeItCloses) {
  move();
  a_->say("last", kLarge);
  a_->connection().close_after_sending();
  ASSERT_TRUE(loop_.run_until([&] { return a_->closed_calls() == 1 && b_->closed_calls() == 1; }));
  EXPECT_EQ(b_->heard(), std::vector<std::string>{"last"});
}

TEST_F(ConnectionMoveTest, MayBeDestroyedAtAnyPoint) {
  move();
  a_->say("unsent", kLarge);
  loop_.run_ready();
  a_->drop();
  a_.reset();
  ASSERT_TRUE(loop_.run_until([&] { return b_->closed_calls() == 1; }));
}

TEST_F(ConnectionMoveTest, ThePeersPaceAndTimeoutsDoNotRunBeforeItFollows) {
  ConnectionOptions options;
  options.read_timeout = 200ms;
  options.first_timeout = 200ms;
  Ends first = make_pair(loop_.context());
  Ends next = make_pair(loop_.context());
  End a(std::move(first.one), options);
  End b(std::move(first.two));
  b.stay();
  a.move(std::move(next.one));
  const auto until = std::chrono::steady_clock::now() + 400ms;
  ASSERT_TRUE(loop_.run_until([&] {
    b.say("still here");
    return std::chrono::steady_clock::now() > until;
  }));
  EXPECT_EQ(a.closed_calls(), 0) << a.closed().to_string();
}

}  // namespace
}  // namespace gpulet::net::move_test
