#include "store/remote/address_class.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>

namespace gpulet::store::remote {
namespace {

struct Network4 {
  std::uint32_t first;
  unsigned bits;
  AddressClass of;
};

// IANA's special-purpose registry.
constexpr std::array kNetworks4{
    Network4{0x00000000, 8, AddressClass::special},           // 0.0.0.0/8: this machine
    Network4{0x0A000000, 8, AddressClass::private_network},   // 10.0.0.0/8
    Network4{0x64400000, 10, AddressClass::private_network},  // 100.64.0.0/10: of providers
    Network4{0x7F000000, 8, AddressClass::loopback},          // 127.0.0.0/8
    Network4{0xA9FE0000, 16, AddressClass::link_local},       // 169.254.0.0/16
    Network4{0xAC100000, 12, AddressClass::private_network},  // 172.16.0.0/12
    Network4{0xC0000000, 24, AddressClass::special},          // 192.0.0.0/24
    Network4{0xC0A80000, 16, AddressClass::private_network},  // 192.168.0.0/16
    Network4{0xC6120000, 15, AddressClass::private_network},  // 198.18.0.0/15: of benchmarks
    Network4{0xE0000000, 3, AddressClass::special},           // multicast, reserved, broadcast
};

AddressClass class_of_v4(std::uint32_t address) {
  for (const Network4& network : kNetworks4) {
    if ((address ^ network.first) >> (32 - network.bits) == 0) return network.of;
  }
  return AddressClass::global;
}

using Bytes16 = std::array<std::uint8_t, 16>;

bool begins_with(const Bytes16& address, std::span<const std::uint8_t> start) {
  return std::equal(start.begin(), start.end(), address.begin());
}

AddressClass v4_at(const Bytes16& address, std::size_t at) {
  std::uint32_t inner = 0;
  for (std::size_t i = at; i < at + 4; ++i) inner = inner << 8U | address[i];
  return class_of_v4(inner);
}

AddressClass class_of_v6(const Bytes16& address) {
  constexpr std::array<std::uint8_t, 15> kZeros{};
  constexpr std::array<std::uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
  constexpr std::array<std::uint8_t, 12> kNat64{0, 0x64, 0xFF, 0x9B};
  constexpr std::array<std::uint8_t, 2> k6to4{0x20, 0x02};
  if (begins_with(address, kZeros))
    return address[15] == 1 ? AddressClass::loopback : AddressClass::special;
  if (begins_with(address, std::span(kZeros).first(12)) || begins_with(address, kMapped) ||
      begins_with(address, kNat64))
    return v4_at(address, 12);
  if (begins_with(address, k6to4)) return v4_at(address, 2);
  if ((address[0] & 0xFEU) == 0xFC) return AddressClass::private_network;  // fc00::/7
  if (address[0] == 0xFE && (address[1] & 0xC0U) == 0x80) return AddressClass::link_local;
  if (address[0] == 0xFE && (address[1] & 0xC0U) == 0xC0) return AddressClass::private_network;
  const bool unicast = (address[0] & 0xE0U) == 0x20;  // 2000::/3
  return unicast ? AddressClass::global : AddressClass::special;
}

}  // namespace

AddressClass class_of(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    sockaddr_in found{};
    std::memcpy(&found, &address, sizeof found);
    return class_of_v4(ntohl(found.sin_addr.s_addr));
  }
  if (address.sa_family == AF_INET6) {
    sockaddr_in6 found{};
    std::memcpy(&found, &address, sizeof found);
    Bytes16 bytes{};
    std::memcpy(bytes.data(), found.sin6_addr.s6_addr, bytes.size());
    return class_of_v6(bytes);
  }
  return AddressClass::special;
}

std::optional<AddressClass> class_of(const std::string& host) {
  std::string bare = host;
  if (bare.starts_with('[') && bare.ends_with(']')) bare = bare.substr(1, bare.size() - 2);
  bare = bare.substr(0, bare.find('%'));  // the zone of a link-local address
  in_addr v4{};
  if (::inet_aton(bare.c_str(), &v4) != 0) return class_of_v4(ntohl(v4.s_addr));
  Bytes16 v6{};
  if (::inet_pton(AF_INET6, bare.c_str(), v6.data()) == 1) return class_of_v6(v6);
  return std::nullopt;
}

}  // namespace gpulet::store::remote
