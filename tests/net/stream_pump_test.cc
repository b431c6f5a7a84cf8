#include "net/stream_pump.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <boost/asio/local/connect_pair.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/net/loop.h"

namespace gpulet::net::stream_pump_test {
namespace {

using namespace std::chrono_literals;
using testing::Loop;

constexpr std::size_t kMoreThanASocketHolds = 8U << 20U;

protocol::OutgoingFrame frame_of(std::string text) { return {std::move(text), {}}; }

std::string pattern(std::size_t bytes) {
  std::string text(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>('a' + i % 23);
  return text;
}

// Owns a pump on one end of a pair of sockets, and counts what the pump tells.
class Owner final : public StreamPump::Owner, public std::enable_shared_from_this<Owner> {
 public:
  explicit Owner(Stream stream) : pump(std::move(stream), *this) { pump.stream().prepare(); }

  [[nodiscard]] std::shared_ptr<StreamPump::Owner> shared() override { return shared_from_this(); }
  void on_all_written() override {
    ++all_written;
    if (again.empty()) return;
    pump.push(frame_of(std::exchange(again, {})));
    pump.flush();
  }
  void on_blocked() override { ++blocked; }
  void on_write_failed(const boost::system::error_code& /*error*/) override {
    ++failed;
    pump.close();
  }

  StreamPump pump;
  std::string again;  // is pushed once all is written
  int all_written = 0;
  int blocked = 0;
  int failed = 0;
};

class StreamPumpTest : public ::testing::Test {
 protected:
  using Local = asio::local::stream_protocol;

  StreamPumpTest() {
    Local::socket own(loop_.context());
    asio::local::connect_pair(own, peer_);
    peer_.non_blocking(true);
    owner_ = std::make_shared<Owner>(Stream(StreamSocket(std::move(own))));
  }
  [[nodiscard]] StreamPump& pump() { return owner_->pump; }
  void push(std::string text) { pump().push(frame_of(std::move(text))); }
  // What the peer finds now, at most `most` bytes.
  std::string receive(std::size_t most = 64U << 20U) {
    std::string text;
    std::string part(64U << 10U, '\0');
    boost::system::error_code error;
    while (!error && text.size() < most) {
      const std::size_t wanted = std::min(part.size(), most - text.size());
      text.append(part, 0, peer_.read_some(asio::buffer(part, wanted), error));
    }
    return text;
  }
  // Lets the pump and the peer take turns until `bytes` have arrived.
  std::string receive_all(std::size_t bytes) {
    std::string text;
    EXPECT_TRUE(loop_.run_until([&] {
      text += receive();
      return text.size() >= bytes;
    }));
    return text;
  }
  // Until the peer has no room.
  void fill() {
    push(pattern(kMoreThanASocketHolds));
    pump().flush();
    ASSERT_TRUE(pump().blocked());
  }

  Loop loop_;
  Local::socket peer_{loop_.context()};
  std::shared_ptr<Owner> owner_;
};

TEST_F(StreamPumpTest, WritesWhatIsQueuedInOneCall) {
  push("one ");
  pump().push({"two ", {Bytes::own({std::byte{'3'}}), Bytes()}});
  EXPECT_GT(pump().cost(), 9U) << "frames cost memory, too";
  pump().flush();
  EXPECT_EQ(receive(), "one two 3");
  EXPECT_TRUE(pump().empty());
  EXPECT_EQ(pump().cost(), 0U);
  EXPECT_EQ(owner_->all_written, 1);
  EXPECT_FALSE(pump().blocked());
}

TEST_F(StreamPumpTest, AFlushOfAnEmptyQueueSaysThatAllIsWritten) {
  pump().flush();
  EXPECT_EQ(owner_->all_written, 1);
  push("");
  pump().flush();
  EXPECT_TRUE(pump().empty());
  EXPECT_EQ(owner_->all_written, 2);
}

TEST_F(StreamPumpTest, ALaterFlushGathersTheFramesOfATurn) {
  push("a");
  pump().flush_later();
  push("b");
  pump().flush_later();
  EXPECT_EQ(receive(), "");
  loop_.run_ready();
  EXPECT_EQ(receive(), "ab");
  EXPECT_EQ(owner_->all_written, 1);
}

TEST_F(StreamPumpTest, WritesABoundedNumberOfPiecesInATurn) {
  constexpr std::size_t kFrames = 5000;
  for (std::size_t i = 0; i < kFrames; ++i) push("x");
  pump().flush();
  const std::size_t first = receive().size();
  EXPECT_EQ(first, 16 * WriteQueue::kMaxPieces);
  EXPECT_FALSE(pump().empty());
  EXPECT_FALSE(pump().blocked());
  EXPECT_EQ(owner_->all_written, 0);
  EXPECT_EQ(receive_all(kFrames - first).size(), kFrames - first);
  EXPECT_EQ(owner_->all_written, 1);
}

TEST_F(StreamPumpTest, TheOwnerMayQueueMoreOnceAllIsWritten) {
  owner_->again = "more";
  push("first ");
  pump().flush();
  EXPECT_EQ(receive(), "first more");
  EXPECT_EQ(owner_->all_written, 2);
}

// ---- a peer without room

TEST_F(StreamPumpTest, WaitsForAPeerWithoutRoom) {
  EXPECT_EQ(pump().write_deadline(1s), StreamPump::Clock::time_point::max());
  const auto before = StreamPump::Clock::now();
  fill();
  EXPECT_EQ(owner_->blocked, 1);
  EXPECT_EQ(owner_->all_written, 0);
  EXPECT_GE(pump().last_progress(), before);
  EXPECT_LE(pump().last_progress(), StreamPump::Clock::now());
  EXPECT_EQ(pump().write_deadline(5s), pump().last_progress() + 5s);
  push("!");
  pump().flush();
  pump().flush_later();
  loop_.run_ready();
  EXPECT_EQ(owner_->blocked, 1) << "a flush does nothing meanwhile";
  EXPECT_EQ(receive_all(kMoreThanASocketHolds + 1), pattern(kMoreThanASocketHolds) + "!");
  EXPECT_EQ(owner_->all_written, 1);
  EXPECT_FALSE(pump().blocked());
  EXPECT_EQ(pump().write_deadline(5s), StreamPump::Clock::time_point::max());
}

TEST_F(StreamPumpTest, EveryByteThatThePeerTakesIsProgress) {
  fill();
  const auto first = pump().last_progress();
  const int blocked = owner_->blocked;
  std::size_t taken = 0;
  ASSERT_TRUE(loop_.run_until([&] {
    if (owner_->blocked > blocked) return true;
    taken += receive(64U << 10U).size();
    return false;
  }));
  EXPECT_LT(taken, kMoreThanASocketHolds);
  EXPECT_TRUE(pump().blocked());
  EXPECT_GT(pump().last_progress(), first);
}

TEST_F(StreamPumpTest, APeerThatTakesNothingMakesNoProgress) {
  fill();
  const auto first = pump().last_progress();
  for (int i = 0; i < 10; ++i) loop_.run_ready();
  EXPECT_TRUE(pump().blocked());
  EXPECT_EQ(pump().last_progress(), first);
}

TEST_F(StreamPumpTest, ForgetsWhatIsQueued) {
  push("forgotten");
  pump().clear();
  EXPECT_TRUE(pump().empty());
  EXPECT_EQ(pump().cost(), 0U);
  pump().flush();
  EXPECT_EQ(receive(), "");
}

// ---- the end

TEST_F(StreamPumpTest, ReportsAPeerThatIsGone) {
  peer_.close();
  push("to nobody");
  pump().flush();
  EXPECT_EQ(owner_->failed, 1);
  EXPECT_EQ(owner_->all_written, 0);
  pump().flush();
  EXPECT_EQ(owner_->failed, 1);
}

TEST_F(StreamPumpTest, ReportsAPeerThatLeavesWhileItHasNoRoom) {
  fill();
  peer_.close();
  EXPECT_TRUE(loop_.run_until([&] { return owner_->failed == 1; }));
  EXPECT_FALSE(pump().blocked());
}

TEST_F(StreamPumpTest, TellsNothingOnceClosed) {
  fill();
  pump().close();
  EXPECT_TRUE(pump().empty());
  push("late");
  pump().flush();
  pump().flush_later();
  loop_.run_ready();
  EXPECT_FALSE(pump().blocked());
  EXPECT_EQ(owner_->all_written, 0);
  EXPECT_EQ(owner_->failed, 0);
}

TEST_F(StreamPumpTest, AFlushThatIsPostedEndsWithTheStream) {
  push("never");
  pump().flush_later();
  pump().close();
  loop_.run_ready();
  EXPECT_EQ(receive(), "");
  EXPECT_EQ(owner_->all_written, 0);
}

TEST_F(StreamPumpTest, OperationsInFlightKeepTheOwner) {
  const std::weak_ptr<Owner> owner = owner_;
  fill();
  StreamPump& closed = pump();
  owner_.reset();
  ASSERT_FALSE(owner.expired()) << "it waits for room";
  closed.close();
  loop_.run_ready();
  EXPECT_TRUE(owner.expired());
}

// Whatever the frames, and whenever the peer reads: it gets all bytes in their order.
RC_GTEST_FIXTURE_PROP(StreamPumpTest, BytesArriveInTheirOrder, ()) {
  const auto piece_bytes = rc::gen::weightedOneOf<std::uint32_t>(
      {{8, rc::gen::inRange(0U, 200U)}, {1, rc::gen::inRange(0U, 100'000U)}});
  const int frames = *rc::gen::inRange(0, 12);
  std::string sent;
  std::string received;
  for (int i = 0; i < frames; ++i) {
    const auto pieces = *rc::gen::container<std::vector<std::uint32_t>>(
        *rc::gen::inRange<std::size_t>(0, 70), piece_bytes);
    const std::string head = pattern(*rc::gen::inRange<std::size_t>(0, 50));
    protocol::OutgoingFrame frame = frame_of(head);
    sent += head;
    for (const std::uint32_t size : pieces) {
      const std::string piece = pattern(size);
      const auto bytes = std::as_bytes(std::span(piece));
      frame.payload.push_back(Bytes::own({bytes.begin(), bytes.end()}));
      sent += piece;
    }
    pump().push(std::move(frame));
    const int act = *rc::gen::inRange(0, 4);
    if (act == 0) pump().flush();
    if (act == 1) pump().flush_later();
    if (act == 2) received += receive(*rc::gen::inRange<std::size_t>(1, 100'000));
    if (act == 3) loop_.run_ready();
  }
  pump().flush();
  received += receive_all(sent.size() - received.size());
  RC_ASSERT(received == sent);
  RC_ASSERT(pump().empty());
  RC_ASSERT(pump().cost() == 0U);
}

// ---- StandstillGrace

const StandstillGrace::Clock::time_point kDue{1h};

TEST(StandstillGrace, ADeadlineCountsWhereItIsCheckedInTime) {
  StandstillGrace grace;
  EXPECT_TRUE(grace.counts(kDue, kDue));
  EXPECT_TRUE(grace.counts(kDue, kDue + StandstillGrace::kStandstill));
}

TEST(StandstillGrace, OneThatPassesInAStandstillCountsHalfASecondLater) {
  StandstillGrace grace;
  const auto woke = kDue + 10s;
  EXPECT_FALSE(grace.counts(kDue, woke));
  EXPECT_FALSE(grace.counts(woke, woke + StandstillGrace::kGrace - 1ms));
  EXPECT_TRUE(grace.counts(woke, woke + StandstillGrace::kGrace));
}

TEST(StandstillGrace, ThereIsOneForEachStandstill) {
  StandstillGrace grace;
  const auto woke = kDue + 10s;
  EXPECT_FALSE(grace.counts(kDue, woke));
  EXPECT_TRUE(grace.counts(woke, woke + 20s)) << "no byte has come since";
  grace.reset();
  EXPECT_FALSE(grace.counts(kDue, woke + 40s));
}

TEST(StandstillGrace, ASweepThatComesLateChecksNothingForAWhile) {
  StandstillGrace grace;
  EXPECT_TRUE(grace.counts_sweep(kDue, kDue + 10ms));
  const auto woke = kDue + 10s;
  EXPECT_FALSE(grace.counts_sweep(kDue, woke));
  EXPECT_FALSE(grace.counts_sweep(woke, woke + 100ms));
  const auto late = woke + StandstillGrace::kGrace;
  EXPECT_TRUE(grace.counts_sweep(woke, late)) << "sweeps that are always late check, too";
}

}  // namespace
}  // namespace gpulet::net::stream_pump_test
