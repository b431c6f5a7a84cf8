#include "executor/torch/tensors.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace gpulet::executor {
namespace {

std::vector<std::int64_t> batch_shape(const TensorSpec& spec, std::uint32_t count) {
  std::vector<std::int64_t> shape{count};
  shape.insert(shape.end(), spec.shape.begin(), spec.shape.end());
  return shape;
}

// "Float[1, 28, 28]", for messages
std::string describe(at::ScalarType type, at::IntArrayRef shape) {
  std::string text = std::string(at::toString(type)) + "[";
  for (std::size_t i = 0; i < shape.size(); ++i)
    text += (i == 0 ? "" : ",") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace

at::ScalarType scalar_type(DataType type) {
  switch (type) {
    case DataType::boolean:
      return at::kBool;
    case DataType::uint8:
      return at::kByte;
    case DataType::int8:
      return at::kChar;
    case DataType::int16:
      return at::kShort;
    case DataType::int32:
      return at::kInt;
    case DataType::int64:
      return at::kLong;
    case DataType::fp16:
      return at::kHalf;
    case DataType::bf16:
      return at::kBFloat16;
    case DataType::fp32:
      return at::kFloat;
    case DataType::fp64:
      return at::kDouble;
  }
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
    // LibTorch knows no tensor over constant memory; a model that writes into its input writes into
    // its own batch.
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
  // Libraries read several numbers at once.
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
    } else {
      inputs.emplace_back(at::zeros(shape, at::TensorOptions(type).device(device)));
    }
  }
  return inputs;
}

Result<std::vector<at::Tensor>> tensors_of(const c10::IValue& answer) {
  if (answer.isTensor()) return std::vector<at::Tensor>{answer.toTensor()};
  if (answer.isTensorList()) return answer.toTensorVector();
  std::vector<at::Tensor> tensors;
  if (answer.isTuple()) {
    for (const c10::IValue& element : answer.toTupleRef().elements()) {
      if (element.isTensor()) tensors.push_back(element.toTensor());
    }
    if (tensors.size() == answer.toTupleRef().elements().size()) return tensors;
  }
  return Status(StatusCode::invalid, "the model answers with a value of type " +
                                         answer.type()->repr_str() +
                                         "; must be a tensor, or a tuple or list of tensors");
}

Status check_outputs(const std::vector<TensorSpec>& specs, std::uint32_t count,
                     const std::vector<at::Tensor>& outputs) {
  if (specs.size() != outputs.size()) {
    return {StatusCode::invalid, "the model answers with " + std::to_string(outputs.size()) +
                                     " tensors, declared are " + std::to_string(specs.size()) +
                                     " outputs"};
  }
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const auto type = scalar_type(specs[i].type);
    const std::vector<std::int64_t> shape = batch_shape(specs[i], count);
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
    const at::Tensor ready = output.contiguous().cpu();
    std::memcpy(bytes.subspan(written, ready.nbytes()).data(), ready.data_ptr(), ready.nbytes());
    written += ready.nbytes();
  }
  return written;
}

std::string own_words(const std::exception& error) {
  constexpr std::size_t kMostCharacters = 400;
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  std::string_view text =
      torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  // The interpreter prints the model's own source first and what happened last.
  const bool interpreter = text.find("TorchScript interpreter") != std::string_view::npos;
  std::string_view sentence;
  while (!text.empty() && (sentence.empty() || interpreter)) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.find_first_not_of(" ~<-") != std::string_view::npos) sentence = line;
  }
  return std::string(sentence.substr(0, kMostCharacters));
}

Status input_at_fault(const std::string& own_words) {
  const bool has_digits =
      std::any_of(own_words.begin(), own_words.end(), [](char c) { return c >= '0' && c <= '9'; });
  // The interpreter gives every failure this class.
  constexpr std::string_view kClass = "RuntimeError: ";
  std::string_view words = own_words;
  if (words.starts_with(kClass)) words.remove_prefix(kClass.size());
  const std::string told = words.empty() || has_digits ? "" : " (" + std::string(words) + ")";
  return {StatusCode::invalid,
          "this input cannot be computed" + told +
              "; check that its values are in the range that the model takes, such as indices of "
              "its vocabulary"};
}

}  // namespace gpulet::executor
