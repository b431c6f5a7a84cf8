// What a megabyte is wherever memory is written in them. Any thread.
#pragma once

#include <cstdint>

namespace gpulet {

inline constexpr std::uint64_t kBytesPerMegabyte = std::uint64_t{1} << 20U;

}  // namespace gpulet
