// What those are told who connect to the wrong port.
#include "frontend/wrong_port.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <variant>

#include "gpulet/net/codec/codec.h"

namespace gpulet::frontend {
namespace {

using net::Dialect;
using net::MessageType;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr FramePort kClients{FramePort::For::clients, 7000, 7001, 8000, 0};
constexpr FramePort kBackends{FramePort::For::backends, 7000, 7001, 8000, 0};

net::FrameHeader header_of(const net::OutgoingFrame& frame) {
  const auto bytes = std::as_bytes(std::span(frame.head)).first<net::kFrameHeaderBytes>();
  return net::decode_frame_header(bytes, {}).value();
}
std::span<const std::byte> message_of(const net::OutgoingFrame& frame) {
  return std::as_bytes(std::span(frame.head)).subspan(net::kFrameHeaderBytes);
}

TEST(WrongPort, ABackendAtTheClientsPortIsSentToItsOwnInItsOwnProtocol) {
  const auto wrong = misdirected(kClients, MessageType::hello);
  ASSERT_TRUE(wrong.has_value());
  EXPECT_THAT(wrong->why, HasSubstr("7001"));
  const auto told =
      net::decode_backend_command(header_of(wrong->farewell), message_of(wrong->farewell), Bytes());
  ASSERT_TRUE(told.ok()) << told.status().to_string();
  const auto& refused = std::get<serve::Refused>(told.value());
  EXPECT_EQ(refused.why.code(), StatusCode::invalid);
  EXPECT_EQ(refused.why.message(), wrong->why);
}

TEST(WrongPort, AClientAtTheBackendsPortIsSentToItsOwnInItsOwnProtocol) {
  for (const MessageType type : {MessageType::authenticate, MessageType::infer_request,
                                 MessageType::status_request, MessageType::models_request}) {
    const auto wrong = misdirected(kBackends, type);
    ASSERT_TRUE(wrong.has_value());
    EXPECT_THAT(wrong->why, HasSubstr("7000"));
    const auto told = net::decode_frontend_reply(header_of(wrong->farewell),
                                                 message_of(wrong->farewell), Bytes());
    ASSERT_TRUE(told.ok()) << told.status().to_string();
    EXPECT_EQ(std::get<serve::InferReply>(told.value()).status.code(), StatusCode::invalid);
  }
}

TEST(WrongPort, WhoIsAtTheRightOneIsNotMisdirected) {
  EXPECT_FALSE(misdirected(kClients, MessageType::infer_request).has_value());
  EXPECT_FALSE(misdirected(kBackends, MessageType::hello).has_value());
  EXPECT_FALSE(misdirected(kBackends, MessageType::heartbeat).has_value());
}

TEST(WrongPort, HttpIsAnsweredAsHttp) {
  const Status failure(StatusCode::malformed, "no frame");
  const std::string answer = farewell(kClients, failure, Dialect::http).head;
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(answer, HasSubstr("8000"));
  const std::string of_grpc = farewell(kBackends, failure, Dialect::http2).head;
  EXPECT_THAT(of_grpc, StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(of_grpc, HasSubstr("off"));
}

TEST(WrongPort, OtherFailuresAreToldInFrames) {
  const Status failure(StatusCode::malformed, "no frame");
  for (const Dialect spoken : {Dialect::frames, Dialect::unknown, Dialect::tls}) {
    EXPECT_EQ(header_of(farewell(kClients, failure, spoken)).type, MessageType::infer_reply);
    EXPECT_EQ(header_of(farewell(kBackends, failure, spoken)).type, MessageType::refused);
  }
}

}  // namespace
}  // namespace gpulet::frontend
