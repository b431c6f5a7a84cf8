// Typed ids, and the share of a device. Values; any thread.
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

using RequestId = Id<struct RequestTag>;    // assigned by the frontend at admission
using BatchId = Id<struct BatchTag>;        // assigned by the frontend when it forms a batch
using GpuletId = Id<struct GpuletTag>;      // assigned by the frontend; unique across its restarts
using BackendId = Id<struct BackendTag>;    // one connection of a backend
using FrontendId = Id<struct FrontendTag>;  // one connection of a frontend
using ClientId = Id<struct ClientTag>;      // one connection of a client; 0: the engine itself
using Epoch = Id<struct EpochTag>;          // the number of a plan in force
using Term = Id<struct TermTag>;            // the leadership of one frontend; 0: none

inline constexpr ClientId kEngine{0};  // the client of an application's model calls

// The name in log and error messages: "gpulet 7".
[[nodiscard]] inline std::string name_of(GpuletId gpulet) {
  return "gpulet " + std::to_string(gpulet.value);
}

// A share of one device's compute.
struct Share {
  int percent = 0;  // 1..100 for the size of a gpulet; 0: none

  [[nodiscard]] constexpr double fraction() const { return percent / 100.0; }
  [[nodiscard]] constexpr bool valid() const { return percent >= 1 && percent <= 100; }

  friend constexpr auto operator<=>(const Share&, const Share&) = default;
};

inline constexpr Share kWholeDevice{100};

}  // namespace gpulet

template <typename Tag>
struct std::hash<gpulet::Id<Tag>> {
  std::size_t operator()(const gpulet::Id<Tag>& id) const noexcept {
    return std::hash<std::uint64_t>{}(id.value);
  }
};
