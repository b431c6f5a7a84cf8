// Shape arithmetic of traced networks. A trace records computations of sizes, such as
// x.size(2) // heads, with tensors: prim::NumToTensor makes a tensor on the CPU of the size, and
// the divisor is a constant tensor. Loading a network to a GPU puts all its constants there, so
// that each of these computations runs on the GPU and makes the CPU wait for its result, and the
// network cannot be captured as a CUDA graph.
#pragma once

#include <torch/script.h>

#include <cstddef>
#include <vector>

namespace gpulet::executor {

struct ConstantUse {
  torch::jit::Node* node;
  std::size_t input;  // of the node

  friend bool operator==(const ConstantUse&, const ConstantUse&) = default;
};

// The constants without dimensions in computations that have only sizes and such constants.
[[nodiscard]] std::vector<ConstantUse> constants_of_shape_arithmetic(torch::jit::Graph& graph);

// Moves these constants to the CPU. Other uses of a constant keep it where it is.
void keep_shape_arithmetic_on_cpu(torch::jit::Graph& graph);

}  // namespace gpulet::executor
