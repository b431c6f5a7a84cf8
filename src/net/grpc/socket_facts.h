// The kernel's view of a TCP connection that a library owns. A source of its own, because Asio's
// and the kernel's TCP headers exclude each other. Private to net/grpc; any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace gpulet::net::grpc_api {

// A number unique to the socket on this machine; empty if the descriptor is no socket any more.
[[nodiscard]] std::optional<std::uint64_t> cookie_of(int descriptor);

struct Traffic {
  bool any_received = false;
  std::chrono::milliseconds since_last{};  // byte in either direction
};
// Empty if the descriptor is not that socket any more.
[[nodiscard]] std::optional<Traffic> traffic_of(int descriptor, std::uint64_t cookie);

// Shuts down the connection without closing its descriptor, so that its owner reads an end of file.
void end_connection(int descriptor, std::uint64_t cookie);

}  // namespace gpulet::net::grpc_api
