#include "gpulet/protocol/messages.h"

#include <array>

namespace gpulet {

std::string_view to_string(ModelState state) {
  constexpr std::array<std::string_view, 6> kNames = {"unknown", "loading",     "ready",
                                                      "idle",    "unavailable", "leaving"};
  const auto number = static_cast<std::size_t>(state);
  return kNames[number < kNames.size() ? number : 0];
}

std::string_view to_string(GpuletState state) {
  constexpr std::array<std::string_view, 6> kNames = {"unknown",    "preparing", "ready",
                                                      "restarting", "failed",    "gone"};
  const auto number = static_cast<std::size_t>(state);
  return kNames[number < kNames.size() ? number : 0];
}

}  // namespace gpulet
