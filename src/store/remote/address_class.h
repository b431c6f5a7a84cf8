// Which network an address belongs to: a store must not send a frontend to services that only the
// frontend's machine or network can reach. Pure; any thread.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>

namespace gpulet::store::remote {

enum class AddressClass : std::uint8_t {
  global = 0,  // everybody can reach it
  private_network,
  link_local,  // also the metadata services of clouds
  loopback,
  special,  // the unspecified address, multicast, reserved
};

// IPv4 addresses inside IPv6 ones (mapped, compatible, 6to4, NAT64) count as themselves. Other
// families are special.
[[nodiscard]] AddressClass class_of(const sockaddr& address);
// Of an address in text, with or without brackets, in any form that the C library takes: 127.1 is
// one of 127.0.0.1. Empty: a name.
[[nodiscard]] std::optional<AddressClass> class_of(const std::string& host);

}  // namespace gpulet::store::remote
