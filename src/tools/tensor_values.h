// One tensor's bytes as numbers, and back, for people and JSON. Pure; any thread.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <vector>

#include "gpulet/core/status.h"
#include "gpulet/core/tensor.h"

namespace gpulet::tools {

// REQUIRES: the bytes hold an element of that index. BOOL is 0 or 1.
[[nodiscard]] double value_at(DataType type, std::span<const std::byte> bytes, std::size_t index);

// All elements in one flat list, each with no more digits than tell it from its neighbours. What is
// not finite prints as null.
[[nodiscard]] nlohmann::ordered_json values_json(DataType type, std::span<const std::byte> bytes);

// Floating point is rounded to the nearest that the type has. Fails (invalid) on what is no number
// (BOOL: neither true, false, 0 nor 1), on a fraction where the type is whole, and on what the type
// cannot hold; the message holds the value.
Status append_value(DataType type, const nlohmann::json& value, std::vector<std::byte>& bytes);
Status append_value(DataType type, double value, std::vector<std::byte>& bytes);

}  // namespace gpulet::tools
