#include "gpulet/protocol/codec.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gpulet/protocol/proxy_messages.h"
#include "gpulet/schedule/plan.h"
#include "protocol/limits.h"
#include "tests/protocol/frame_bytes.h"
#include "tests/protocol/message_generators.h"
#include "tests/support/names.h"

namespace gpulet::protocol {
namespace {

using support::names;

// A message can hold everything that a plan may contain.
static_assert(schedule::kMostModelsOfGpulet <= kMaxModels);
static_assert(schedule::kMostGpuletsOfNode <= kMaxGpulets);

using namespace testing;
using namespace std::chrono_literals;

const std::string kDigest(64, 'a');

Result<ClientMessage> decode_client(const OutgoingFrame& frame) {
  const WholeFrame whole = take_apart(frame);
  return decode<ClientMessage>(whole.header, whole.message, whole.payload);
}

Result<FrontendReply> decode_reply(const OutgoingFrame& frame) {
  const WholeFrame whole = take_apart(frame);
  return decode<FrontendReply>(whole.header, whole.message, whole.payload);
}

Result<BackendMessage> decode_backend(const OutgoingFrame& frame) {
  const WholeFrame whole = take_apart(frame);
  return decode<BackendMessage>(whole.header, whole.message, whole.payload);
}

Result<BackendCommand> decode_command(const OutgoingFrame& frame) {
  const WholeFrame whole = take_apart(frame);
  return decode<BackendCommand>(whole.header, whole.message, whole.payload);
}

Result<ProxyCommand> decode_proxy(const OutgoingFrame& frame) {
  const WholeFrame whole = take_apart(frame);
  return decode<ProxyCommand>(whole.header, whole.message);
}

Result<ProxyMessage> decode_from_proxy(const OutgoingFrame& frame) {
  const WholeFrame whole = take_apart(frame);
  return decode<ProxyMessage>(whole.header, whole.message);
}

template <typename Value>
void expect_malformed(const Result<Value>& result, const std::string& value) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), StatusCode::malformed);
  EXPECT_TRUE(names(result.status(), value));
}

InferRequest small_request() {
  return {1, "lenet", 50ms, {{"image", DataType::fp32, {1, 28, 28}}}, {}};
}

Bytes zeros(std::size_t count) { return Bytes::own(std::vector<std::byte>(count)); }

RC_GTEST_PROP(CodecRoundTrip, ClientMessages, ()) {
  const ClientMessage message = any_client_message();
  RC_ASSERT(same(decode_client(encode(message)).value(), message));
}

RC_GTEST_PROP(CodecRoundTrip, FrontendReplies, ()) {
  const FrontendReply message = any_frontend_reply();
  RC_ASSERT(same(decode_reply(encode(message)).value(), message));
}

RC_GTEST_PROP(CodecRoundTrip, BackendMessages, ()) {
  const BackendMessage message = any_backend_message();
  RC_ASSERT(same(decode_backend(encode(message)).value(), message));
}

RC_GTEST_PROP(CodecRoundTrip, BackendCommands, ()) {
  const BackendCommand message = any_backend_command();
  RC_ASSERT(same(decode_command(encode(message)).value(), message));
}

RC_GTEST_PROP(CodecRoundTrip, PeerRequests, ()) {
  const PeerRequest message = any_peer_request();
  const WholeFrame whole = take_apart(encode(message));
  RC_ASSERT(same(decode<PeerRequest>(whole.header, whole.message, whole.payload).value(), message));
}

RC_GTEST_PROP(CodecRoundTrip, PeerReplies, ()) {
  const PeerReply message = any_peer_reply();
  const WholeFrame whole = take_apart(encode(message));
  RC_ASSERT(same(decode<PeerReply>(whole.header, whole.message, whole.payload).value(), message));
}

RC_GTEST_PROP(CodecRoundTrip, ProxyCommands, ()) {
  const ProxyCommand message = any_proxy_command();
  RC_ASSERT(same(decode_proxy(encode(message)).value(), message));
}

RC_GTEST_PROP(CodecRoundTrip, ProxyMessages, ()) {
  const ProxyMessage message = any_proxy_message();
  RC_ASSERT(same(decode_from_proxy(encode(message)).value(), message));
}

RC_GTEST_PROP(CodecBadInput, ATruncatedMessageIsMalformedOrAShorterMessage, ()) {
  WholeFrame whole = take_apart(encode(any_backend_message()));
  whole.message.resize(*rc::gen::inRange<std::size_t>(0, whole.message.size() + 1));
  const auto result = decode<BackendMessage>(whole.header, whole.message, whole.payload);
  RC_ASSERT(result.ok() || result.status().code() == StatusCode::malformed);
}

RC_GTEST_PROP(CodecBadInput, RandomBytesAreMalformedOrAMessage, ()) {
  const auto type = static_cast<MessageType>(*rc::gen::inRange(0, 72));
  const Bytes random = any_bytes();
  const std::span<const std::byte> message = random.view();
  const FrameHeader header{type, static_cast<std::uint32_t>(message.size()), 0};
  const auto judge = [](const auto& result) {
    RC_ASSERT(result.ok() || result.status().code() == StatusCode::malformed);
  };
  judge(decode<ClientMessage>(header, message, {}));
  judge(decode<FrontendReply>(header, message, {}));
  judge(decode<BackendMessage>(header, message, {}));
  judge(decode<BackendCommand>(header, message, {}));
  judge(decode<PeerRequest>(header, message, {}));
  judge(decode<PeerReply>(header, message, {}));
  judge(decode<ProxyCommand>(header, message));
  judge(decode<ProxyMessage>(header, message));
}

TEST(CodecPayload, ARequestSharesTheReceivedMemory) {
  InferRequest request = small_request();
  request.payload = zeros(3136);
  const WholeFrame whole = take_apart(encode(ClientMessage(request)));
  const auto decoded = decode<ClientMessage>(whole.header, whole.message, whole.payload);
  EXPECT_EQ(std::get<InferRequest>(decoded.value()).payload.view().data(),
            whole.payload.view().data());
}

TEST(CodecPayload, ABatchIsEncodedFromSlicesAndDecodedAsOne) {
  const Bytes first = zeros(100);
  const Batch batch{{1}, {2}, "lenet", 2, 5ms, 3ms, {first, zeros(28)}};
  const OutgoingFrame frame = encode(BackendCommand(batch));
  ASSERT_EQ(frame.payload.size(), 2U);
  EXPECT_EQ(frame.payload[0].view().data(), first.view().data());
  const auto decoded = std::get<Batch>(decode_command(frame).value());
  ASSERT_EQ(decoded.inputs.size(), 1U);
  EXPECT_EQ(decoded.inputs[0].size(), 128U);
}

TEST(CodecPayload, JoinsAMessageThatWasAnnounced) {
  const Batch batch{{1}, {2}, "lenet", 2, 5ms, 3ms, {zeros(128)}};
  const WholeFrame whole = take_apart(encode(BackendCommand(batch)));
  FrameDecoder<BackendCommand> decoder;
  for (int frame = 0; frame < 2; ++frame) {
    const auto announced = decoder.announce(whole.header, whole.message);
    ASSERT_TRUE(announced.ok());
    EXPECT_EQ(std::get<Batch>(*announced.value()).gpulet, batch.gpulet);
    const auto decoded = decoder.finish(whole.header, whole.message, whole.payload);
    ASSERT_TRUE(decoded.ok());
    const auto& inputs = std::get<Batch>(decoded.value()).inputs;
    ASSERT_EQ(inputs.size(), 1U);
    EXPECT_EQ(inputs[0].view().data(), whole.payload.view().data());
  }
}

TEST(CodecPayload, AnAnnouncedMessageMayHaveNoPayloadOfItsOwn) {
  const WholeFrame whole = take_apart(encode(BackendMessage(Heartbeat{})));
  FrameDecoder<BackendMessage> decoder;
  ASSERT_TRUE(decoder.announce(whole.header, whole.message).ok());
  expect_malformed(decoder.finish(whole.header, whole.message, zeros(1)), "payload");
  EXPECT_TRUE(decoder.finish(whole.header, whole.message, {}).ok());
}

TEST(CodecPayload, AReplyWithAWrongPayloadSizeIsMalformed) {
  InferReply reply{
      1,  {}, {{"a", DataType::fp32, {2}}, {"b", DataType::uint8, {3}}}, {zeros(8), zeros(3)}, {},
      {}, 1};
  ASSERT_TRUE(decode_reply(encode(FrontendReply(reply))).ok());
  reply.payload.pop_back();
  expect_malformed(decode_reply(encode(FrontendReply(reply))), "8 bytes");
}

TEST(CodecPayload, AnUnexpectedPayloadIsMalformed) {
  WholeFrame whole = take_apart(encode(BackendMessage(Heartbeat{})));
  expect_malformed(decode<BackendMessage>(whole.header, whole.message, zeros(1)), "payload");
}

TEST(CodecFamilies, AMessageOfAnotherPeerIsMalformed) {
  expect_malformed(decode_client(encode(BackendMessage(Heartbeat{}))), "heartbeat");
  expect_malformed(decode_reply(encode(ClientMessage(ModelsRequest{}))), "models_request");
  expect_malformed(decode_backend(encode(BackendCommand(RetireGpulet{{1}}))), "retire_gpulet");
  expect_malformed(decode_command(encode(ProxyCommand(StopProxy{}))), "stop_proxy");
  expect_malformed(decode_proxy(encode(ProxyMessage(BatchRan{}))), "batch_ran");
  expect_malformed(decode_from_proxy(encode(ClientMessage(small_request()))), "infer_request");
}

TEST(CodecLimits, ValuesOutOfRangeAreMalformedAndNamed) {
  InferRequest request = small_request();
  request.model.assign(kMaxNameBytes + 1, 'm');
  expect_malformed(decode_client(encode(ClientMessage(request))), "model");
  request = small_request();
  request.inputs.resize(kMaxTensors + 1);
  expect_malformed(decode_client(encode(ClientMessage(request))), "inputs");
  request = small_request();
  request.inputs[0].shape.assign(kMaxDimensions + 1, 1);
  expect_malformed(decode_client(encode(ClientMessage(request))), "inputs");

  for (const double cores : {-0.1, std::nan(""), HUGE_VAL}) {
    expect_malformed(decode_command(encode(BackendCommand(SetCores{{1}, cores}))), "cores");
  }
  CreateGpulet create{{1}, 0, Share{40}, {{"lenet", std::string(64, 'a'), {}, {}, 8}}};
  for (const std::uint32_t size : {0U, 9U}) {
    create.models[0].planned_batches = {1, size};
    expect_malformed(decode_command(encode(BackendCommand(create))), "planned_batches");
  }
  create.models[0].planned_batches.assign(65, 1);
  expect_malformed(decode_command(encode(BackendCommand(create))), "planned_batches");
  LoadModels load{{{"lenet", "lenet.pt", {}, {}, 8}}};
  load.models[0].planned_batches = {9};
  expect_malformed(decode_proxy(encode(ProxyCommand(load))), "planned_batches");

  AssignGpulet assign;
  assign.part.service = static_cast<partition::Service>(3);
  expect_malformed(decode_command(encode(BackendCommand(assign))), "service");

  Batch batch{{1}, {2}, "lenet", 0, 5ms, 3ms, {}};
  expect_malformed(decode_command(encode(BackendCommand(batch))), "count");
  batch.count = kMaxBatch + 1;
  expect_malformed(decode_command(encode(BackendCommand(batch))), "count");

  Hello hello;
  hello.gpulets.resize(kMaxGpulets + 1);
  expect_malformed(decode_backend(encode(BackendMessage(hello))), "gpulets");
}

TEST(CodecLimits, ASizeOutside1To100PercentIsMalformed) {
  for (const int percent : {0, 101, -1}) {
    const CreateGpulet create{{1}, 0, Share{percent}, {}};
    expect_malformed(decode_command(encode(BackendCommand(create))), "size");
  }
}

TEST(CodecLimits, AnImpossibleInstanceOrGeometryIsMalformed) {
  using partition::MigInstance;
  for (const MigInstance instance : {MigInstance{0, 1}, MigInstance{9, 0}, MigInstance{1, 8}}) {
    CreateGpulet create{{1}, 0, Share{42}, {}};
    create.instance = instance;
    expect_malformed(decode_command(encode(BackendCommand(create))), "instance");
    GpuletReport report;
    report.instance = instance;
    expect_malformed(decode_backend(encode(BackendMessage(report))), "instance");
  }
  Hello hello;
  hello.devices.resize(1);
  hello.devices[0].device.processes_per_instance = 9;
  expect_malformed(decode_backend(encode(BackendMessage(hello))), "processes_per_instance");
  hello.devices[0].device.processes_per_instance = 1;
  hello.devices[0].device.mig = partition::MigGeometry::of("a30").value();
  WholeFrame whole = take_apart(encode(BackendMessage(hello)));
  const std::vector<std::byte> known{std::byte{'a'}, std::byte{'3'}, std::byte{'0'}};
  const auto name =
      std::search(whole.message.begin(), whole.message.end(), known.begin(), known.end());
  ASSERT_NE(name, whole.message.end());
  *name = std::byte{'b'};
  expect_malformed(decode<BackendMessage>(whole.header, whole.message, whole.payload), "'b30'");
}

TEST(CodecLimits, OnlyADigestNamesAModelFile) {
  for (const std::string& name :
       {std::string("../../etc/passwd"), std::string(), std::string(64, 'A'), kDigest + "a"}) {
    expect_malformed(decode_backend(encode(BackendMessage(ModelPieceRequest{name}))), "sha256");
    expect_malformed(decode_command(encode(BackendCommand(ModelPiece{name, 0, 0, {}}))), "sha256");
  }
}

TEST(CodecLimits, APieceBeyondTheEndOfItsFileIsMalformed) {
  for (const std::uint64_t offset :
       {std::uint64_t{95}, std::uint64_t{101}, std::numeric_limits<std::uint64_t>::max()}) {
    const ModelPiece piece{kDigest, offset, 100, zeros(6)};
    expect_malformed(decode_command(encode(BackendCommand(piece))), "100");
  }
}

TEST(CodecLimits, SharedMemoryRangesThatWrapAreMalformed) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  RunBatch run{{1}, "lenet", 1, kMost - 1, 1, kMost - 1, 1, 1ms, {}};
  EXPECT_TRUE(decode_proxy(encode(ProxyCommand(run))).ok());
  run.output_capacity = 2;
  expect_malformed(decode_proxy(encode(ProxyCommand(run))), "output_capacity");
  run.output_capacity = 1;
  run.input_bytes = 2;
  expect_malformed(decode_proxy(encode(ProxyCommand(run))), "input_bytes");
}

TEST(CodecLimits, AnEmptyModelTensorIsMalformed) {
  const LoadModels load{{{"lenet", "lenet.pt", {{"image", DataType::fp32, {1, 0}}}, {}, 1}}};
  expect_malformed(decode_proxy(encode(ProxyCommand(load))), "inputs");
}

TensorSpec converted_input() {
  TensorSpec input{"image", DataType::uint8, {4, 6, 3}};
  input.conversion = InputConversion{
      .from_channels_last = true, .mean = {0.4, 0.5, 0.6}, .deviation = {0.2, 0.3, 0.4}};
  return input;
}

TEST(CodecLimits, AConversionOfAModelMustBeOne) {
  const std::vector<std::function<void(TensorSpec&)>> wrong = {
      [](TensorSpec& input) { input.type = DataType::fp32; },
      [](TensorSpec& input) { input.conversion->type = DataType::int8; },
      [](TensorSpec& input) { input.conversion->type = DataType{200}; },
      [](TensorSpec& input) { input.conversion->mean.clear(); },
      [](TensorSpec& input) {
        input.conversion->mean = {1, 2};
      },
      [](TensorSpec& input) { input.conversion->mean.assign(kMostConvertedChannels + 1, 0); },
      [](TensorSpec& input) { input.conversion->deviation = {0}; },
      [](TensorSpec& input) { input.conversion->scale = std::numeric_limits<double>::infinity(); },
      [](TensorSpec& input) {
        input.shape = {4, 6};
      }};
  for (const auto& change : wrong) {
    TensorSpec input = converted_input();
    change(input);
    expect_malformed(decode_proxy(encode(ProxyCommand(
                         LoadModels{{ModelToLoad{"m", "m.onnx", {input}, {}}}, {}, 1}))),
                     "models.inputs");
    CreateGpulet create;
    create.size = kWholeDevice;
    create.models = {ModelToServe{"m", kDigest, {input}, {}}};
    expect_malformed(decode_command(encode(BackendCommand(create))), "models.inputs");
  }
}

TEST(CodecLimits, ARangeOfAModelsInputMustBeOne) {
  TensorSpec input{"rate", DataType::int64, {}};
  input.whole = true;
  const auto sent = [&] {
    return decode_proxy(
        encode(ProxyCommand(LoadModels{{ModelToLoad{"m", "m.onnx", {input}, {}}}, {}, 1})));
  };
  input.range = ValueRange{16000, 16000};
  const auto received = sent();
  ASSERT_TRUE(received.ok()) << received.status().to_string();
  EXPECT_EQ(std::get<LoadModels>(received.value()).models.at(0).inputs, std::vector{input});
  for (const ValueRange& wrong : {ValueRange{2, 1}, ValueRange{0, std::nan("")},
                                  ValueRange{-std::numeric_limits<double>::infinity(), 0}}) {
    input.range = wrong;
    expect_malformed(sent(), "models.inputs");
  }
}

// What a process does with an input is no matter of clients.
TEST(CodecLimits, OnlyModelsThatAreServedHaveConversions) {
  InferRequest request{1, "m", 50ms, {converted_input()}, zeros(72)};
  const auto received = decode_client(encode(ClientMessage(request)));
  ASSERT_TRUE(received.ok()) << received.status().to_string();
  const TensorSpec plain{"image", DataType::uint8, {4, 6, 3}};
  EXPECT_EQ(std::get<InferRequest>(received.value()).inputs, std::vector{plain});
  ModelInfo info;
  info.name = "m";
  info.inputs = {converted_input()};
  const auto listed = decode_reply(encode(FrontendReply(ModelsReply{{info}})));
  ASSERT_TRUE(listed.ok()) << listed.status().to_string();
  EXPECT_EQ(std::get<ModelsReply>(listed.value()).models.at(0).inputs, std::vector{plain});
}

TEST(CodecLimits, ARequestMayHaveAnyDimensions) {
  InferRequest request = small_request();
  request.inputs[0].shape = {0, -1, std::numeric_limits<std::int64_t>::max()};
  const auto decoded = decode_client(encode(ClientMessage(request)));
  EXPECT_EQ(std::get<InferRequest>(decoded.value()).inputs, request.inputs);
}

TEST(CodecLimits, AVariableThatNoEnvironmentCanHoldIsMalformed) {
  const auto received = [](const std::string& name, const std::string& value) {
    LoadModels load;
    load.environment.emplace(name, value);
    return decode_proxy(encode(ProxyCommand(load)));
  };
  EXPECT_TRUE(received("NAME", "a=b").ok());
  for (const std::string& name : {std::string(), std::string("A=B"), std::string("A\0B", 3)})
    expect_malformed(received(name, "value"), "name");
  expect_malformed(received("NAME", std::string("a\0b", 3)), "value");
}

TEST(CodecDefaults, AValueThatThePeerDoesNotKnowBecomesTheDefault) {
  Hello hello;
  hello.devices.resize(1);
  const auto received = [&hello] {
    return std::get<Hello>(decode_backend(encode(BackendMessage(hello))).value()).devices.at(0);
  };
  hello.devices[0].traits.step_percent = 0;
  hello.devices[0].device.processes_per_instance = 0;
  EXPECT_EQ(received().traits.step_percent, partition::Traits().step_percent);
  EXPECT_EQ(received().device.processes_per_instance, 1U);
  hello.devices[0].traits.step_percent = 0.5;
  hello.devices[0].device.processes_per_instance = 2;
  EXPECT_EQ(received().traits.step_percent, 0.5);
  EXPECT_EQ(received().device.processes_per_instance, 2U);
}

TEST(CodecDurations, RoundsUpToMicroseconds) {
  InferRequest request = small_request();
  request.timeout = 1ns;
  const auto decoded = decode_client(encode(ClientMessage(request)));
  EXPECT_EQ(std::get<InferRequest>(decoded.value()).timeout, 1us);
}

TEST(CodecDurations, ClampsNegativeAndInfiniteDurations) {
  Batch batch{{1}, {2}, "lenet", 1, -5ms, Duration::max(), {}};
  const auto decoded = std::get<Batch>(decode_command(encode(BackendCommand(batch))).value());
  EXPECT_EQ(decoded.start_within, 0ns);
  EXPECT_EQ(decoded.expected_duration, kMaxDuration);
}

TEST(CodecText, AnErrorMessageBecomesValidUtf8) {
  const std::string odd = "bad \xff byte, cut \xc3";
  const ProxyReady ready{{StatusCode::internal, odd}, 0};
  const auto decoded = decode_from_proxy(encode(ProxyMessage(ready)));
  EXPECT_EQ(std::get<ProxyReady>(decoded.value()).status.message(), "bad ? byte, cut ?");
}

// Protobuf rejects a whole message with a text that is no UTF-8.
TEST(CodecText, AReasonIsCutBetweenTwoCharacters) {
  ModelInfo model;
  model.name = "a";
  model.reason = std::string(4095, '.') + "\u00e9";
  const auto decoded = decode_reply(encode(FrontendReply(ModelsReply{{model}})));
  ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
  EXPECT_EQ(std::get<ModelsReply>(decoded.value()).models.at(0).reason, std::string(4095, '.'));
}

// The first and the last character of every length, and those next to gaps.
TEST(CodecText, AnErrorMessageKeepsValidCharactersAndNoOthers) {
  const auto received = [](const std::string& text) {
    const ProxyReady ready{{StatusCode::internal, text}, 0};
    const auto decoded = decode_from_proxy(encode(ProxyMessage(ready)));
    return std::get<ProxyReady>(decoded.value()).status.message();
  };
  const std::vector<std::string> valid{
      "\x7f",         "\xc2\x80",     "\xdf\xbf",         "\xe0\xa0\x80",     "\xed\x9f\xbf",
      "\xee\x80\x80", "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf3\xbf\xbf\xbf", "\xf4\x8f\xbf\xbf"};
  for (const std::string& text : valid) {
    EXPECT_EQ(received(text), text);
    EXPECT_EQ(received(text + "."), text + ".");
  }
  const std::vector<std::string> invalid{
      "\x80",     "\xc1\xbf",         "\xc2",         "\xe0\x9f\xbf",     "\xed\xa0\x80",
      "\xe2\x82", "\xf0\x8f\xbf\xbf", "\xf0\x9f\x98", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80"};
  for (const std::string& text : invalid) {
    const std::string replaced(text.size(), '?');
    EXPECT_EQ(received(text), replaced);
    EXPECT_EQ(received(text + "."), replaced + ".");
  }
}

TEST(CodecText, ALongErrorMessageIsCutBetweenCharacters) {
  std::string text;
  while (text.size() <= kMaxStatusMessageBytes)
    text += "\xe2\x82\xac";  // a character of three bytes
  const ProxyReady ready{{StatusCode::internal, text}, 0};
  const auto decoded = decode_from_proxy(encode(ProxyMessage(ready)));
  EXPECT_EQ(std::get<ProxyReady>(decoded.value()).status.message(),
            text.substr(0, kMaxStatusMessageBytes / 3 * 3));
}

}  // namespace
}  // namespace gpulet::protocol
