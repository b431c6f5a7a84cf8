// What an ONNX file says about the values of its inputs: how many rows the tables have that they
// index. The reader skips weights and needs neither ONNX Runtime nor protobuf.
//
// The file is not trusted: the steps of the reader and what it keeps are limited. Blocking file
// I/O; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "gpulet/base/status.h"

namespace gpulet::config {

// Limits of the reader, beside those of onnx_signature.h.
inline constexpr std::size_t kMostRangeNodes = 50'000;  // that are looked at
inline constexpr std::size_t kLongestRangeName = 512;   // bytes, of a tensor inside
inline constexpr std::size_t kMostTableDimensions = 8;

// By input: its values have to be below this number. Inputs that index no table, as far as the file
// shows it, are missing. Fails with invalid where the file is not an ONNX model or exceeds a limit,
// and with unavailable where it cannot be read.
[[nodiscard]] Result<std::map<std::string, std::int64_t>> read_index_limits(
    const std::filesystem::path& file);
[[nodiscard]] Result<std::map<std::string, std::int64_t>> parse_index_limits(
    std::span<const std::byte> bytes);

}  // namespace gpulet::config
