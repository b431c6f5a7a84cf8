#include "executor/torch/numerics.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "executor/torch/tensors.h"

namespace gpulet::executor {
namespace {

constexpr std::int64_t kImageDimensions = 4;

// Whole numbers count and point at things: they stay.
void convert(at::Tensor& tensor, const Numerics& numerics) {
  if (!tensor.is_floating_point()) return;
  at::ScalarType type = tensor.scalar_type();
  if (numerics.precision == Precision::half) type = at::kHalf;
  if (numerics.precision == Precision::bfloat16) type = at::kBFloat16;
  const bool image = numerics.channels_last && tensor.dim() == kImageDimensions;
  const auto format = image ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Preserve;
  tensor = tensor.to(type, /*non_blocking=*/false, /*copy=*/false, format);
}

void convert_data(at::Tensor& variable, const Numerics& numerics) {
  at::Tensor data = variable.detach();
  convert(data, numerics);
  variable.set_data(data);
}

void convert(torch::jit::Block& block, const Numerics& numerics) {
  for (torch::jit::Node* const node : block.nodes()) {
    for (torch::jit::Block* const inner : node->blocks()) convert(*inner, numerics);
    if (node->kind() != at::prim::Constant || !node->hasAttribute(at::attr::value)) continue;
    if (node->kindOf(at::attr::value) != torch::jit::AttributeKind::t) continue;
    at::Tensor constant = node->t(at::attr::value);
    convert(constant, numerics);
    node->t_(at::attr::value, constant);
    node->output()->inferTypeFrom(constant);
  }
}

}  // namespace

Numerics in_force(Numerics wanted, const c10::Device& device) {
  if (device.is_cpu() && wanted.precision == Precision::half) wanted.precision = Precision::full;
  return wanted;
}

bool as_in_file(const Numerics& numerics) {
  return numerics.precision == Precision::full && !numerics.channels_last;
}

std::string describe(const Numerics& numerics) {
  std::string text = "in " + std::string(to_string(numerics.precision)) +
                     (numerics.precision == Precision::bfloat16 ? "" : " precision");
  return numerics.channels_last ? text + ", channels last" : text;
}

void convert(torch::jit::Module& module, const Numerics& numerics) {
  const at::NoGradGuard no_gradients;
  for (at::Tensor parameter : module.parameters()) convert_data(parameter, numerics);
  for (at::Tensor buffer : module.buffers()) convert_data(buffer, numerics);
  for (const torch::jit::Module& part : module.modules()) {
    for (const torch::jit::Method& method : part.get_methods())
      convert(*method.graph()->block(), numerics);
  }
}

void to_numerics(const Numerics& numerics, std::vector<c10::IValue>& inputs) {
  if (as_in_file(numerics)) return;
  for (c10::IValue& input : inputs) {
    at::Tensor tensor = input.toTensor();
    convert(tensor, numerics);
    input = c10::IValue(std::move(tensor));
  }
}

void to_declared(const std::vector<TensorSpec>& specs, std::vector<at::Tensor>& outputs) {
  for (std::size_t i = 0; i < std::min(specs.size(), outputs.size()); ++i) {
    const at::ScalarType type = scalar_type(specs[i].type);
    if (outputs[i].is_floating_point() && at::isFloatingType(type))
      outputs[i] = outputs[i].to(type);
  }
}

double error_between(const std::vector<at::Tensor>& reference,
                     const std::vector<at::Tensor>& outputs) {
  constexpr double kNoLikeness = std::numeric_limits<double>::infinity();
  if (reference.size() != outputs.size()) return kNoLikeness;
  double error = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    if (reference[i].sizes() != outputs[i].sizes()) return kNoLikeness;
    if (reference[i].numel() == 0) continue;
    const at::Tensor expected = reference[i].to(at::kDouble);
    const double largest = expected.abs().max().item<double>();
    const double difference = (expected - outputs[i].to(at::kDouble)).abs().max().item<double>();
    if (difference == 0) continue;
    const double fraction = difference / largest;
    // Also where one of them is not a number, and where all should be nothing.
    if (!(fraction < kNoLikeness)) return kNoLikeness;
    error = std::max(error, fraction);
  }
  return error;
}

}  // namespace gpulet::executor
