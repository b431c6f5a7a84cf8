// How the engine words figures and names in its notes.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/core/failure.h"
#include "gpulet/core/process_end.h"
#include "gpulet/schedule/cluster.h"
#include "gpulet/serve/exclusions.h"

namespace gpulet::serve {

[[nodiscard]] inline std::string per_second(double rate) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f/s", rate);
  return text.data();
}

[[nodiscard]] inline std::string counted(std::uint64_t count, const std::string& one) {
  return std::to_string(count) + " " + one + (count == 1 ? "" : "s");
}

// "n0/1"
[[nodiscard]] inline std::string device_name(const schedule::DeviceKey& device) {
  return device.node + "/" + std::to_string(device.device);
}

// "node n0", "device n0/1"
[[nodiscard]] inline std::string excluded_name(const Exclusion& exclusion) {
  if (!exclusion.device) return "node " + exclusion.node;
  return "device " + device_name({exclusion.node, *exclusion.device});
}

[[nodiscard]] inline std::string joined(const std::vector<std::string>& parts,
                                        std::string_view separator) {
  std::string text;
  for (const std::string& part : parts) {
    if (!text.empty()) text += separator;
    text += part;
  }
  return text;
}

// Of a process that was lost: "the process serving x <this>".
[[nodiscard]] inline std::string how_it_ended(FailureCause cause, const ProcessEnd& end) {
  if (cause == FailureCause::hung) return "hung and was ended";
  if (end.signal != 0) return "ended by signal " + std::to_string(end.signal);
  return "ended with exit status " + std::to_string(end.exit_status);
}

}  // namespace gpulet::serve
