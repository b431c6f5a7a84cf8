#include "gpulet/base/status.h"

#include <array>

namespace gpulet {

std::string_view to_string(StatusCode code) {
  constexpr std::array<std::string_view, 13> kNames{
      "ok",      "invalid",   "not_found", "unavailable", "too_late",        "overloaded",
      "timeout", "cancelled", "malformed", "internal",    "unauthenticated", "forbidden",
      "limited"};
  static_assert(kNames.size() == static_cast<std::size_t>(kLastStatusCode) + 1);
  const auto at = static_cast<std::size_t>(code);
  return at < kNames.size() ? kNames[at] : "unknown";
}

Status Status::within(std::string_view where) const {
  if (ok()) return *this;
  return {code_, std::string(where) + ": " + message_};
}

std::string Status::to_string() const {
  std::string text(gpulet::to_string(code_));
  if (!message_.empty()) text += ": " + message_;
  return text;
}

}  // namespace gpulet
