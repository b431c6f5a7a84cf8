// Conversions between the bytes of batches and LibTorch's tensors, and between numerics. Functions
// throw what LibTorch throws.
#pragma once

#include <torch/script.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/core/tensor.h"

namespace gpulet::executor {

[[nodiscard]] at::ScalarType scalar_type(DataType type);

// The inputs of a batch as tensors over its bytes, which must outlive them. Copies a tensor only if
// its bytes are not aligned for its type. REQUIRES: the bytes of `count` requests.
[[nodiscard]] std::vector<c10::IValue> wrap_inputs(const std::vector<TensorSpec>& specs,
                                                   const std::vector<std::size_t>& sizes,
                                                   std::uint32_t count,
                                                   std::span<const std::byte> bytes);
// The same for bytes in a tensor of bytes, on any device.
[[nodiscard]] std::vector<c10::IValue> view_inputs(const std::vector<TensorSpec>& specs,
                                                   const std::vector<std::size_t>& sizes,
                                                   std::uint32_t count, const at::Tensor& bytes);

// Inputs on which every model with these shapes can run: floating-point numbers rise from 0 to 1,
// bytes that are converted to them from 0 to 255, whole numbers are 0.
[[nodiscard]] std::vector<c10::IValue> sample_inputs(const std::vector<TensorSpec>& specs,
                                                     std::uint32_t count,
                                                     const c10::Device& device);

// Zeros, which a captured graph keeps as its inputs.
[[nodiscard]] std::vector<at::Tensor> zero_inputs(const std::vector<TensorSpec>& specs,
                                                  std::uint32_t count, const c10::Device& device);

// The tensors of a network's result, which must be a tensor, or a tuple or list of tensors. Else
// fails with invalid, naming the type.
[[nodiscard]] Result<std::vector<at::Tensor>> tensors_of(const c10::IValue& result);

// Fails with invalid, naming both sides, unless these are the declared outputs of a batch of
// `count`.
[[nodiscard]] Status check_outputs(const std::vector<TensorSpec>& specs, std::uint32_t count,
                                   const std::vector<at::Tensor>& outputs);

// Writes the outputs one after another and returns the number of bytes. REQUIRES: `bytes` is large
// enough; check_outputs() passed.
std::size_t copy_outputs(const std::vector<at::Tensor>& outputs, std::span<std::byte> bytes);

// The sentence of LibTorch's long message that states the problem.
[[nodiscard]] std::string short_message(const std::exception& error);
[[nodiscard]] std::string short_message(std::string_view text);
// The message of LibTorch, without the stack of its own functions.
[[nodiscard]] std::string whole_message(const std::exception& error);

// input_at_fault() for a message of LibTorch.
[[nodiscard]] Status invalid_input(const std::string& message);

// ---- numerics

// The requested numerics as far as the device supports them.
[[nodiscard]] Numerics supported(Numerics requested, const c10::Device& device);

// Whether a network with these numerics computes as its file does.
[[nodiscard]] bool as_in_file(const Numerics& numerics);

// For messages: "in half precision, channels last".
[[nodiscard]] std::string describe(const Numerics& numerics);

// Converts the weights of a module: its attributes and, in a frozen module, the constants of its
// graph.
void convert(torch::jit::Module& module, const Numerics& numerics);

void to_numerics(const Numerics& numerics, std::vector<c10::IValue>& inputs);
// Converts floating-point outputs to their declared types. Leaves everything else to
// check_outputs().
void to_declared(const std::vector<TensorSpec>& specs, std::vector<at::Tensor>& outputs);

// The largest difference in an output as a fraction of the largest magnitude in it, for the output
// with the largest such fraction; infinite if shapes differ or a value is not a number.
[[nodiscard]] double error_between(const std::vector<at::Tensor>& reference,
                                   const std::vector<at::Tensor>& outputs);

}  // namespace gpulet::executor
