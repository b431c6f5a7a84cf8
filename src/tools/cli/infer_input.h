// Reads the inputs of `gpulet infer` from a file, and converts tensors to numbers and back. Any
// thread.
//
// A file that ends in .json holds one of
//   {"inputs":[{"name":"image","shape":[1,28,28],"datatype":"FP32","data":[...]}]}
//   {"image":[...], "other":[...]}
//   [...]                           for a model with one input
// Values may be nested like the shape, or flat. The name may be left out if the model has one
// input; shape and datatype are optional and must match the model. The first form is also the body
// of a request in the Open Inference Protocol, whose shapes begin with the number of requests, so a
// leading 1 is allowed. Any other file holds the raw tensors one after another in the model's
// order.
#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string_view>
#include <vector>

#include "gpulet/base/bytes.h"
#include "gpulet/base/status.h"
#include "gpulet/core/tensor.h"

namespace gpulet::tools {

// Fails with not_found or invalid; the message begins with the file. Blocking file I/O.
[[nodiscard]] Result<Bytes> read_infer_input(const std::filesystem::path& file,
                                             const std::vector<TensorSpec>& inputs);

// The same for a JSON text. Error messages begin with the place in it.
[[nodiscard]] Result<Bytes> parse_infer_input(std::string_view json,
                                              const std::vector<TensorSpec>& inputs);

// Reads a whole file. Fails with not_found or invalid. Blocking file I/O.
[[nodiscard]] Result<std::vector<std::byte>> read_file(const std::filesystem::path& file);

// The element at `index` as a number; BOOL is 0 or 1. REQUIRES: the bytes hold that element. Pure,
// like the functions below.
[[nodiscard]] double value_at(DataType type, std::span<const std::byte> bytes, std::size_t index);

// All elements as a flat list, each with the fewest digits that identify it. Values that are not
// finite print as null.
[[nodiscard]] nlohmann::ordered_json values_json(DataType type, std::span<const std::byte> bytes);

// Appends the value as an element of that type, floating point rounded to the nearest value. Fails
// with invalid for a value that is not a number (BOOL: not true, false, 0 or 1), a fraction for an
// integer type, and a number that the type cannot hold; the message holds the value.
Status append_value(DataType type, const nlohmann::json& value, std::vector<std::byte>& bytes);
Status append_value(DataType type, double value, std::vector<std::byte>& bytes);

}  // namespace gpulet::tools
