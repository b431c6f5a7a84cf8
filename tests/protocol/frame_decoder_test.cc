#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <utility>

#include "gpulet/protocol/codec.h"
#include "tests/protocol/frame_bytes.h"
#include "tests/protocol/message_generators.h"

namespace gpulet::protocol::frame_decoder_test {
namespace {

using namespace testing;

// The frames of a connection, some announced: each is decoded as without an announcement.
template <typename Message>
void expect_the_same(Message (*any)()) {
  FrameDecoder<Message> decoder;
  for (int frame = *rc::gen::inRange(1, 4); frame > 0; --frame) {
    const Message message = any();
    const WholeFrame whole = take_apart(encode(message));
    if (*rc::gen::arbitrary<bool>()) {
      const auto announced = decoder.announce(whole.header, whole.message);
      RC_ASSERT(announced.ok());
      RC_ASSERT(announced.value()->index() == message.index());
    }
    const auto decoded = decoder.finish(whole.header, whole.message, whole.payload);
    RC_ASSERT(decoded.ok());
    RC_ASSERT(same(decoded.value(), message));
  }
}

RC_GTEST_PROP(FrameDecoderProperty, DecodesClientMessages, ()) {
  expect_the_same(any_client_message);
}
RC_GTEST_PROP(FrameDecoderProperty, DecodesBackendMessages, ()) {
  expect_the_same(any_backend_message);
}
RC_GTEST_PROP(FrameDecoderProperty, DecodesBackendCommands, ()) {
  expect_the_same(any_backend_command);
}
RC_GTEST_PROP(FrameDecoderProperty, DecodesPeerRequests, ()) { expect_the_same(any_peer_request); }

TEST(FrameDecoder, AFrameThatCannotBeDecodedIsNotAnnounced) {
  FrameDecoder<ClientMessage> decoder;
  const WholeFrame good = take_apart(encode(ClientMessage(ModelsRequest{})));
  WholeFrame bad = take_apart(encode(BackendMessage(Heartbeat{})));
  EXPECT_EQ(decoder.announce(bad.header, bad.message).status().code(), StatusCode::malformed);
  const auto decoded = decoder.finish(good.header, good.message, {});
  ASSERT_TRUE(decoded.ok());
  EXPECT_TRUE(std::holds_alternative<ModelsRequest>(decoded.value()));
}

TEST(FrameDecoder, TheLastAnnouncementCounts) {
  FrameDecoder<BackendMessage> decoder;
  const WholeFrame first = take_apart(encode(BackendMessage(Heartbeat{})));
  const WholeFrame second = take_apart(encode(BackendMessage(Superseded{{7}})));
  ASSERT_TRUE(decoder.announce(first.header, first.message).ok());
  ASSERT_TRUE(decoder.announce(second.header, second.message).ok());
  const auto decoded = decoder.finish(second.header, second.message, {});
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(std::get<Superseded>(decoded.value()).term, Term{7});
}

}  // namespace
}  // namespace gpulet::protocol::frame_decoder_test
