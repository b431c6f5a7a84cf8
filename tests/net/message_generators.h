// Random messages within the codec's limits, and what makes two of them the same. For tests only.
#pragma once

#include <rapidcheck.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gpulet/core/bytes.h"
#include "gpulet/serve/messages.h"

namespace gpulet::net::testing {

[[nodiscard]] inline Bytes any_bytes(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(*rc::gen::arbitrary<std::uint8_t>());
  return Bytes::own(std::move(bytes));
}

[[nodiscard]] inline Bytes any_bytes() { return any_bytes(*rc::gen::inRange<std::size_t>(0, 200)); }

[[nodiscard]] std::string any_name();
[[nodiscard]] std::vector<TensorSpec> any_tensors();
[[nodiscard]] Status any_status();

[[nodiscard]] serve::ClientMessage any_client_message();
[[nodiscard]] serve::FrontendReply any_frontend_reply();
[[nodiscard]] serve::BackendMessage any_backend_message();
[[nodiscard]] serve::BackendCommand any_backend_command();
[[nodiscard]] serve::ProxyCommand any_proxy_command();
[[nodiscard]] serve::ProxyMessage any_proxy_message();

// Every field is the same, and so are the bytes behind every Bytes.
[[nodiscard]] bool same(const serve::ClientMessage& a, const serve::ClientMessage& b);
[[nodiscard]] bool same(const serve::FrontendReply& a, const serve::FrontendReply& b);
[[nodiscard]] bool same(const serve::BackendMessage& a, const serve::BackendMessage& b);
[[nodiscard]] bool same(const serve::BackendCommand& a, const serve::BackendCommand& b);
[[nodiscard]] bool same(const serve::ProxyCommand& a, const serve::ProxyCommand& b);
[[nodiscard]] bool same(const serve::ProxyMessage& a, const serve::ProxyMessage& b);

}  // namespace gpulet::net::testing
