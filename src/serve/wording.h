// How the engine words figures in its notes.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <string>

namespace gpulet::serve {

[[nodiscard]] inline std::string per_second(double rate) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f/s", rate);
  return text.data();
}

[[nodiscard]] inline std::string counted(std::uint64_t count, const std::string& one) {
  return std::to_string(count) + " " + one + (count == 1 ? "" : "s");
}

}  // namespace gpulet::serve
