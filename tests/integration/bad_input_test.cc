// Bad input causes a clear error for its sender and affects no other client.
#include <gtest/gtest.h>

#include <functional>

#include "gpulet/base/random.h"
#include "gpulet/protocol/codec.h"
#include "tests/support/cluster/cluster.h"
#include "tests/support/cluster/stream_client.h"
#include "tests/support/names.h"

namespace gpulet::testing {
namespace {

using std::chrono::seconds;
using support::names;

class BadInputTest : public ::testing::Test {
 protected:
  BadInputTest() {
    cluster_.add_backend("n0");
    cluster_.wait_until_serving();
  }

  Status refusal(const std::function<void(InferRequest&)>& spoil) {
    InferRequest request = byte_request("a", next_tag_++, 16);
    spoil(request);
    const auto reply = bad_.ask(request, seconds(5));
    return reply ? reply->status : Status(StatusCode::timeout, "no answer");
  }
  // The good client is still served.
  void expect_others_served() {
    const auto reply = good_.ask(byte_request("a", next_tag_++, 16), seconds(5));
    ASSERT_TRUE(reply.has_value());
    EXPECT_TRUE(reply->status.ok()) << reply->status.to_string();
  }

  std::uint64_t next_tag_ = 1;
  Cluster cluster_{{{"a", 2, 1000, 20, 16}}};
  StreamClient good_{cluster_.client_port()};
  StreamClient bad_{cluster_.client_port()};
};

TEST_F(BadInputTest, WrongRequestsGetErrorsAndKeepTheConnection) {
  EXPECT_EQ(refusal([](auto& request) { request.model = "nobody"; }).code(), StatusCode::not_found);
  EXPECT_EQ(refusal([](auto& request) {
              request.inputs[0].shape = {4, 4};
            }).code(),
            StatusCode::invalid);
  EXPECT_EQ(refusal([](auto& request) { request.inputs[0].type = DataType::int8; }).code(),
            StatusCode::invalid);
  EXPECT_EQ(refusal([](auto& request) {
              request.payload = Bytes::own(std::vector<std::byte>(15));
            }).code(),
            StatusCode::invalid);
  EXPECT_TRUE(refusal([](auto&) {}).ok());
  expect_others_served();
}

TEST_F(BadInputTest, RandomBytesEndTheConnectionWithAnError) {
  Random random(3);
  std::vector<std::byte> noise(4096);
  for (std::byte& byte : noise) byte = static_cast<std::byte>(random.below(256));
  bad_.send_raw(noise);
  EXPECT_TRUE(bad_.run_until([&] { return bad_.closed(); }, seconds(5)));
  ASSERT_TRUE(bad_.replies().contains(0));
  EXPECT_EQ(bad_.replies().at(0)[0].status.code(), StatusCode::malformed);
  expect_others_served();
}

TEST_F(BadInputTest, AnExcessiveLengthIsRejectedBeforeAllocation) {
  protocol::FrameHeader header{protocol::MessageType::infer_request, 16, 0xfffffff0U};
  const auto bytes = protocol::encode_frame_header(header);
  bad_.send_raw({bytes.begin(), bytes.end()});
  EXPECT_TRUE(bad_.run_until([&] { return bad_.closed(); }, seconds(5)));
  ASSERT_TRUE(bad_.replies().contains(0));
  EXPECT_TRUE(names(bad_.replies().at(0)[0].status, "4294967280"));
  expect_others_served();
}

TEST_F(BadInputTest, ATruncatedFrameIsHarmless) {
  const protocol::OutgoingFrame frame = protocol::encode(ClientMessage(byte_request("a", 1, 16)));
  const auto head = std::as_bytes(std::span(frame.head));
  bad_.send_raw({head.begin(), head.end() - 3});
  expect_others_served();
}

TEST_F(BadInputTest, AClientThatNeverReadsDelaysNoOther) {
  // Its answers queue up in the kernel and the frontend while other clients get theirs.
  std::vector<std::byte> many;
  for (std::uint64_t tag = 1; tag <= 2000; ++tag) {
    const protocol::OutgoingFrame frame =
        protocol::encode(ClientMessage(byte_request("nobody", tag, 16)));
    const auto head = std::as_bytes(std::span(frame.head));
    many.insert(many.end(), head.begin(), head.end());
    for (const Bytes& slice : frame.payload)
      many.insert(many.end(), slice.view().begin(), slice.view().end());
  }
  bad_.send_raw(many);
  for (int i = 0; i < 20; ++i) expect_others_served();
}

}  // namespace
}  // namespace gpulet::testing
