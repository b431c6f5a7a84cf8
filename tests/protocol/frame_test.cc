#include "gpulet/protocol/frame.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "tests/protocol/frame_bytes.h"
#include "tests/support/names.h"

namespace gpulet::protocol {
namespace {

using support::names;
using namespace testing;

using HeaderBytes = std::array<std::byte, kFrameHeaderBytes>;

struct Received {
  FrameHeader header;
  std::vector<std::byte> message;
  std::vector<std::byte> payload;
};

std::vector<std::byte> some_bytes(std::size_t count, int seed) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i)
    bytes[i] = static_cast<std::byte>(i * 31 + static_cast<std::size_t>(seed));
  return bytes;
}

Received some_frame(std::size_t message_bytes, std::size_t payload_bytes, int seed) {
  // The largest messages are those of a status.
  const bool is_long = message_bytes > most_message_bytes(MessageType::infer_request);
  return {{is_long ? MessageType::status_reply : MessageType::infer_request,
           static_cast<std::uint32_t>(message_bytes), static_cast<std::uint32_t>(payload_bytes)},
          some_bytes(message_bytes, seed),
          some_bytes(payload_bytes, seed + 7)};
}

void append(std::vector<std::byte>& stream, const Received& frame) {
  const HeaderBytes header = encode_frame_header(frame.header);
  stream.insert(stream.end(), header.begin(), header.end());
  stream.insert(stream.end(), frame.message.begin(), frame.message.end());
  stream.insert(stream.end(), frame.payload.begin(), frame.payload.end());
}

// Copies as a scattered receive of at most `limit` bytes does.
std::size_t receive(std::span<const std::byte> stream, std::size_t limit, FrameReader& reader) {
  std::size_t done = 0;
  for (const std::span<std::byte> space : reader.space()) {
    const std::size_t bytes = std::min({space.size(), limit - done, stream.size() - done});
    if (bytes > 0) std::memcpy(space.data(), stream.data() + done, bytes);
    done += bytes;
  }
  reader.received(done);
  return done;
}

// Payloads of `discarded` bytes get no memory.
void take_frames(FrameReader& reader, std::vector<Received>& frames, std::size_t discarded = 0) {
  for (;;) {
    Result<FrameReader::Event> next = reader.next();
    ASSERT_TRUE(next.ok()) << next.status().message();
    FrameReader::Event& event = next.value();
    if (event.kind == FrameReader::Event::Kind::incomplete) return;
    if (event.kind == FrameReader::Event::Kind::payload_wanted) {
      const bool discards = event.header.payload_bytes == discarded;
      ASSERT_TRUE(
          reader.give_payload(discards ? MutableBytes() : memory_for(event.header.payload_bytes))
              .ok());
      continue;
    }
    const std::span<const std::byte> payload = event.payload.view();
    frames.push_back({event.header,
                      {event.message.begin(), event.message.end()},
                      {payload.begin(), payload.end()}});
  }
}

std::vector<Received> read_all(std::span<const std::byte> stream, std::vector<std::size_t> pieces,
                               std::size_t discarded = 0) {
  FrameReader reader{FrameLimits{}};
  std::vector<Received> frames;
  for (std::size_t turn = 0; !stream.empty(); ++turn) {
    stream = stream.subspan(receive(stream, pieces[turn % pieces.size()], reader));
    take_frames(reader, frames, discarded);
  }
  EXPECT_FALSE(reader.inside_frame());
  return frames;
}

bool same(const std::vector<Received>& a, const std::vector<Received>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Received& one, const Received& other) {
                      return one.header == other.header && one.message == other.message &&
                             one.payload == other.payload;
                    });
}

TEST(FrameHeaderBytes, AreLittleEndianWithTheMagicFirst) {
  const HeaderBytes bytes = encode_frame_header({MessageType::batch, 0x01020304, 0x0a0b0c0d});
  const unsigned char expected[] = {'G', 'P', 'L', 'T', 1,    35,   0,    0,
                                    4,   3,   2,   1,   0x0d, 0x0c, 0x0b, 0x0a};
  EXPECT_EQ(std::memcmp(bytes.data(), expected, sizeof(expected)), 0);
}

TEST(FrameHeaderBytes, OfAnotherProtocolAreMalformed) {
  const HeaderBytes good = encode_frame_header({MessageType::heartbeat, 0, 0});
  ASSERT_TRUE(decode_frame_header(good, {}).ok());
  for (const std::size_t at : {0U, 3U, 4U, 5U, 6U, 7U}) {  // magic, version, type, reserved
    HeaderBytes bad = good;
    bad[at] ^= std::byte{0x40};
    const auto result = decode_frame_header(bad, {});
    ASSERT_FALSE(result.ok()) << at;
    EXPECT_EQ(result.status().code(), StatusCode::malformed);
  }
}

TEST(FrameHeaderBytes, OfAnotherVersionNameBoth) {
  HeaderBytes other = encode_frame_header({MessageType::hello, 0, 0});
  other[4] = std::byte{9};
  EXPECT_TRUE(names(decode_frame_header(other, {}).status(), "version 9",
                    "version " + std::to_string(kFrameVersion)));
}

Dialect spoken(std::string_view text) { return dialect_of(std::as_bytes(std::span(text))); }

TEST(DialectTest, IsDetectedByTheFirstBytes) {
  using namespace std::literals;
  EXPECT_EQ(spoken("GPLT\x01"sv), Dialect::frames);
  EXPECT_EQ(spoken("GET / HTTP/1.1\r\n"sv), Dialect::http);
  EXPECT_EQ(spoken("POST /v2/models/lenet/infer"sv), Dialect::http);
  EXPECT_EQ(spoken("HTTP/1.1 400 Bad Request"sv), Dialect::http);
  EXPECT_EQ(spoken("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"sv), Dialect::http2);
  EXPECT_EQ(spoken("\0\0\x24\x04\0\0\0\0\0\0\x03"sv), Dialect::http2);  // a server's settings
  EXPECT_EQ(spoken("\x16\x03\x01\x02\x00"sv), Dialect::tls);            // a hello
  EXPECT_EQ(spoken("\x15\x03\x03\x00\x02\x02\x28"sv), Dialect::tls);    // an alert
  for (const std::string_view other : {""sv, "G"sv, "GP"sv, "\0\0\0\0\0\0\0\0\0\0"sv, "hello"sv})
    EXPECT_EQ(spoken(other), Dialect::unknown);
}

RC_GTEST_PROP(DialectProperty, AnyBytesHaveADialect, (const std::string& bytes)) {
  RC_ASSERT(static_cast<int>(spoken(bytes)) <= static_cast<int>(Dialect::tls));
}

TEST(FrameHeaderBytes, OverTheLimitAreInvalid) {
  const FrameLimits limits{100, 1000};
  EXPECT_TRUE(
      decode_frame_header(encode_frame_header({MessageType::batch, 100, 1000}), limits).ok());
  const auto message =
      decode_frame_header(encode_frame_header({MessageType::batch, 101, 0}), limits);
  const auto payload =
      decode_frame_header(encode_frame_header({MessageType::batch, 0, 0xffffffff}), limits);
  EXPECT_EQ(message.status().code(), StatusCode::invalid);
  EXPECT_TRUE(names(message.status(), "101"));
  EXPECT_EQ(payload.status().code(), StatusCode::invalid);
  EXPECT_TRUE(names(payload.status(), "4294967295"));
}

TEST(FrameReaderStream, IsReadTheSameWhereverItIsCut) {
  const std::vector<Received> sent{some_frame(20, 30, 1), some_frame(0, 0, 2), some_frame(5, 0, 3),
                                   some_frame(0, 40, 4), some_frame(9, 1, 5)};
  std::vector<std::byte> stream;
  for (const Received& frame : sent) append(stream, frame);
  for (std::size_t cut = 1; cut < stream.size(); ++cut) {
    EXPECT_TRUE(same(read_all(stream, {cut, stream.size()}), sent)) << cut;
    EXPECT_TRUE(same(read_all(stream, {cut}), sent)) << cut;
  }
}

TEST(FrameReaderStream, NoMessageIsLongerThanItsTypeAllows) {
  for (const MessageType type : {MessageType::infer_request, MessageType::peer_hello}) {
    const std::uint32_t most = most_message_bytes(type);
    ASSERT_LT(most, FrameLimits{}.max_message_bytes);
    const FrameLimits limits{};
    EXPECT_TRUE(decode_frame_header(encode_frame_header({type, most, 0}), limits).ok());
    EXPECT_EQ(decode_frame_header(encode_frame_header({type, most + 1, 0}), limits).status().code(),
              StatusCode::invalid);
  }
}

RC_GTEST_PROP(FrameReaderStream, IsReadTheSameInPiecesOfAnySize, ()) {
  std::vector<Received> sent;
  std::vector<std::byte> stream;
  const int frames = *rc::gen::inRange(1, 12);
  for (int i = 0; i < frames; ++i) {
    const auto message =
        *rc::gen::element<std::size_t>(0, 1, 100, 5000, FrameReader::kBufferBytes, 200'000);
    const auto payload =
        *rc::gen::element<std::size_t>(0, 1, 3000, FrameReader::kBufferBytes - 16, 300'000);
    sent.push_back(some_frame(message, payload, i));
    append(stream, sent.back());
  }
  const auto pieces = *rc::gen::nonEmpty(rc::gen::container<std::vector<std::size_t>>(
      rc::gen::element<std::size_t>(7, 1000, 16'384, FrameReader::kBufferBytes, 1'000'000)));
  RC_ASSERT(same(read_all(stream, pieces), sent));
}

TEST(FrameReaderPayload, TheUnbufferedRestIsReceivedIntoItsOwnMemory) {
  const Received sent = some_frame(10, 600'000, 1);
  std::vector<std::byte> stream;
  append(stream, sent);
  FrameReader reader{FrameLimits{}};
  receive(stream, 1000, reader);
  ASSERT_EQ(reader.next().value().kind, FrameReader::Event::Kind::payload_wanted);
  const MutableBytes memory = memory_for(600'000);
  ASSERT_TRUE(reader.give_payload(memory).ok());
  const std::size_t buffered = 1000 - kFrameHeaderBytes - 10;
  EXPECT_EQ(reader.space()[0].data(), memory.view().data() + buffered);
  EXPECT_EQ(reader.space()[0].size(), 600'000 - buffered);
}

RC_GTEST_PROP(FrameReaderPayload, WithoutMemoryIsDiscarded, ()) {
  std::vector<Received> sent;
  std::vector<std::byte> stream;
  constexpr std::size_t kDiscarded = 200'001;
  const int frames = *rc::gen::inRange(1, 8);
  for (int i = 0; i < frames; ++i) {
    const auto message = *rc::gen::element<std::size_t>(0, 100, FrameReader::kBufferBytes);
    const auto payload = *rc::gen::element<std::size_t>(0, 3000, kDiscarded, 300'000);
    sent.push_back(some_frame(message, payload, i));
    append(stream, sent.back());
    if (payload == kDiscarded) sent.back().payload.clear();
  }
  const auto pieces = *rc::gen::nonEmpty(rc::gen::container<std::vector<std::size_t>>(
      rc::gen::element<std::size_t>(7, 1000, FrameReader::kBufferBytes, 1'000'000)));
  RC_ASSERT(same(read_all(stream, pieces, kDiscarded), sent));
}

TEST(FrameReaderPayload, MemoryOfAnotherSizeIsRejected) {
  std::vector<std::byte> stream;
  append(stream, some_frame(0, 100, 1));
  FrameReader reader{FrameLimits{}};
  receive(stream, stream.size(), reader);
  ASSERT_EQ(reader.next().value().kind, FrameReader::Event::Kind::payload_wanted);
  EXPECT_EQ(reader.give_payload(memory_for(99)).code(), StatusCode::internal);
}

TEST(FrameReaderStream, KnowsWhetherAFrameHasBegun) {
  std::vector<std::byte> stream;
  append(stream, some_frame(10, 10, 1));
  for (std::size_t cut = 1; cut < stream.size(); ++cut) {
    FrameReader reader{FrameLimits{}};
    EXPECT_FALSE(reader.inside_frame());
    std::vector<Received> frames;
    std::size_t done = receive(stream, cut, reader);
    take_frames(reader, frames);
    EXPECT_TRUE(reader.inside_frame()) << cut;
    receive(std::span(stream).subspan(done), stream.size(), reader);
    take_frames(reader, frames);
    EXPECT_FALSE(reader.inside_frame());
    EXPECT_EQ(frames.size(), 1U);
  }
}

TEST(FrameReaderStream, FailsAfterTheLastGoodFrame) {
  std::vector<std::byte> stream;
  append(stream, some_frame(3, 0, 1));
  stream.resize(stream.size() + kFrameHeaderBytes);  // zeros: no magic
  FrameReader reader{FrameLimits{}};
  receive(stream, stream.size(), reader);
  EXPECT_EQ(reader.next().value().kind, FrameReader::Event::Kind::frame);
  EXPECT_EQ(reader.next().status().code(), StatusCode::malformed);
}

}  // namespace
}  // namespace gpulet::protocol
