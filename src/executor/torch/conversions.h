// InputConversions: makes the inputs of a network of the tensors that clients send (InputConversion
// of core/tensor.h), for one model on its device. Does not change once made, so several threads may
// use it at the same time. Functions throw what LibTorch throws.
#pragma once

#include <c10/core/Device.h>
#include <torch/script.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "executor/input_converter.h"
#include "gpulet/base/status.h"
#include "gpulet/core/tensor.h"

namespace gpulet::executor {

// The conversion of one input by operations of LibTorch, which a CUDA graph may contain: its
// numbers are on the device already. They may differ from those of an InputConverter in their last
// bit.
class DeviceConversion {
 public:
  // REQUIRES: the spec has a conversion, check_conversion() and a size.
  DeviceConversion(const TensorSpec& spec, const c10::Device& device);

  // The same layout as that of a tensor which clients sent as the model takes it.
  [[nodiscard]] at::Tensor operator()(const at::Tensor& batch) const;

 private:
  at::ScalarType type_;
  std::vector<std::int64_t> order_;  // of the dimensions; empty: as they are
  at::Tensor factor_;                // both: with the dimensions that they spread over
  at::Tensor offset_;
};

class InputConversions {
 public:
  InputConversions() = default;
  // Fails as check_conversion().
  [[nodiscard]] static Result<InputConversions> of(const std::vector<TensorSpec>& inputs,
                                                   const c10::Device& device);

  // Replaces each input that has a conversion: on a CPU in one pass over its bytes.
  void apply(std::vector<c10::IValue>& inputs) const;

 private:
  struct OnCpu {
    InputConverter converter;
    TensorSpec taken;  // by the model
  };
  // By input. Both empty: it is not converted.
  std::vector<std::optional<OnCpu>> on_cpu_;
  std::vector<std::optional<DeviceConversion>> on_device_;
};

}  // namespace gpulet::executor
