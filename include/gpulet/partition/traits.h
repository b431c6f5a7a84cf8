// What a partitioning can do, for whoever plans with it or shows it. A plain value; any thread.
#pragma once

#include <cstdint>
#include <string_view>

namespace gpulet::partition {

// What it takes to give a gpulet another share.
enum class ChangeOfSize : std::uint8_t {
  new_process = 0,  // beside the old one until it has loaded
  in_place = 1,
};

// Whom a fatal fault in one gpulet's process takes along.
enum class FaultReach : std::uint8_t {
  process = 0,
  device = 1,  // all gpulets of the device
};

struct Traits {
  double step_percent = 1;  // between sizes that differ in what they give
  ChangeOfSize change = ChangeOfSize::new_process;
  FaultReach fault = FaultReach::process;
  bool limits_memory = false;  // a gpulet cannot take its neighbours' memory

  friend bool operator==(const Traits&, const Traits&) = default;
};

// As written above: "new_process", "in_place"; "process", "device".
[[nodiscard]] constexpr std::string_view to_string(ChangeOfSize change) {
  return change == ChangeOfSize::in_place ? "in_place" : "new_process";
}
[[nodiscard]] constexpr std::string_view to_string(FaultReach reach) {
  return reach == FaultReach::device ? "device" : "process";
}

}  // namespace gpulet::partition
