// Small pieces of the protocol's error messages. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "gpulet/core/status.h"

namespace gpulet::net::kserve {

[[nodiscard]] inline Status invalid(std::string message) {
  return {StatusCode::invalid, std::move(message)};
}

// 'text', long text cut: what a client sent comes back in an error, but not all of it.
[[nodiscard]] inline std::string in_quotes(std::string_view text) {
  constexpr std::size_t kLongest = 80;
  std::string result = "'";
  result.append(text.substr(0, kLongest));
  if (text.size() > kLongest) result += "...";
  return result + '\'';
}

// "[1,28,28]", of the first dimensions only where there are many.
[[nodiscard]] inline std::string shown(std::span<const std::int64_t> shape) {
  constexpr std::size_t kMost = 16;
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size() && i < kMost; ++i) {
    if (i > 0) text += ',';
    text += std::to_string(shape[i]);
  }
  return text + (shape.size() > kMost ? ",...]" : "]");
}

}  // namespace gpulet::net::kserve
