#include "gpulet/net/codec/codec.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "gpulet/net/codec/limits.h"
#include "gpulet/schedule/plan.h"
#include "tests/net/frame_bytes.h"
#include "tests/net/message_generators.h"

namespace gpulet::net {
namespace {

// What a plan may make, a message can tell.
static_assert(schedule::kMostModelsOfGpulet <= kMaxModels);
static_assert(schedule::kMostGpuletsOfNode <= kMaxGpulets);

using namespace testing;
using namespace std::chrono_literals;

const std::string kDigest(64, 'a');

Result<serve::ClientMessage> decode_client(const OutgoingFrame& frame) {
  const WholeFrame whole = take_apart(frame);
  return decode_client_message(whole.header, whole.message, whole.payload);
}

Result<serve::FrontendReply> decode_reply(const OutgoingFrame& frame) {
  const WholeFrame whole = take_apart(frame);
  return decode_frontend_reply(whole.header, whole.message, whole.payload);
}

Result<serve::BackendMessage> decode_backend(const OutgoingFrame& frame) {
  const WholeFrame whole = take_apart(frame);
  return decode_backend_message(whole.header, whole.message, whole.payload);
}

Result<serve::BackendCommand> decode_command(const OutgoingFrame& frame) {
  const WholeFrame whole = take_apart(frame);
  return decode_backend_command(whole.header, whole.message, whole.payload);
}

Result<serve::ProxyCommand> decode_proxy(const OutgoingFrame& frame) {
  const WholeFrame whole = take_apart(frame);
  return decode_proxy_command(whole.header, whole.message);
}

Result<serve::ProxyMessage> decode_from_proxy(const OutgoingFrame& frame) {
  const WholeFrame whole = take_apart(frame);
  return decode_proxy_message(whole.header, whole.message);
}

template <typename Value>
void expect_malformed(const Result<Value>& result, const std::string& word) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), StatusCode::malformed);
  EXPECT_NE(result.status().message().find(word), std::string::npos) << result.status().message();
}

serve::InferRequest small_request() {
  return {1, "lenet", 50ms, {{"image", DataType::fp32, {1, 28, 28}}}, {}};
}

Bytes zeros(std::size_t count) { return Bytes::own(std::vector<std::byte>(count)); }

RC_GTEST_PROP(CodecRoundTrip, what_a_client_sends_comes_back_as_it_was, ()) {
  const serve::ClientMessage message = any_client_message();
  RC_ASSERT(same(decode_client(encode(message)).value(), message));
}

RC_GTEST_PROP(CodecRoundTrip, what_a_frontend_answers_comes_back_as_it_was, ()) {
  const serve::FrontendReply message = any_frontend_reply();
  RC_ASSERT(same(decode_reply(encode(message)).value(), message));
}

RC_GTEST_PROP(CodecRoundTrip, what_a_backend_tells_comes_back_as_it_was, ()) {
  const serve::BackendMessage message = any_backend_message();
  RC_ASSERT(same(decode_backend(encode(message)).value(), message));
}

RC_GTEST_PROP(CodecRoundTrip, what_a_backend_is_told_comes_back_as_it_was, ()) {
  const serve::BackendCommand message = any_backend_command();
  RC_ASSERT(same(decode_command(encode(message)).value(), message));
}

RC_GTEST_PROP(CodecRoundTrip, what_a_proxy_is_told_comes_back_as_it_was, ()) {
  const serve::ProxyCommand message = any_proxy_command();
  RC_ASSERT(same(decode_proxy(encode(message)).value(), message));
}

RC_GTEST_PROP(CodecRoundTrip, what_a_proxy_tells_comes_back_as_it_was, ()) {
  const serve::ProxyMessage message = any_proxy_message();
  RC_ASSERT(same(decode_from_proxy(encode(message)).value(), message));
}

RC_GTEST_PROP(CodecBadInput, a_message_cut_short_is_malformed_or_a_shorter_message, ()) {
  WholeFrame whole = take_apart(encode(any_backend_message()));
  whole.message.resize(*rc::gen::inRange<std::size_t>(0, whole.message.size() + 1));
  const auto result = decode_backend_message(whole.header, whole.message, whole.payload);
  RC_ASSERT(result.ok() || result.status().code() == StatusCode::malformed);
}

RC_GTEST_PROP(CodecBadInput, random_bytes_are_malformed_or_a_message, ()) {
  const auto type = static_cast<MessageType>(*rc::gen::inRange(0, 64));
  const Bytes random = any_bytes();
  const std::span<const std::byte> message = random.view();
  const FrameHeader header{type, static_cast<std::uint32_t>(message.size()), 0};
  const auto judge = [](const auto& result) {
    RC_ASSERT(result.ok() || result.status().code() == StatusCode::malformed);
  };
  judge(decode_client_message(header, message, {}));
  judge(decode_frontend_reply(header, message, {}));
  judge(decode_backend_message(header, message, {}));
  judge(decode_backend_command(header, message, {}));
  judge(decode_proxy_command(header, message));
  judge(decode_proxy_message(header, message));
}

TEST(CodecPayload, a_request_keeps_the_memory_that_it_was_received_into) {
  serve::InferRequest request = small_request();
  request.payload = zeros(3136);
  const WholeFrame whole = take_apart(encode(serve::ClientMessage(request)));
  const auto decoded = decode_client_message(whole.header, whole.message, whole.payload);
  EXPECT_EQ(std::get<serve::InferRequest>(decoded.value()).payload.view().data(),
            whole.payload.view().data());
}

TEST(CodecPayload, a_batch_is_written_from_its_slices_and_read_as_one) {
  const Bytes first = zeros(100);
  const Batch batch{{1}, {2}, "lenet", 2, 5ms, 3ms, {first, zeros(28)}};
  const OutgoingFrame frame = encode(serve::BackendCommand(batch));
  ASSERT_EQ(frame.payload.size(), 2U);
  EXPECT_EQ(frame.payload[0].view().data(), first.view().data());
  const auto decoded = std::get<Batch>(decode_command(frame).value());
  ASSERT_EQ(decoded.inputs.size(), 1U);
  EXPECT_EQ(decoded.inputs[0].size(), 128U);
}

TEST(CodecPayload, a_reply_whose_bytes_do_not_fit_its_outputs_is_malformed) {
  serve::InferReply reply{
      1,  {}, {{"a", DataType::fp32, {2}}, {"b", DataType::uint8, {3}}}, {zeros(8), zeros(3)}, {},
      {}, 1};
  ASSERT_TRUE(decode_reply(encode(serve::FrontendReply(reply))).ok());
  reply.payload.pop_back();
  expect_malformed(decode_reply(encode(serve::FrontendReply(reply))), "8 bytes");
}

TEST(CodecPayload, a_message_without_payload_must_not_have_one) {
  WholeFrame whole = take_apart(encode(serve::BackendMessage(serve::Heartbeat{})));
  expect_malformed(decode_backend_message(whole.header, whole.message, zeros(1)), "payload");
}

TEST(CodecFamilies, a_message_of_another_conversation_is_malformed) {
  expect_malformed(decode_client(encode(serve::BackendMessage(serve::Heartbeat{}))), "heartbeat");
  expect_malformed(decode_reply(encode(serve::ClientMessage(serve::ModelsRequest{}))),
                   "models_request");
  expect_malformed(decode_backend(encode(serve::BackendCommand(serve::RetireGpulet{{1}}))),
                   "retire_gpulet");
  expect_malformed(decode_command(encode(serve::ProxyCommand(serve::StopProxy{}))), "stop_proxy");
  expect_malformed(decode_proxy(encode(serve::ProxyMessage(serve::BatchRan{}))), "batch_ran");
  expect_malformed(decode_from_proxy(encode(serve::ClientMessage(small_request()))),
                   "infer_request");
}

TEST(CodecLimits, numbers_and_lengths_beyond_them_are_malformed_and_named) {
  serve::InferRequest request = small_request();
  request.model.assign(kMaxNameBytes + 1, 'm');
  expect_malformed(decode_client(encode(serve::ClientMessage(request))), "model");
  request = small_request();
  request.inputs.resize(kMaxTensors + 1);
  expect_malformed(decode_client(encode(serve::ClientMessage(request))), "inputs");
  request = small_request();
  request.inputs[0].shape.assign(kMaxDimensions + 1, 1);
  expect_malformed(decode_client(encode(serve::ClientMessage(request))), "inputs");

  for (const double cores : {-0.1, std::nan(""), HUGE_VAL}) {
    expect_malformed(decode_command(encode(serve::BackendCommand(serve::SetCores{{1}, cores}))),
                     "cores");
  }
  serve::AssignGpulet assign;
  assign.part.service = static_cast<schedule::Service>(3);
  expect_malformed(decode_command(encode(serve::BackendCommand(assign))), "service");

  Batch batch{{1}, {2}, "lenet", 0, 5ms, 3ms, {}};
  expect_malformed(decode_command(encode(serve::BackendCommand(batch))), "count");
  batch.count = kMaxBatch + 1;
  expect_malformed(decode_command(encode(serve::BackendCommand(batch))), "count");

  serve::Hello hello;
  hello.gpulets.resize(kMaxGpulets + 1);
  expect_malformed(decode_backend(encode(serve::BackendMessage(hello))), "gpulets");
}

TEST(CodecLimits, a_size_outside_1_to_100_percent_is_malformed) {
  for (const int percent : {0, 101, -1}) {
    const serve::CreateGpulet create{{1}, 0, Share{percent}, {}};
    expect_malformed(decode_command(encode(serve::BackendCommand(create))), "size");
  }
}

TEST(CodecLimits, an_instance_or_a_geometry_that_no_device_has_is_malformed) {
  using partition::MigInstance;
  for (const MigInstance instance : {MigInstance{0, 1}, MigInstance{9, 0}, MigInstance{1, 8}}) {
    serve::CreateGpulet create{{1}, 0, Share{42}, {}};
    create.instance = instance;
    expect_malformed(decode_command(encode(serve::BackendCommand(create))), "instance");
    serve::GpuletReport report;
    report.instance = instance;
    expect_malformed(decode_backend(encode(serve::BackendMessage(report))), "instance");
  }
  serve::Hello hello;
  hello.devices.resize(1);
  hello.devices[0].device.processes_per_instance = 9;
  expect_malformed(decode_backend(encode(serve::BackendMessage(hello))), "processes_per_instance");
  hello.devices[0].device.processes_per_instance = 1;
  hello.devices[0].device.mig = partition::MigGeometry::of("a30").value();
  WholeFrame whole = take_apart(encode(serve::BackendMessage(hello)));
  const std::vector<std::byte> known{std::byte{'a'}, std::byte{'3'}, std::byte{'0'}};
  const auto name =
      std::search(whole.message.begin(), whole.message.end(), known.begin(), known.end());
  ASSERT_NE(name, whole.message.end());
  *name = std::byte{'b'};
  expect_malformed(decode_backend_message(whole.header, whole.message, whole.payload),
                   "'b30': choose one of");
}

TEST(CodecLimits, nothing_but_a_digest_names_a_model_file) {
  for (const std::string& name :
       {std::string("../../etc/passwd"), std::string(), std::string(64, 'A'), kDigest + "a"}) {
    expect_malformed(decode_backend(encode(serve::BackendMessage(serve::ModelWanted{name}))),
                     "sha256");
    expect_malformed(
        decode_command(encode(serve::BackendCommand(serve::ModelPiece{name, 0, 0, {}}))), "sha256");
  }
}

TEST(CodecLimits, a_piece_beyond_the_end_of_its_file_is_malformed) {
  for (const std::uint64_t offset :
       {std::uint64_t{95}, std::uint64_t{101}, std::numeric_limits<std::uint64_t>::max()}) {
    const serve::ModelPiece piece{kDigest, offset, 100, zeros(6)};
    expect_malformed(decode_command(encode(serve::BackendCommand(piece))), "100");
  }
}

TEST(CodecLimits, shared_memory_ranges_that_wrap_are_malformed) {
  serve::RunBatch run{{1}, "lenet", 1, 0, 10, std::numeric_limits<std::uint64_t>::max(),
                      1,   1ms,     {}};
  expect_malformed(decode_proxy(encode(serve::ProxyCommand(run))), "output_capacity");
}

TEST(CodecLimits, a_model_tensor_without_elements_is_malformed) {
  const serve::LoadModels load{{{"lenet", "lenet.pt", {{"image", DataType::fp32, {1, 0}}}, {}, 1}}};
  expect_malformed(decode_proxy(encode(serve::ProxyCommand(load))), "at least 1");
}

TEST(CodecLimits, a_request_may_have_any_dimensions_because_admission_judges_them) {
  serve::InferRequest request = small_request();
  request.inputs[0].shape = {0, -1, std::numeric_limits<std::int64_t>::max()};
  const auto decoded = decode_client(encode(serve::ClientMessage(request)));
  EXPECT_EQ(std::get<serve::InferRequest>(decoded.value()).inputs, request.inputs);
}

TEST(CodecDurations, a_time_below_a_microsecond_does_not_become_none) {
  serve::InferRequest request = small_request();
  request.timeout = 1ns;
  const auto decoded = decode_client(encode(serve::ClientMessage(request)));
  EXPECT_EQ(std::get<serve::InferRequest>(decoded.value()).timeout, 1us);
}

TEST(CodecDurations, negative_and_endless_times_are_brought_into_range) {
  Batch batch{{1}, {2}, "lenet", 1, -5ms, Duration::max(), {}};
  const auto decoded =
      std::get<Batch>(decode_command(encode(serve::BackendCommand(batch))).value());
  EXPECT_EQ(decoded.start_within, 0ns);
  EXPECT_EQ(decoded.expected_duration, kMaxDuration);
}

TEST(CodecText, an_error_message_of_any_bytes_arrives_as_readable_text) {
  const std::string odd = "bad \xff byte, cut \xc3";
  const serve::ProxyReady ready{{StatusCode::internal, odd}, 0};
  const auto decoded = decode_from_proxy(encode(serve::ProxyMessage(ready)));
  EXPECT_EQ(std::get<serve::ProxyReady>(decoded.value()).status.message(), "bad ? byte, cut ?");
}

TEST(CodecText, a_long_error_message_is_cut_between_characters) {
  std::string text;
  while (text.size() <= kMaxStatusMessageBytes)
    text += "\xe2\x82\xac";  // a character of three bytes
  const serve::ProxyReady ready{{StatusCode::internal, text}, 0};
  const auto decoded = decode_from_proxy(encode(serve::ProxyMessage(ready)));
  EXPECT_EQ(std::get<serve::ProxyReady>(decoded.value()).status.message(),
            text.substr(0, kMaxStatusMessageBytes / 3 * 3));
}

}  // namespace
}  // namespace gpulet::net
