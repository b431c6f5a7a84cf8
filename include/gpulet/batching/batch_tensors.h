// Builds the input of a batch from the inputs of its requests, and splits the output of a batch
// into the outputs of its requests, without copying bytes. core/request.h describes the layout.
// Pure; any thread.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "gpulet/base/bytes.h"
#include "gpulet/base/status.h"
#include "gpulet/core/request.h"

namespace gpulet::batching {

// The slices of a batch's input in their order. `input_sizes` holds the bytes of each input tensor
// of one request. REQUIRES: every request's input has the sum of `input_sizes` as its size.
[[nodiscard]] std::vector<Bytes> gather_inputs(std::span<const Request> requests,
                                               std::span<const std::size_t> input_sizes);

// Fails with internal unless `outputs` has `count` times the sum of `output_sizes` bytes, where
// `output_sizes` holds the bytes of each output tensor of one request.
[[nodiscard]] Status check_outputs(const Bytes& outputs, std::size_t count,
                                   std::span<const std::size_t> output_sizes);
// The outputs of request `index` in a batch of `count`: one slice for each output tensor.
// REQUIRES: check_outputs() passed, index < count.
[[nodiscard]] std::vector<Bytes> scatter_outputs(const Bytes& outputs, std::size_t count,
                                                 std::size_t index,
                                                 std::span<const std::size_t> output_sizes);

}  // namespace gpulet::batching
