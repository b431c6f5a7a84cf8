// Messages in their wire format: raw tensors by reference, and messages with costly contents.
#include "net/grpc/wire.h"

#include <gtest/gtest.h>

#include <string>

#include "net/grpc/message_reader.h"

namespace gpulet::net::grpc_api {
namespace {

constexpr std::size_t kMost = 4U << 20U;

Bytes bytes_of(const std::string& text) {
  const auto* const begin = reinterpret_cast<const std::byte*>(text.data());
  return Bytes::own({begin, begin + text.size()});
}

std::string text_of(const WireMessage& message) {
  std::string text;
  for (const Bytes& piece : message.pieces) {
    const auto view = piece.view();
    text.append(reinterpret_cast<const char*>(view.data()), view.size());
  }
  return text.substr(kMessagePrefixBytes);
}

TEST(WireTest, RawInputsPointIntoTheMessage) {
  inference::ModelInferRequest request;
  request.set_model_name("a");
  request.add_raw_input_contents("first");
  request.add_raw_input_contents("");
  request.add_raw_input_contents(std::string(100'000, 'x'));
  request.set_id("last");
  const Bytes message = bytes_of(request.SerializeAsString());
  const auto read = parse_infer(message, kMost);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read.value().request.model_name(), "a");
  EXPECT_EQ(read.value().request.id(), "last");
  EXPECT_EQ(read.value().request.raw_input_contents_size(), 0);
  ASSERT_EQ(read.value().raw_inputs.size(), 3U);
  EXPECT_EQ(read.value().raw_inputs[1].size(), 0U);
  EXPECT_EQ(read.value().raw_inputs[2].size(), 100'000U);
  EXPECT_GE(read.value().raw_inputs[2].view().data(), message.view().data());
  EXPECT_LT(read.value().raw_inputs[2].view().data(), message.view().data() + message.size());
}

TEST(WireTest, AnAnswerIsWhatProtobufReads) {
  InferAnswer answer;
  answer.response.set_model_name("a");
  for (const std::size_t bytes : {0U, 10U, 4096U, 4097U, 100'000U})
    answer.raw_outputs.push_back(bytes_of(std::string(bytes, 'o')));
  inference::ModelInferResponse response;
  ASSERT_TRUE(response.ParseFromString(text_of(wire_of(answer))));
  EXPECT_EQ(response.model_name(), "a");
  ASSERT_EQ(response.raw_output_contents_size(), 5);
  EXPECT_EQ(response.raw_output_contents(4), std::string(100'000, 'o'));

  inference::ModelStreamInferResponse streamed;
  ASSERT_TRUE(streamed.ParseFromString(text_of(wire_of(answer, "failed"))));
  EXPECT_EQ(streamed.error_message(), "failed");
  EXPECT_EQ(streamed.infer_response().raw_output_contents_size(), 5);
  EXPECT_EQ(streamed.infer_response().raw_output_contents(3).size(), 4097U);
}

// A few bytes on the wire may be many objects in memory.
TEST(WireTest, CostlyMessagesFailBeforeTheyAreParsed) {
  const auto code = [](const google::protobuf::Message& message) {
    return parse_infer(bytes_of(message.SerializeAsString()), kMost).status().code();
  };
  inference::ModelInferRequest tensors;
  for (int i = 0; i < 500'000; ++i) tensors.add_inputs();
  EXPECT_EQ(code(tensors), StatusCode::overloaded);
  inference::ModelInferRequest texts;
  for (int i = 0; i < 500'000; ++i)
    (void)(i == 0 ? texts.add_inputs() : texts.mutable_inputs(0))
        ->mutable_contents()
        ->add_bytes_contents();
  EXPECT_EQ(code(texts), StatusCode::overloaded);
  inference::ModelInferRequest numbers;
  auto& contents = *numbers.add_inputs()->mutable_contents();
  for (int i = 0; i < 1'000'000; ++i) contents.add_int64_contents(1);
  EXPECT_EQ(code(numbers), StatusCode::overloaded);
  inference::ModelInferRequest few;
  few.add_inputs()->mutable_contents()->add_int64_contents(1);
  EXPECT_EQ(code(few), StatusCode::ok);
}

TEST(WireTest, WhatIsNoMessageFails) {
  for (const std::string& text : {std::string("\x3a\x7f"), std::string("\x0a\x05y"),
                                  std::string(20, '\xff'), std::string("\x0b\x0c")}) {
    EXPECT_EQ(parse_infer(bytes_of(text), kMost).status().code(), StatusCode::invalid);
  }
}

}  // namespace
}  // namespace gpulet::net::grpc_api
