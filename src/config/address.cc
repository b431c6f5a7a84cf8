#include "config/address.h"

#include <algorithm>
#include <cstddef>

namespace gpulet::config {
namespace {

constexpr std::size_t kGroups = 8;        // of an IPv6 address, 16 bits each
constexpr std::size_t kGroupsOfIpv4 = 2;  // that an IPv4 address takes at its end

bool consists_of(std::string_view text, std::string_view letters) {
  return text.find_first_not_of(letters) == std::string_view::npos;
}

bool is_octet(std::string_view text) {
  constexpr std::size_t kMostDigits = 3;
  if (text.empty() || text.size() > kMostDigits || !consists_of(text, "0123456789")) return false;
  if (text.size() > 1 && text.front() == '0') return false;
  return text.size() < kMostDigits || text <= "255";
}

bool is_ipv4(std::string_view text) {
  constexpr std::ptrdiff_t kDots = 3;
  if (std::count(text.begin(), text.end(), '.') != kDots) return false;
  for (std::ptrdiff_t i = 0; i < kDots; ++i) {
    const std::size_t dot = text.find('.');
    if (!is_octet(text.substr(0, dot))) return false;
    text.remove_prefix(dot + 1);
  }
  return is_octet(text);
}

// Adds the groups of a side of "::", or of the whole address. False for an invalid one.
bool count_groups(std::string_view text, bool at_end, std::size_t& groups) {
  constexpr std::size_t kMostDigits = 4;
  if (text.empty()) return true;
  for (bool more = true; more;) {
    const std::size_t colon = text.find(':');
    more = colon != std::string_view::npos;
    const std::string_view group = text.substr(0, colon);
    if (more) text.remove_prefix(colon + 1);
    if (!more && at_end && is_ipv4(group)) {
      groups += kGroupsOfIpv4;
      return true;
    }
    if (group.empty() || group.size() > kMostDigits ||
        !consists_of(group, "0123456789abcdefABCDEF"))
      return false;
    ++groups;
  }
  return true;
}

bool is_ipv6(std::string_view text) {
  if (const std::size_t zone = text.find('%'); zone != std::string_view::npos) {
    if (zone + 1 == text.size()) return false;
    text = text.substr(0, zone);
  }
  std::size_t groups = 0;
  const std::size_t gap = text.find("::");
  if (gap == std::string_view::npos)
    return !text.empty() && count_groups(text, true, groups) && groups == kGroups;
  return count_groups(text.substr(0, gap), false, groups) &&
         count_groups(text.substr(gap + 2), true, groups) && groups < kGroups;
}

}  // namespace

bool is_ip_address(std::string_view text) { return is_ipv4(text) || is_ipv6(text); }

}  // namespace gpulet::config
