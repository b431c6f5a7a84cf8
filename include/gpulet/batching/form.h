// Requests to a batch's scatter list, and a batch's outputs back to the requests, without copying a
// byte. The layout is that of core/request.h. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "gpulet/core/bytes.h"
#include "gpulet/core/request.h"
#include "gpulet/core/status.h"

namespace gpulet::batching {

// REQUIRES: every request's input is as large as `input_sizes` (bytes of each input of one request)
// together.
[[nodiscard]] std::vector<Bytes> gather_inputs(std::span<const Request> requests,
                                               std::span<const std::size_t> input_sizes);

// The slices of request `index` out of `count`: one for each output. Fails (internal) where
// `outputs` is not as large as `output_sizes` (bytes of each output of one request) times `count`.
[[nodiscard]] Status check_outputs(const Bytes& outputs, std::size_t count,
                                   std::span<const std::size_t> output_sizes);
[[nodiscard]] std::vector<Bytes> scatter_outputs(const Bytes& outputs, std::size_t count,
                                                 std::size_t index,
                                                 std::span<const std::size_t> output_sizes);

}  // namespace gpulet::batching
