// The cost of encoding and decoding the messages of the hot path, including payloads (never
// copied).
#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "gpulet/protocol/codec.h"

namespace {

using namespace gpulet;
using namespace std::chrono_literals;

const Bytes& image() {
  static const Bytes bytes = Bytes::own(std::vector<std::byte>(3136));
  return bytes;
}

struct Parts {
  protocol::FrameHeader header;
  std::vector<std::byte> message;
};

Parts parts_of(const protocol::OutgoingFrame& frame) {
  const auto head = std::as_bytes(std::span(frame.head));
  return {protocol::decode_frame_header(head.first<protocol::kFrameHeaderBytes>(), {}).value(),
          {head.begin() + protocol::kFrameHeaderBytes, head.end()}};
}

ClientMessage request() {
  return InferRequest{12345, "lenet", 50ms, {{"image", DataType::fp32, {1, 28, 28}}}, image()};
}

FrontendReply reply() {
  return InferReply{12345, {}, {{"logits", DataType::fp32, {10}}}, {image().slice(0, 40)}, 900us,
                    400us, 8};
}

BackendCommand batch() {
  return Batch{{77}, {3}, "lenet", 32, 5ms, 3ms, std::vector<Bytes>(32, image())};
}

BackendMessage batch_result() { return BatchResult{{77}, {}, image().slice(0, 1280), 1ms, 3ms}; }

void encode_infer_request(benchmark::State& state) {
  const ClientMessage message = request();
  while (state.KeepRunning()) benchmark::DoNotOptimize(protocol::encode(message));
}
BENCHMARK(encode_infer_request);

void decode_infer_request(benchmark::State& state) {
  const Parts parts = parts_of(protocol::encode(request()));
  while (state.KeepRunning()) {
    benchmark::DoNotOptimize(protocol::decode<ClientMessage>(parts.header, parts.message, image()));
  }
}
BENCHMARK(decode_infer_request);

void encode_infer_reply(benchmark::State& state) {
  const FrontendReply message = reply();
  while (state.KeepRunning()) benchmark::DoNotOptimize(protocol::encode(message));
}
BENCHMARK(encode_infer_reply);

void decode_infer_reply(benchmark::State& state) {
  const Parts parts = parts_of(protocol::encode(reply()));
  while (state.KeepRunning()) {
    benchmark::DoNotOptimize(
        protocol::decode<FrontendReply>(parts.header, parts.message, image().slice(0, 40)));
  }
}
BENCHMARK(decode_infer_reply);

void encode_batch_of_32(benchmark::State& state) {
  const BackendCommand message = batch();
  while (state.KeepRunning()) benchmark::DoNotOptimize(protocol::encode(message));
}
BENCHMARK(encode_batch_of_32);

void decode_batch_of_32(benchmark::State& state) {
  const Parts parts = parts_of(protocol::encode(batch()));
  while (state.KeepRunning()) {
    benchmark::DoNotOptimize(
        protocol::decode<BackendCommand>(parts.header, parts.message, image()));
  }
}
BENCHMARK(decode_batch_of_32);

void decode_batch_result(benchmark::State& state) {
  const Parts parts = parts_of(protocol::encode(batch_result()));
  while (state.KeepRunning()) {
    benchmark::DoNotOptimize(
        protocol::decode<BackendMessage>(parts.header, parts.message, image()));
  }
}
BENCHMARK(decode_batch_result);

}  // namespace

BENCHMARK_MAIN();
