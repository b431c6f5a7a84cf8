// What any client may send to the frontend: frames and the messages in them.
#include "tests/net/fuzz_frames.h"

namespace {

using namespace gpulet;
using namespace gpulet::net;

void take(const FrameHeader& header, std::span<const std::byte> message, Bytes payload) {
  testing::require_stable(decode_client_message(header, message, std::move(payload)),
                          decode_client_message);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  testing::read_in_two_ways(std::as_bytes(std::span(data, size)), take);
  return 0;
}
