#include "executor/torch/shape_arithmetic.h"

#include <torch/csrc/jit/ir/constants.h>

#include <optional>
#include <unordered_set>

namespace gpulet::executor {
namespace {

using Values = std::unordered_set<const torch::jit::Value*>;

bool is_tensor(const torch::jit::Value& value) {
  return value.type()->isSubtypeOf(*c10::TensorType::get());
}

std::optional<at::Tensor> number_in(torch::jit::Value* value) {
  const auto constant = torch::jit::toIValue(value);
  if (!constant || !constant->isTensor() || constant->toTensor().dim() != 0) return std::nullopt;
  return constant->toTensor();
}

// The constants of a node that computes with sizes; empty for other nodes.
std::optional<std::vector<ConstantUse>> constants_beside_sizes(torch::jit::Node& node,
                                                               const Values& sizes) {
  std::vector<ConstantUse> constants;
  bool has_size = false;
  for (std::size_t i = 0; i < node.inputs().size(); ++i) {
    torch::jit::Value* const input = node.inputs()[i];
    if (!is_tensor(*input)) continue;
    if (sizes.contains(input)) {
      has_size = true;
    } else if (number_in(input)) {
      constants.push_back({&node, i});
    } else {
      return std::nullopt;
    }
  }
  if (!has_size) return std::nullopt;
  return constants;
}

// Adds to `sizes` the tensors of sizes in the block.
void find_constants(torch::jit::Block& block, Values& sizes, std::vector<ConstantUse>& found) {
  for (torch::jit::Node* const node : block.nodes()) {
    for (torch::jit::Block* const inner : node->blocks()) find_constants(*inner, sizes, found);
    if (node->kind() != at::prim::NumToTensor) {
      const auto constants = constants_beside_sizes(*node, sizes);
      if (!constants) continue;
      found.insert(found.end(), constants->begin(), constants->end());
    }
    for (const torch::jit::Value* const output : node->outputs()) {
      if (is_tensor(*output)) sizes.insert(output);
    }
  }
}

}  // namespace

std::vector<ConstantUse> constants_of_shape_arithmetic(torch::jit::Graph& graph) {
  Values sizes;
  std::vector<ConstantUse> found;
  find_constants(*graph.block(), sizes, found);
  return found;
}

void keep_shape_arithmetic_on_cpu(torch::jit::Graph& graph) {
  for (const auto& [node, input] : constants_of_shape_arithmetic(graph)) {
    const at::Tensor number = number_in(node->inputs()[input]).value();
    if (number.device().is_cpu()) continue;
    const torch::jit::WithInsertPoint before(node);
    node->replaceInput(input, graph.insertConstant(number.cpu()));
  }
}

}  // namespace gpulet::executor
