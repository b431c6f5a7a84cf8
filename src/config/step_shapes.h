// What a step makes of tensors of given types and shapes, before any value is known. Pure; any
// thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "gpulet/config/application_config.h"
#include "gpulet/core/tensor.h"

namespace gpulet::config {

struct Misfit {
  std::optional<std::size_t> input;  // which of the inputs; empty: their number
  std::string what;
  std::string mend;
};

// The outputs, or the first thing that does not fit.
[[nodiscard]] std::variant<std::vector<TensorSpec>, Misfit> outputs_of(
    const Step& step, const std::vector<TensorSpec>& inputs);

// "FP32[3,any,any]"
[[nodiscard]] std::string shown(const TensorSpec& tensor);

}  // namespace gpulet::config
