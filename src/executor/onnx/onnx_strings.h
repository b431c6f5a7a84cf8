// String tensors of ONNX Runtime, from the slots of a batch's BYTES input and into those of an
// output (core/tensor.h). Pure but for the library; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "executor/onnx/onnx_library.h"
#include "gpulet/base/status.h"
#include "gpulet/core/tensor.h"

namespace gpulet::executor {

// The number of STRING among ONNX's types.
inline constexpr int kOnnxString = 8;

// A tensor with the strings of `count` requests. Fails where a slot does not hold its elements.
[[nodiscard]] OnnxHandle<onnx_abi::Value> strings_of_slots(const OnnxLibrary& library,
                                                           OnnxFailure& failure,
                                                           const TensorSpec& spec,
                                                           std::uint32_t count,
                                                           std::span<const std::byte> slots);

// Writes all of `slots`. Fails with invalid where the strings of a request exceed its slot, and
// with internal where the library fails. REQUIRES: `value` is a string tensor of the declared
// shape.
[[nodiscard]] Status strings_to_slots(const OnnxLibrary& library, const TensorSpec& spec,
                                      std::uint32_t count, const onnx_abi::Value* value,
                                      std::span<std::byte> slots);

}  // namespace gpulet::executor
