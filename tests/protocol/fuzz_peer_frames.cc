// Fuzzes the bytes that frontend, backend and proxy send, with every decoder.
#include "tests/protocol/fuzz_frames.h"

namespace {

using namespace gpulet;
using namespace gpulet::protocol;

void take(const FrameHeader& header, std::span<const std::byte> message, const Bytes& payload) {
  testing::require_stable(decode_frontend_reply(header, message, payload), decode_frontend_reply);
  testing::require_stable(decode_backend_message(header, message, payload), decode_backend_message);
  testing::require_stable(decode_backend_command(header, message, payload), decode_backend_command);
  testing::require_stable(decode_proxy_command(header, message),
                          [](const FrameHeader& again, std::span<const std::byte> bytes,
                             const Bytes&) { return decode_proxy_command(again, bytes); });
  testing::require_stable(decode_proxy_message(header, message),
                          [](const FrameHeader& again, std::span<const std::byte> bytes,
                             const Bytes&) { return decode_proxy_message(again, bytes); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  testing::read_in_two_ways(std::as_bytes(std::span(data, size)), take);
  return 0;
}
