// Sizes that every executor holds a batch against before it touches a byte. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "gpulet/core/status.h"
#include "gpulet/core/tensor.h"
#include "gpulet/executor/executor.h"

namespace gpulet::executor {

// Bytes of one request's part of each tensor. Fails with invalid, naming the tensor.
[[nodiscard]] Result<std::vector<std::size_t>> tensor_sizes(const std::vector<TensorSpec>& specs);

// Fails with internal unless the batch holds at least one request, its input has exactly the bytes
// of `count` requests and its output has room for them.
[[nodiscard]] Status check_sizes(const BatchToRun& batch,
                                 const std::vector<std::size_t>& input_sizes,
                                 const std::vector<std::size_t>& output_sizes);

[[nodiscard]] Status not_loaded(std::string_view model);

}  // namespace gpulet::executor
