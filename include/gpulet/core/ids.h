// Ids that cannot be mistaken for one another. Values; any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>

namespace gpulet {

template <typename Tag>
struct Id {
  std::uint64_t value = 0;

  friend constexpr auto operator<=>(const Id&, const Id&) = default;
};

using RequestId = Id<struct RequestTag>;  // given by the frontend at admission
using BatchId = Id<struct BatchTag>;      // given by the frontend when a batch is formed
using GpuletId =
    Id<struct GpuletTag>;  // given by the frontend, unique over its lifetime and its restarts
using BackendId = Id<struct BackendTag>;  // one connection of one backend daemon
using ClientId = Id<struct ClientTag>;    // one connection of one client; 0: the engine itself
using Epoch = Id<struct EpochTag>;        // one plan in force

inline constexpr ClientId kEngine{0};  // asks for the applications

// As messages call it.
[[nodiscard]] inline std::string name_of(GpuletId gpulet) {
  return "gpulet " + std::to_string(gpulet.value);
}

}  // namespace gpulet

template <typename Tag>
struct std::hash<gpulet::Id<Tag>> {
  std::size_t operator()(const gpulet::Id<Tag>& id) const noexcept {
    return std::hash<std::uint64_t>{}(id.value);
  }
};
