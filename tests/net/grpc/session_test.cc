// An HTTP/2 connection with gRPC calls: what a hostile client costs, and what honest ones may do.
#include "net/grpc/session.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>

#include "tests/net/grpc/session_fixture.h"

namespace gpulet::net::grpc_api {
namespace {

using namespace testing;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* kOk = "0";
constexpr const char* kDeadlineExceeded = "4";
constexpr const char* kResourceExhausted = "8";
constexpr const char* kInternal = "13";

class SessionTest : public ::testing::Test {
 protected:
  SessionTest() { world_.greet(); }

  // Sends frames until the session ends the connection. Returns how many.
  std::size_t flood(const std::string& one, std::size_t most) {
    std::size_t sent = 0;
    while (sent < most && !world_.session().over()) {
      world_.receive(one);
      ++sent;
    }
    return sent;
  }

  World world_;
};

std::string deflated(const std::string& text) {
  z_stream zlib{};
  deflateInit2(&zlib, Z_BEST_COMPRESSION, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&zlib, text.size()) + 64, '\0');
  zlib.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  zlib.avail_in = static_cast<uInt>(text.size());
  zlib.next_out = reinterpret_cast<Bytef*>(out.data());
  zlib.avail_out = static_cast<uInt>(out.size());
  deflate(&zlib, Z_FINISH);
  out.resize(zlib.total_out);
  deflateEnd(&zlib);
  return out;
}

// ---- calls

TEST_F(SessionTest, ACallIsAnsweredHoweverItsBytesArrive) {
  const std::string bytes =
      headers(1, "/test/Echo") + data(1, message("hello")) + headers(3, "/test/Echo");
  for (const char one : bytes) world_.receive(std::string(1, one));
  EXPECT_EQ(world_.answers.bodies[1], message("hello"));
  EXPECT_EQ(world_.answers.status(1), kOk);
  EXPECT_EQ(world_.answers.status(3), "") << "has no message yet";
}

TEST_F(SessionTest, AStreamReturnsItsMessagesOneByOne) {
  std::string all;
  for (int i = 0; i < 1000; ++i) all += message(std::to_string(i));
  world_.receive(headers(1, "/test/Chat") + data(1, all));
  EXPECT_EQ(world_.answers.bodies[1], all);
  EXPECT_EQ(world_.answers.status(1), kOk);
  EXPECT_EQ(world_.budget_taken(), 0U);
}

TEST_F(SessionTest, CompressedMessagesAreDecompressed) {
  const std::string text(15'000, 'a');
  for (std::uint32_t stream = 1; stream < 7; stream += 2) {
    world_.receive(headers(stream, "/test/Chat", hpack_field("grpc-encoding", "gzip")) +
                   data(stream, message(deflated(text), true) + message("plain")));
    EXPECT_TRUE(world_.answers.bodies[stream] == message(text) + message("plain")) << stream;
  }
}

TEST_F(SessionTest, BrokenMessagesFailTheirCall) {
  auto status = [this, stream = 1U](const std::string& bytes,
                                    const std::string& fields = {}) mutable {
    world_.receive(headers(stream, "/test/Echo", fields) + data(stream, bytes));
    const std::string code = world_.answers.status(stream);
    stream += 2;
    return code;
  };
  EXPECT_EQ(status(""), kInternal) << "no message";
  EXPECT_EQ(status(message("one") + message("two")), kInternal);
  EXPECT_EQ(status(message("cut").substr(0, 6)), kInternal);
  EXPECT_EQ(status(std::string("\2\0\0\0\0", 5)), kInternal);
  EXPECT_EQ(status(message("x", true)), kInternal) << "compressed without an encoding";
  EXPECT_EQ(status(message("x", true), hpack_field("grpc-encoding", "gzip")), kInternal);
  const std::string short_of = deflated(std::string(1000, 'a'));
  EXPECT_EQ(status(message(short_of.substr(0, short_of.size() - 1), true),
                   hpack_field("grpc-encoding", "gzip")),
            kInternal);
  EXPECT_EQ(status(message("x", true), hpack_field("grpc-encoding", "br")), "12");
  EXPECT_EQ(status(message("fine")), kOk);
}

TEST_F(SessionTest, OtherUsesOfHttp2AreRefused) {
  auto http_status = [this, stream = 1U](const std::string& fields) mutable {
    world_.receive(frame(NGHTTP2_HEADERS, kEndHeaders | kEndStream, stream, fields));
    const std::string code = world_.answers.fields[stream][":status"];
    stream += 2;
    return code;
  };
  const std::string rest = hpack_field(":scheme", "http") + hpack_field(":path", "/v2") +
                           hpack_field(":authority", "here");
  EXPECT_EQ(http_status(hpack_field(":method", "GET") + rest), "405");
  EXPECT_EQ(http_status(hpack_field(":method", "POST") + rest), "415");
  EXPECT_EQ(http_status(call_fields("/test/Nothing")), "200");
  EXPECT_EQ(world_.answers.status(5), "12");
}

TEST_F(SessionTest, ACallEndsAtItsDeadline) {
  world_.receive(headers(1, "/test/Hold", hpack_field("grpc-timeout", "500m")) +
                 data(1, message("")));
  world_.now += milliseconds(499);
  world_.check_deadlines();
  EXPECT_EQ(world_.answers.status(1), "");
  world_.now += milliseconds(1);
  world_.check_deadlines();
  EXPECT_EQ(world_.answers.status(1), kDeadlineExceeded);
  EXPECT_EQ(world_.cancelled, 1U);
}

TEST_F(SessionTest, AResetOrADisconnectCancelsTheCall) {
  world_.receive(headers(1, "/test/Hold") + headers(3, "/test/Hold"));
  world_.receive(frame(NGHTTP2_RST_STREAM, 0, 1, big_endian(NGHTTP2_CANCEL, 4)));
  EXPECT_EQ(world_.cancelled, 1U);
  world_.close();
  EXPECT_EQ(world_.cancelled, 2U);
}

TEST_F(SessionTest, DrainingServesWhatArrivesBeforeTheClientKnows) {
  world_.receive(headers(1, "/test/Hold"));
  world_.session().start_drain();
  world_.settle();
  world_.receive(headers(3, "/test/Echo") + data(3, message("late")));
  EXPECT_EQ(world_.answers.status(3), kOk);
  world_.session().finish_drain();
  world_.settle();
  world_.receive(headers(5, "/test/Echo") + data(5, message("too late")));
  EXPECT_EQ(world_.answers.status(5), "");
  EXPECT_FALSE(world_.session().over()) << "a call is in progress";
  world_.receive(frame(NGHTTP2_RST_STREAM, 0, 1, big_endian(NGHTTP2_CANCEL, 4)));
  EXPECT_TRUE(world_.session().over());
}

// ---- headers

TEST_F(SessionTest, AHugeHeaderEndsTheConnectionAfterAFewBytes) {
  constexpr std::size_t kAll = 60U << 20U;
  const std::string start =
      call_fields("/test/Echo") + '\0' + hpack_text("x") + "\x7f\xff\xff\xff\x1c";
  world_.receive(frame(NGHTTP2_HEADERS, 0, 1, start));
  const std::string part = frame(NGHTTP2_CONTINUATION, 0, 1, std::string(4096, 'x'));
  const std::size_t sent = flood(part, kAll / part.size());
  EXPECT_LE(sent * part.size(), 32U << 10U);
  EXPECT_NE(world_.answers.goaway, 0U);
  EXPECT_EQ(world_.begun, 0U);
}

TEST_F(SessionTest, ManyContinuationsEndTheConnection) {
  world_.receive(frame(NGHTTP2_HEADERS, 0, 1, call_fields("/test/Echo")));
  EXPECT_LE(flood(frame(NGHTTP2_CONTINUATION, 0, 1), 100'000), 16U);
}

TEST_F(SessionTest, LongMetadataFailsItsCallOnly) {
  world_.receive(headers(1, "/test/Echo", hpack_field("x", std::string(9000, 'x'))) +
                 headers(3, "/test/Echo", hpack_field("x", std::string(7000, 'x'))) +
                 data(3, message("fine")));
  EXPECT_EQ(world_.answers.status(1), kResourceExhausted);
  EXPECT_EQ(world_.answers.status(3), kOk);
}

// One byte of a header block may stand for thousands.
TEST_F(SessionTest, MetadataIsCountedAsDecompressed) {
  const std::string stored = '\x40' + hpack_text("x") + hpack_text(std::string(3000, 'x'));
  world_.receive(headers(1, "/test/Echo", stored) + data(1, message("fine")));
  EXPECT_EQ(world_.answers.status(1), kOk);
  world_.receive(headers(3, "/test/Echo", std::string(1000, '\xbe')));
  EXPECT_EQ(world_.answers.status(3), kResourceExhausted);
}

// ---- floods

TEST_F(SessionTest, FloodsEndTheConnection) {
  constexpr std::size_t kMost = 100'000;
  EXPECT_LT(flood(ping(), kMost), 1000U);
  struct Flood {
    std::string frames;
    std::size_t most;
  };
  for (const Flood& one :
       {Flood{settings(), 1000}, Flood{frame(NGHTTP2_PRIORITY, 0, 1, std::string(5, '\0')), 1000},
        Flood{frame(0xEE, 0, 0, "unknown"), 1000},
        Flood{frame(NGHTTP2_RST_STREAM, 0, 1, big_endian(8, 4)), 5000}}) {
    World world;
    world.greet();
    world.receive(headers(1, "/test/Hold"));
    std::size_t sent = 0;
    while (!world.session().over() && sent++ < kMost) world.receive(one.frames);
    EXPECT_LT(sent, one.most);
  }
  World empty;
  empty.greet();
  empty.receive(headers(1, "/test/Hold"));
  std::size_t sent = 0;
  while (!empty.session().over() && sent++ < kMost) empty.receive(frame(NGHTTP2_DATA, 0, 1));
  EXPECT_LT(sent, 1000U);
}

TEST_F(SessionTest, RapidResetsEndTheConnection) {
  std::uint32_t stream = 1;
  while (!world_.session().over() && stream < 100'000) {
    world_.receive(headers(stream, "/test/Hold") +
                   frame(NGHTTP2_RST_STREAM, 0, stream, big_endian(NGHTTP2_CANCEL, 4)));
    stream += 2;
  }
  EXPECT_LT(world_.begun, 3000U);
  EXPECT_EQ(world_.cancelled, world_.begun);
}

// The peer provokes the resets of this side.
TEST_F(SessionTest, ProvokedResetsEndTheConnection) {
  std::uint32_t stream = 1;
  while (!world_.session().over() && stream < 100'000) {
    world_.receive(headers(stream, "/test/Hold") +
                   frame(NGHTTP2_WINDOW_UPDATE, 0, stream, big_endian(0x7FFFFFFF, 4)));
    stream += 2;
  }
  EXPECT_LT(world_.begun, 3000U);
}

TEST_F(SessionTest, ASilentStreamMayPing) {
  world_.receive(headers(1, "/test/Chat"));
  for (int i = 0; i < 10'000; ++i) {
    world_.now += seconds(2);
    world_.receive(ping());
    ASSERT_FALSE(world_.session().over()) << i;
  }
  EXPECT_EQ(world_.answers.frames[NGHTTP2_PING], 10'000U);
  EXPECT_EQ(world_.answers.frames[NGHTTP2_GOAWAY], 0U);
}

TEST_F(SessionTest, FurtherCallsAreHeldBackOrRefused) {
  for (std::uint32_t i = 0; i < 3000; ++i) world_.receive(headers(2 * i + 1, "/test/Hold"));
  EXPECT_LE(world_.begun, 1024U);
  EXPECT_LE(world_.session().calls(), 1024U);
}

// ---- memory

TEST_F(SessionTest, AMessageThatIsTooLongFailsBeforeItArrives) {
  world_.receive(headers(1, "/test/Echo") +
                 data(1, std::string(1, '\0') + big_endian(kMostBytes + 1, 4), false));
  EXPECT_EQ(world_.answers.status(1), kResourceExhausted);
  EXPECT_EQ(world_.most_taken, 0U);
}

TEST_F(SessionTest, AnnouncedBytesReserveLittle) {
  for (std::uint32_t stream = 1; stream < 200; stream += 2) {
    world_.receive(headers(stream, "/test/Echo") +
                   data(stream, std::string(1, '\0') + big_endian(kMostBytes, 4) + "x", false));
  }
  EXPECT_LE(world_.budget_taken(), 100U * (64U << 10U));
  world_.close();
  EXPECT_EQ(world_.budget_taken(), 0U);
}

TEST_F(SessionTest, LargeMessagesAreInMemoryOfThePool) {
  const std::string large = message(std::string(100'000, 'x'));
  world_.receive(headers(1, "/test/Hold") + data(1, large.substr(0, 70'000), false));
  EXPECT_GE(world_.buffers.used_bytes(), 70'000U);
  world_.receive(data(1, large.substr(70'000)));
  EXPECT_EQ(world_.begun, 1U);
  world_.receive(headers(3, "/test/Echo") + data(3, large));
  EXPECT_EQ(world_.begun, 2U);
  world_.close();
  EXPECT_EQ(world_.buffers.used_bytes(), 0U);
}

TEST_F(SessionTest, AMessageWithoutRoomInThePoolFails) {
  World small;
  BufferPool& pool = small.buffers;
  std::vector<MutableBytes> others;
  for (auto taken = pool.take(512U << 20U); taken.ok(); taken = pool.take(512U << 20U))
    others.push_back(std::move(taken).value());
  small.greet();
  small.receive(headers(1, "/test/Echo") + data(1, message(std::string(100'000, 'x'))));
  EXPECT_EQ(small.answers.status(1), kResourceExhausted);
}

TEST_F(SessionTest, AMessageThatInflatesIsStoppedAtTheLimit) {
  const std::string bomb = deflated(std::string(32U << 20U, '\0'));
  ASSERT_LE(bomb.size(), kMostBytes / 2);
  world_.receive(headers(1, "/test/Echo", hpack_field("grpc-encoding", "gzip")) +
                 data(1, message(bomb, true)));
  EXPECT_EQ(world_.answers.status(1), kResourceExhausted);
  EXPECT_LE(world_.most_taken, 2 * kMostBytes + 1);
  EXPECT_EQ(world_.budget_taken(), 0U);
}

TEST_F(SessionTest, AllMessagesTogetherStayInTheBudget) {
  World small({}, 1U << 20U);
  small.greet();
  for (std::uint32_t stream = 1; stream < 41; stream += 2) {
    small.receive(headers(stream, "/test/Echo") +
                  data(stream, message(std::string(100'000, 'x')).substr(0, 70'000), false));
  }
  EXPECT_LE(small.most_taken, 1U << 20U);
  EXPECT_EQ(small.answers.status(39), kResourceExhausted);
}

// A client that does not read its responses.
TEST_F(SessionTest, UnreadResponsesAreBounded) {
  World world;
  world.greet(big_endian(NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 2) + big_endian(0, 4));
  std::uint32_t stream = 1;
  for (; stream < 2000; stream += 2)
    world.receive(headers(stream, "/test/Large") + data(stream, message("")));
  EXPECT_LE(world.session().unsent_bytes(), 20U << 20U);
  EXPECT_EQ(world.answers.status(stream - 2), kResourceExhausted);
  world.close();
  EXPECT_EQ(world.budget_taken(), 0U);
}

// A stream whose messages wait holds back its client, not the other calls.
TEST_F(SessionTest, WaitingMessagesAreBounded) {
  World world;
  world.greet(big_endian(NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 2) + big_endian(0, 4));
  world.receive(headers(1, "/test/Chat"));
  std::size_t sent = 0;
  while (world.answers.frames[NGHTTP2_RST_STREAM] == 0 && sent < (8U << 20U)) {
    world.receive(data(1, message(std::string(16000, 'w')), false));
    sent += 16000;
  }
  EXPECT_LE(sent, 2U << 20U) << "the window of the stream is not extended";
  EXPECT_EQ(world.cancelled, 1U);
  world.receive(headers(3, "/test/Echo"));
  EXPECT_EQ(world.begun, 2U);
}

TEST_F(SessionTest, ASlowMessageFails) {
  SessionOptions options;
  options.pace = {.bytes_per_second = 1000, .window = seconds(1)};
  World world(options);
  world.greet();
  world.receive(headers(1, "/test/Echo"));
  world.receive(headers(3, "/test/Chat"));
  world.receive(headers(5, "/test/Chat") + data(5, message("begun").substr(0, 6), false));
  world.now += seconds(2);
  world.check_deadlines();
  EXPECT_EQ(world.answers.status(1), kDeadlineExceeded);
  EXPECT_EQ(world.answers.status(3), "") << "a stream may be silent";
  EXPECT_EQ(world.answers.status(5), kDeadlineExceeded);
}

}  // namespace
}  // namespace gpulet::net::grpc_api
