// Between batches as bytes and LibTorch's tensors. Functions throw what LibTorch throws.
#pragma once

#include <torch/script.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "gpulet/core/status.h"
#include "gpulet/core/tensor.h"

namespace gpulet::executor {

[[nodiscard]] at::ScalarType scalar_type(DataType type);

// The inputs of a batch as tensors over its own bytes, which must outlive them; copied only where a
// tensor's bytes are not aligned for its type. REQUIRES: the bytes of `count` requests.
[[nodiscard]] std::vector<c10::IValue> wrap_inputs(const std::vector<TensorSpec>& specs,
                                                   const std::vector<std::size_t>& sizes,
                                                   std::uint32_t count,
                                                   std::span<const std::byte> bytes);
// The same where the bytes are a tensor of bytes, on whatever device.
[[nodiscard]] std::vector<c10::IValue> view_inputs(const std::vector<TensorSpec>& specs,
                                                   const std::vector<std::size_t>& sizes,
                                                   std::uint32_t count, const at::Tensor& bytes);

// Inputs that every model of these shapes can run on: numbers rising from 0 to 1, and zeros where
// they are whole.
[[nodiscard]] std::vector<c10::IValue> sample_inputs(const std::vector<TensorSpec>& specs,
                                                     std::uint32_t count,
                                                     const c10::Device& device);

// A tensor, or a tuple or list of tensors. Fails with invalid, naming what it is instead.
[[nodiscard]] Result<std::vector<at::Tensor>> tensors_of(const c10::IValue& answer);

// Fails with invalid, naming both sides, unless these are the declared outputs of a batch of
// `count`.
[[nodiscard]] Status check_outputs(const std::vector<TensorSpec>& specs, std::uint32_t count,
                                   const std::vector<at::Tensor>& outputs);

// Writes them one after another, and returns the bytes written. REQUIRES: room for them,
// check_outputs passed.
std::size_t copy_outputs(const std::vector<at::Tensor>& outputs, std::span<std::byte> bytes);

// The one sentence of LibTorch's many lines that says what went wrong.
[[nodiscard]] std::string own_words(const std::exception& error);

// What the sender of an input is told that the model cannot compute. Of the library's sentence only
// one without digits is passed on: others have sizes of the model's inside in them.
[[nodiscard]] Status input_at_fault(const std::string& own_words);

}  // namespace gpulet::executor
