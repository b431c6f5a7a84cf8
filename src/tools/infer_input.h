// What `gpulet infer` sends: a model's inputs, read from a file. Blocking file I/O; any thread.
//
// A file that ends in .json holds one of
//   {"inputs":[{"name":"image","shape":[1,28,28],"datatype":"FP32","data":[...]}]}
//   {"image":[...], "other":[...]}
//   [...]                           where the model has one input
// Values may be nested as the shape is, or flat. Names may be left out where the model has one
// input; a shape and a datatype only have to agree with the model's. The first form is also a
// request's body in the Open Inference Protocol, whose shapes begin with the number of requests: a
// leading 1 is allowed. Any other file holds the raw tensors one after another, in the model's
// order.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>
#include <vector>

#include "gpulet/core/bytes.h"
#include "gpulet/core/status.h"
#include "gpulet/core/tensor.h"

namespace gpulet::tools {

// Fails with not_found or invalid; the message begins with the file.
[[nodiscard]] Result<Bytes> read_infer_input(const std::filesystem::path& file,
                                             const std::vector<TensorSpec>& inputs);

// The same of a JSON text. Errors begin with the place in it.
[[nodiscard]] Result<Bytes> parse_infer_input(std::string_view json,
                                              const std::vector<TensorSpec>& inputs);

// A whole file. Fails with not_found or invalid.
[[nodiscard]] Result<std::vector<std::byte>> read_file(const std::filesystem::path& file);

}  // namespace gpulet::tools
