// Fuzzes the bytes that frontends, backend and proxy send, with every decoder.
#include "tests/protocol/fuzz_frames.h"

namespace {

using namespace gpulet;
using namespace gpulet::protocol;

void take(const FrameHeader& header, std::span<const std::byte> message, const Bytes& payload) {
  testing::require_stable(decode<FrontendReply>(header, message, payload), decode<FrontendReply>);
  testing::require_stable(decode<BackendMessage>(header, message, payload), decode<BackendMessage>);
  testing::require_stable(decode<BackendCommand>(header, message, payload), decode<BackendCommand>);
  testing::require_stable(decode<PeerRequest>(header, message, payload), decode<PeerRequest>);
  testing::require_stable(decode<PeerReply>(header, message, payload), decode<PeerReply>);
  testing::require_stable(decode<ProxyCommand>(header, message),
                          [](const FrameHeader& again, std::span<const std::byte> bytes,
                             const Bytes&) { return decode<ProxyCommand>(again, bytes); });
  testing::require_stable(decode<ProxyMessage>(header, message),
                          [](const FrameHeader& again, std::span<const std::byte> bytes,
                             const Bytes&) { return decode<ProxyMessage>(again, bytes); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  testing::read_in_two_ways(std::as_bytes(std::span(data, size)), take);
  return 0;
}
