// What the kernel knows of a TCP connection that a library holds. Private to net/grpc; any thread.
// In a source of its own: the kernel's header of it and the system's exclude each other.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace gpulet::net::grpc_api {

// A number that no other socket of this machine has or had; nothing where the descriptor is not a
// socket any more.
[[nodiscard]] std::optional<std::uint64_t> cookie_of(int descriptor);

struct Traffic {
  bool any_received = false;
  std::chrono::milliseconds since_last{};  // byte in either direction
};
// Nothing where the descriptor is not that socket any more.
[[nodiscard]] std::optional<Traffic> traffic_of(int descriptor, std::uint64_t cookie);

// Ends the connection without closing its descriptor: its holder finds it at an end.
void end_connection(int descriptor, std::uint64_t cookie);

}  // namespace gpulet::net::grpc_api
