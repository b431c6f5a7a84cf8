// Random small ONNX graphs, with what must come of each: it is served, or it is refused when it is
// loaded. Versions 11 to 21 of the operators, ranks 0 to 5, every type of tensor, models with and
// without a batch, optional inputs, dimensions that the file leaves open, outputs that are inputs,
// constants and equal values, If and Loop.
//
// A value of a row depends on that row alone. A value that is not exact, such as a sum, decides
// nothing: not a comparison, and not an integer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/core/tensor.h"

namespace gpulet::executor::onnx_graphs {

struct ElementType {
  DataType type;
  int number;        // of TensorProto.DataType
  const char* name;  // in JavaScript, which has no BF16: Graph::for_node
};
inline constexpr ElementType kTypes[] = {
    {DataType::fp32, 1, "float32"},   {DataType::uint8, 2, "uint8"},
    {DataType::int8, 3, "int8"},      {DataType::int16, 5, "int16"},
    {DataType::int32, 6, "int32"},    {DataType::int64, 7, "int64"},
    {DataType::bytes, 8, "string"},   {DataType::boolean, 9, "bool"},
    {DataType::fp16, 10, "float16"},  {DataType::fp64, 11, "float64"},
    {DataType::bf16, 16, "bfloat16"},
};
[[nodiscard]] ElementType type_of(DataType type);

struct Value {
  std::string name;
  DataType type = DataType::fp32;
  std::vector<std::int64_t> shape{};  // of one request
  bool exact = true;
};

struct Graph {
  std::string file;
  // The same for Node.js, which has no BF16 and no optional inputs: with FP32 tensors `NAME_wide`
  // in place of BF16 ones, and with all of `inputs` required.
  std::string for_node;
  int operators = 0;  // their version
  bool whole = false;
  std::uint32_t max_batch = 1;
  std::vector<Value> inputs;  // that the entry declares
  std::vector<Value> outputs;
  std::vector<std::string> operations;  // of its nodes
  // A word of the message that refuses the file; empty: it must be served.
  std::optional<std::string> refused{};
};

// The graph of that number; always the same.
[[nodiscard]] Graph generate(std::uint32_t seed);

// The tensors of the entry.
[[nodiscard]] std::vector<TensorSpec> specs_of(const Graph& graph,
                                               const std::vector<Value>& values);

}  // namespace gpulet::executor::onnx_graphs
