// Other numbers than those of the file: conversion of a network, at its borders, and how far its
// answers are from those of the file. Functions throw what LibTorch throws.
#pragma once

#include <torch/script.h>

#include <string>
#include <vector>

#include "gpulet/core/numerics.h"
#include "gpulet/core/tensor.h"

namespace gpulet::executor {

// What of it that device has.
[[nodiscard]] Numerics in_force(Numerics wanted, const c10::Device& device);

// Whether a network computes as its file says.
[[nodiscard]] bool as_in_file(const Numerics& numerics);

// "in half precision, channels last"
[[nodiscard]] std::string describe(const Numerics& numerics);

// The module's weights, whether they are its attributes or, frozen, constants of its graph.
void convert(torch::jit::Module& module, const Numerics& numerics);

void to_numerics(const Numerics& numerics, std::vector<c10::IValue>& inputs);
// Numbers with fractions in the types that are declared. Others, and more or fewer, stay as they
// are: check_outputs tells.
void to_declared(const std::vector<TensorSpec>& specs, std::vector<at::Tensor>& outputs);

// The largest difference in an output as a fraction of the largest magnitude in it, for the output
// where that is the most; infinite where shapes differ or a number is none.
[[nodiscard]] double error_between(const std::vector<at::Tensor>& reference,
                                   const std::vector<at::Tensor>& outputs);

}  // namespace gpulet::executor
