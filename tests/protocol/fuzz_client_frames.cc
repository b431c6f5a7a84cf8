// Fuzzes the bytes that a client sends to the frontend.
#include "tests/protocol/fuzz_frames.h"

namespace {

using namespace gpulet;
using namespace gpulet::protocol;

void take(const FrameHeader& header, std::span<const std::byte> message, Bytes payload) {
  testing::require_stable(decode<ClientMessage>(header, message, std::move(payload)),
                          decode<ClientMessage>);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  testing::read_in_two_ways(std::as_bytes(std::span(data, size)), take);
  return 0;
}
