// Numeric IP addresses. Private to config. Pure; any thread.
#pragma once

#include <string_view>

namespace gpulet::config {

// True for an IPv4 address with four decimal numbers, and for an IPv6 address (RFC 4291), perhaps
// with a zone ("fe80::1%eth0"): the texts that a listener takes.
[[nodiscard]] bool is_ip_address(std::string_view text);

}  // namespace gpulet::config
