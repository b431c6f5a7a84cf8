// Random messages within the codec's limits, and their comparison. For tests only.
#pragma once

#include <rapidcheck.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gpulet/base/bytes.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/protocol/proxy_messages.h"

namespace gpulet::protocol::testing {

[[nodiscard]] inline Bytes any_bytes(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(*rc::gen::arbitrary<std::uint8_t>());
  return Bytes::own(std::move(bytes));
}

[[nodiscard]] inline Bytes any_bytes() { return any_bytes(*rc::gen::inRange<std::size_t>(0, 200)); }

[[nodiscard]] std::string any_name();
[[nodiscard]] std::vector<TensorSpec> any_tensors();
[[nodiscard]] Status any_status();

[[nodiscard]] ClientMessage any_client_message();
[[nodiscard]] FrontendReply any_frontend_reply();
[[nodiscard]] BackendMessage any_backend_message();
[[nodiscard]] BackendCommand any_backend_command();
[[nodiscard]] PeerRequest any_peer_request();
[[nodiscard]] PeerReply any_peer_reply();
[[nodiscard]] ProxyCommand any_proxy_command();
[[nodiscard]] ProxyMessage any_proxy_message();

// Compares all fields, and Bytes by content.
[[nodiscard]] bool same(const ClientMessage& a, const ClientMessage& b);
[[nodiscard]] bool same(const FrontendReply& a, const FrontendReply& b);
[[nodiscard]] bool same(const BackendMessage& a, const BackendMessage& b);
[[nodiscard]] bool same(const BackendCommand& a, const BackendCommand& b);
[[nodiscard]] bool same(const PeerRequest& a, const PeerRequest& b);
[[nodiscard]] bool same(const PeerReply& a, const PeerReply& b);
[[nodiscard]] bool same(const ProxyCommand& a, const ProxyCommand& b);
[[nodiscard]] bool same(const ProxyMessage& a, const ProxyMessage& b);

}  // namespace gpulet::protocol::testing
