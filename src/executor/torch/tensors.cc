#include "executor/torch/tensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <utility>

#include "gpulet/executor/executor.h"

namespace gpulet::executor {
namespace {

// "Float[1, 28, 28]", for messages
std::string describe(at::ScalarType type, at::IntArrayRef shape) {
  std::string text = std::string(at::toString(type)) + "[";
  for (std::size_t i = 0; i < shape.size(); ++i)
    text += (i == 0 ? "" : ",") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace

at::ScalarType scalar_type(DataType type) {
  constexpr std::array kTypes{at::kBool, at::kByte, at::kChar,     at::kShort, at::kInt,
                              at::kLong, at::kHalf, at::kBFloat16, at::kFloat, at::kDouble};
  static_assert(static_cast<std::size_t>(DataType::fp64) == kTypes.size());
  const auto number = static_cast<std::size_t>(type) - static_cast<std::size_t>(DataType::boolean);
  if (number < kTypes.size()) return kTypes[number];
  throw std::invalid_argument("a tensor's type is out of range");
}

std::vector<c10::IValue> wrap_inputs(const std::vector<TensorSpec>& specs,
                                     const std::vector<std::size_t>& sizes, std::uint32_t count,
                                     std::span<const std::byte> bytes) {
  std::vector<c10::IValue> inputs;
  inputs.reserve(specs.size());
  std::size_t begin = 0;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const std::size_t size = sizes[i] * count;
    const auto type = scalar_type(specs[i].type);
    // LibTorch has no tensors over constant memory. A model that writes to its input writes to its
    // own batch only.
    auto* data = const_cast<std::byte*>(
        bytes.subspan(begin, size).data());  // NOLINT(cppcoreguidelines-pro-type-const-cast)
    at::Tensor tensor;
    if (reinterpret_cast<std::uintptr_t>(data) % c10::elementSize(type) == 0) {
      tensor = at::from_blob(data, batch_shape(specs[i], count), at::TensorOptions(type));
    } else {
      tensor = at::empty(batch_shape(specs[i], count), at::TensorOptions(type));
      std::memcpy(tensor.data_ptr(), data, size);
    }
    inputs.emplace_back(std::move(tensor));
    begin += size;
  }
  return inputs;
}

std::vector<c10::IValue> view_inputs(const std::vector<TensorSpec>& specs,
                                     const std::vector<std::size_t>& sizes, std::uint32_t count,
                                     const at::Tensor& bytes) {
  // Vectorized kernels need aligned inputs.
  constexpr std::size_t kAlignment = 16;
  std::vector<c10::IValue> inputs;
  inputs.reserve(specs.size());
  std::size_t begin = 0;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const std::size_t size = sizes[i] * count;
    at::Tensor part =
        bytes.narrow(0, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(size));
    if (begin % kAlignment != 0) part = part.clone();
    inputs.emplace_back(part.view(scalar_type(specs[i].type)).view(batch_shape(specs[i], count)));
    begin += size;
  }
  return inputs;
}

std::vector<c10::IValue> sample_inputs(const std::vector<TensorSpec>& specs, std::uint32_t count,
                                       const c10::Device& device) {
  std::vector<c10::IValue> inputs;
  inputs.reserve(specs.size());
  for (const TensorSpec& spec : specs) {
    const auto type = scalar_type(spec.type);
    const std::vector<std::int64_t> shape = batch_shape(spec, count);
    if (at::isFloatingType(type)) {
      const std::int64_t numbers = c10::multiply_integers(shape);
      inputs.emplace_back(at::linspace(0, 1, numbers, at::kFloat).reshape(shape).to(device, type));
    } else if (spec.conversion) {
      constexpr double kLargestByte = 255;
      const std::int64_t numbers = c10::multiply_integers(shape);
      inputs.emplace_back(
          at::linspace(0, kLargestByte, numbers, at::kFloat).reshape(shape).to(device, type));
    } else {
      const double least = spec.range ? spec.range->least : 0;
      inputs.emplace_back(at::full(shape, least, at::TensorOptions(type).device(device)));
    }
  }
  return inputs;
}

std::vector<at::Tensor> zero_inputs(const std::vector<TensorSpec>& specs, std::uint32_t count,
                                    const c10::Device& device) {
  std::vector<at::Tensor> inputs;
  inputs.reserve(specs.size());
  for (const TensorSpec& spec : specs) {
    inputs.push_back(at::zeros(batch_shape(spec, count),
                               at::TensorOptions(scalar_type(spec.type)).device(device)));
  }
  return inputs;
}

Result<std::vector<at::Tensor>> tensors_of(const c10::IValue& result) {
  if (result.isTensor()) return std::vector<at::Tensor>{result.toTensor()};
  if (result.isTensorList()) return result.toTensorVector();
  std::vector<at::Tensor> tensors;
  if (result.isTuple()) {
    for (const c10::IValue& element : result.toTupleRef().elements()) {
      if (element.isTensor()) tensors.push_back(element.toTensor());
    }
    if (tensors.size() == result.toTupleRef().elements().size()) return tensors;
  }
  return Status(StatusCode::invalid, "the model returns a value of type " +
                                         result.type()->repr_str() +
                                         "; must be a tensor, or a tuple or list of tensors");
}

Status check_outputs(const std::vector<TensorSpec>& specs, std::uint32_t count,
                     const std::vector<at::Tensor>& outputs) {
  if (specs.size() != outputs.size()) {
    return {StatusCode::invalid, "the model returns " + std::to_string(outputs.size()) +
                                     " tensors; " + std::to_string(specs.size()) +
                                     " outputs are declared"};
  }
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const auto type = scalar_type(specs[i].type);
    const std::vector<std::int64_t> shape = batch_shape(specs[i], count);
    if (!outputs[i].defined() || outputs[i].layout() != at::kStrided) {
      return {StatusCode::invalid,
              "output " + std::to_string(i) + " ('" + specs[i].name +
                  "') is not a dense tensor; return one, for example by to_dense()"};
    }
    if (outputs[i].scalar_type() != type || outputs[i].sizes() != at::IntArrayRef(shape)) {
      return {StatusCode::invalid,
              "output " + std::to_string(i) + " of a batch of " + std::to_string(count) + " is " +
                  describe(outputs[i].scalar_type(), outputs[i].sizes()) + ", but '" +
                  specs[i].name + "' is declared as " + to_string(specs[i]) +
                  " of one request, which makes " + describe(type, shape)};
    }
  }
  return {};
}

std::size_t copy_outputs(const std::vector<at::Tensor>& outputs, std::span<std::byte> bytes) {
  std::size_t written = 0;
  for (const at::Tensor& output : outputs) {
    // A view of a complex number may hold its negative, to be resolved when it is read.
    const at::Tensor ready = output.resolve_neg().contiguous().cpu();
    std::memcpy(bytes.subspan(written, ready.nbytes()).data(), ready.data_ptr(), ready.nbytes());
    written += ready.nbytes();
  }
  return written;
}

std::string whole_message(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
}

std::string short_message(const std::exception& error) {
  return short_message(whole_message(error));
}

std::string short_message(std::string_view text) {
  constexpr std::size_t kMostCharacters = 400;
  // The interpreter prints the model's source first and the error last.
  const bool interpreter = text.find("TorchScript interpreter") != std::string_view::npos;
  std::string_view sentence;
  while (!text.empty() && (sentence.empty() || interpreter)) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.find_first_not_of(" ~<-") != std::string_view::npos) sentence = line;
  }
  return std::string(sentence.substr(0, kMostCharacters));
}

Status invalid_input(const std::string& message) {
  // The interpreter prefixes every failure with this class.
  constexpr std::string_view kClass = "RuntimeError: ";
  const std::string short_text = short_message(message);
  std::string_view sentence = short_text;
  if (sentence.starts_with(kClass)) sentence.remove_prefix(kClass.size());
  return input_at_fault(sentence);
}

// ---- numerics

namespace {

constexpr std::int64_t kImageDimensions = 4;

// Converts floating-point tensors only: whole numbers are counts and indices.
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

Numerics supported(Numerics requested, const c10::Device& device) {
  if (device.is_cpu() && requested.precision == Precision::half)
    requested.precision = Precision::full;
  return requested;
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
  constexpr double kIncomparable = std::numeric_limits<double>::infinity();
  if (reference.size() != outputs.size()) return kIncomparable;
  double error = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    if (reference[i].sizes() != outputs[i].sizes()) return kIncomparable;
    if (reference[i].numel() == 0) continue;
    const at::Tensor expected = reference[i].to(at::kDouble);
    const double largest = expected.abs().max().item<double>();
    const double difference = (expected - outputs[i].to(at::kDouble)).abs().max().item<double>();
    if (difference == 0) continue;
    const double fraction = difference / largest;
    // Also true for NaN, and for a reference that is all zeros.
    if (!(fraction < kIncomparable)) return kIncomparable;
    error = std::max(error, fraction);
  }
  return error;
}

}  // namespace gpulet::executor
