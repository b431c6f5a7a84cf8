// The built-in steps of applications, as functions of tensors (config/application_config.h says
// what each does). The configuration has checked that types and shapes fit; values may be anything,
// and a box that is not a number is taken as 0. A crop and its resize to 3x224x224 take up to a
// millisecond: a daemon runs steps away from its I/O thread. Pure; any thread.
#pragma once

#include <vector>

#include "gpulet/config/application_config.h"
#include "gpulet/core/bytes.h"
#include "gpulet/core/status.h"
#include "gpulet/core/tensor.h"

namespace gpulet::serve {

struct Tensor {
  TensorSpec spec;  // as it is: without kAnyDimension
  Bytes bytes;
};

// One item along the first dimension, in the same memory. REQUIRES: it has one.
[[nodiscard]] Tensor item(const Tensor& tensor, std::uint32_t index);

// The step's outputs, in the order that the configuration declares. Fails (internal) where memory
// runs out.
[[nodiscard]] Result<std::vector<Tensor>> run_step(const config::Step& step,
                                                   const std::vector<Tensor>& inputs);

}  // namespace gpulet::serve
