// What a peer is told that has connected to the wrong one of the frontend's ports, in the protocol
// that the peer speaks itself. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gpulet/core/status.h"
#include "gpulet/net/codec/frame.h"

namespace gpulet::frontend {

// A port that takes frames, and the frontend's others. A port of 0 is off.
struct FramePort {
  enum class For : std::uint8_t { clients, backends };
  For peers = For::clients;
  std::uint16_t clients = 0;
  std::uint16_t backends = 0;
  std::uint16_t http = 0;
  std::uint16_t grpc = 0;
};

struct Misdirected {
  std::string why;  // names the port that is meant
  net::OutgoingFrame farewell;
};

// A message of this type belongs to the port for the other kind of peers; nothing where it does
// not.
[[nodiscard]] std::optional<Misdirected> misdirected(const FramePort& here, net::MessageType type);

// The last message on a connection that ends with `failure`.
[[nodiscard]] net::OutgoingFrame farewell(const FramePort& here, const Status& failure,
                                          net::Dialect spoken);

}  // namespace gpulet::frontend
