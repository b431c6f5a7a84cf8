#include "executor/onnx/onnx_model.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "executor/onnx/onnx_strings.h"
#include "gpulet/config/onnx_signature.h"

namespace gpulet::executor {
namespace {

namespace abi = onnx_abi;

// The number of the type in ONNX (config/onnx_signature.h).
int element_type(DataType type) {
  constexpr int kTypes = 32;
  for (int number = 1; number < kTypes; ++number) {
    if (config::data_type_of(number) == type) return number;
  }
  throw std::invalid_argument("a tensor's type is out of range");
}

// "[2,28,28]"
std::string to_string(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t size : shape) text += (text.empty() ? "" : ",") + std::to_string(size);
  return "[" + text + "]";
}

Status invalid(const std::string& message) { return {StatusCode::invalid, message}; }

Result<OnnxTensors> tensors_of(const std::vector<TensorSpec>& specs) {
  GPULET_TRY(std::vector<std::size_t> sizes, tensor_sizes(specs));
  OnnxTensors tensors{.specs = specs, .sizes = std::move(sizes), .names = {}};
  for (const TensorSpec& spec : tensors.specs) tensors.names.push_back(spec.name.c_str());
  return tensors;
}

bool aligned(const std::byte* bytes, DataType type) {
  // Strings are copied one by one.
  return type == DataType::bytes || reinterpret_cast<std::uintptr_t>(bytes) % byte_size(type) == 0;
}

}  // namespace

Result<OnnxModel> OnnxModel::load(const OnnxLibrary& library, const ModelToLoad& request,
                                  OnnxSessions& sessions) {
  if (request.numerics.precision != Precision::full || request.numerics.channels_last) {
    return invalid(R"(an ONNX model computes in the numbers of its file; remove "precision" and )"
                   R"("memory_format" from its entry, or export it in those numbers)");
  }
  if (Status one = check_whole(request); !one.ok()) return one;
  GPULET_TRY(const auto signature, config::read_onnx_signature(request.file));
  if (Status declared = config::check_declared(signature, request.inputs, request.outputs,
                                               std::max(1U, request.max_batch));
      !declared.ok())
    return declared;
  GPULET_TRY(OnnxModel model, open(library, request, sessions));
  model.random_ = signature.random;
  return model;
}

Result<OnnxModel> OnnxModel::open(const OnnxLibrary& library, const ModelToLoad& request,
                                  OnnxSessions& sessions) {
  GPULET_TRY(OnnxTensors inputs, tensors_of(request.inputs));
  GPULET_TRY(OnnxTensors outputs, tensors_of(request.outputs));
  GPULET_TRY(auto converters, converters_of(request.inputs));
  GPULET_TRY(auto session, sessions.open(library, request.file));
  OnnxFailure failure;
  auto memory = library.make(abi::kReleaseMemory, failure, abi::kCpuMemory, abi::kDeviceAllocator,
                             abi::kDefaultMemory);
  if (!failure.ok()) return Status(StatusCode::internal, failure.message);
  OnnxModel model(library, std::move(session), std::move(memory));
  model.inputs_ = std::move(inputs);
  model.taken_ = model_inputs(model.inputs_.specs);
  model.converters_ = std::move(converters);
  model.outputs_ = std::move(outputs);
  return model;
}

// ---- running

std::span<std::byte> OnnxModel::readable(std::size_t index, std::span<const std::byte> given,
                                         std::vector<Memory>& copies) const {
  const auto copy_of = [&copies](std::size_t bytes) {
    copies.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes));
    return std::span(copies.back().get(), bytes);
  };
  if (const auto& converter = converters_[index]) {
    const auto numbers = copy_of(given.size() / inputs_.sizes[index] * converter->model_bytes());
    converter->convert(given, numbers);
    return numbers;
  }
  if (!aligned(given.data(), inputs_.specs[index].type)) {
    const auto bytes = copy_of(given.size());
    std::memcpy(bytes.data(), given.data(), given.size());
    return bytes;
  }
  // The library has no tensors over constant memory; a session does not write to its inputs.
  return {const_cast<std::byte*>(given.data()),  // NOLINT(cppcoreguidelines-pro-type-const-cast)
          given.size()};
}

OnnxFailure OnnxModel::wrap_inputs(std::uint32_t count, std::span<const std::byte> input,
                                   std::vector<Memory>& copies, std::vector<Value>& values) const {
  OnnxFailure failure;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < taken_.size() && failure.ok(); ++i) {
    const TensorSpec& spec = taken_[i];
    const auto given = input.subspan(begin, inputs_.sizes[i] * count);
    begin += given.size();
    if (spec.type == DataType::bytes) {
      values.push_back(strings_of_slots(*library_, failure, spec, count, given));
      continue;
    }
    const std::span<std::byte> bytes = readable(i, given, copies);
    const std::vector<std::int64_t> shape = batch_shape(spec, count);
    values.push_back(library_->make(abi::kReleaseValue, failure, abi::kCreateTensor, memory_.get(),
                                    static_cast<void*>(bytes.data()), bytes.size(), shape.data(),
                                    shape.size(), element_type(spec.type)));
  }
  return failure;
}

OnnxFailure OnnxModel::compute(const std::vector<Value>& inputs,
                               std::vector<Value>& outputs) const {
  std::vector<const abi::Value*> given;
  given.reserve(inputs.size());
  for (const Value& input : inputs) given.push_back(input.get());
  std::vector<abi::Value*> made(outputs_.specs.size(), nullptr);
  OnnxFailure failure =
      library_->attempt(abi::kRun, session_.get(), nullptr, inputs_.names.data(), given.data(),
                        given.size(), outputs_.names.data(), made.size(), made.data());
  for (abi::Value* const output : made)
    outputs.push_back(library_->own(abi::kReleaseValue, output));
  return failure;
}

Result<OnnxModel::Found> OnnxModel::found(const std::string& which, const abi::Value* value) const {
  int is_tensor = 0;
  OnnxFailure failure;
  if (value != nullptr) failure = library_->attempt(abi::kIsTensor, value, &is_tensor);
  if (failure.ok() && is_tensor == 0) return invalid(which + " is not a tensor");
  if (!failure.ok()) return invalid(failure.message);
  const auto tensor = library_->make(abi::kReleaseTensor, failure, abi::kTensorOfValue, value);
  Found found;
  std::size_t dimensions = 0;
  if (failure.ok()) failure = library_->attempt(abi::kElementType, tensor.get(), &found.type);
  if (failure.ok()) failure = library_->attempt(abi::kDimensionCount, tensor.get(), &dimensions);
  if (failure.ok()) {
    found.shape.resize(dimensions);
    failure = library_->attempt(abi::kDimensions, tensor.get(), found.shape.data(), dimensions);
  }
  if (!failure.ok()) return invalid(failure.message);
  return found;
}

Status OnnxModel::check_output(std::size_t index, std::uint32_t count,
                               const abi::Value* value) const {
  const std::string which =
      "output '" + outputs_.specs[index].name + "' of a batch of " + std::to_string(count);
  GPULET_TRY(const auto output, found(which, value));
  const TensorSpec& spec = outputs_.specs[index];
  const std::vector<std::int64_t> expected = batch_shape(spec, count);
  if (output.type == element_type(spec.type) && output.shape == expected) return {};
  const auto type = config::data_type_of(output.type);
  return invalid(which + " is " + std::string(type ? gpulet::to_string(*type) : "of another type") +
                 to_string(output.shape) + "; expected is " +
                 std::string(gpulet::to_string(spec.type)) + to_string(expected) +
                 ", because one request has " + gpulet::to_string(spec) +
                 (spec.whole ? " without a batch dimension" : "") +
                 " (the model's entry, or what gpulet serve made of the file and --shape); correct "
                 "that shape, or, where the values of the input decide the size, export a model "
                 "that fills it up to one size");
}

Status OnnxModel::store(std::size_t index, std::uint32_t count, abi::Value* value,
                        std::span<std::byte> to) const {
  const TensorSpec& spec = outputs_.specs[index];
  if (spec.type == DataType::bytes) return strings_to_slots(*library_, spec, count, value, to);
  void* bytes = nullptr;
  if (const OnnxFailure failure = library_->attempt(abi::kTensorBytes, value, &bytes);
      !failure.ok())
    return {StatusCode::internal, failure.message};
  std::memcpy(to.data(), bytes, to.size());
  return {};
}

OnnxOutcome OnnxModel::run(std::uint32_t count, std::span<const std::byte> input,
                           std::span<std::byte> output) const {
  OnnxOutcome outcome;
  std::vector<Memory> copies;
  std::vector<Value> inputs;
  std::vector<Value> outputs;
  outcome.failure = wrap_inputs(count, input, copies, inputs);
  if (outcome.failure.ok()) outcome.failure = compute(inputs, outputs);
  if (!outcome.failure.ok()) return outcome;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    // Loading has checked samples only.
    outcome.shapes = check_output(i, count, outputs[i].get());
    if (!outcome.shapes.ok()) return outcome;
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto to = output.subspan(outcome.written, outputs_.sizes[i] * count);
    outcome.strings = store(i, count, outputs[i].get(), to);
    if (!outcome.strings.ok()) return outcome;
    outcome.written += to.size();
  }
  return outcome;
}

Result<std::vector<std::vector<std::int64_t>>> OnnxModel::output_shapes(
    std::span<const std::byte> input) const {
  std::vector<Memory> copies;
  std::vector<Value> inputs;
  std::vector<Value> outputs;
  OnnxFailure failure = wrap_inputs(1, input, copies, inputs);
  if (failure.ok()) failure = compute(inputs, outputs);
  if (!failure.ok()) return invalid(failure.message);
  std::vector<std::vector<std::int64_t>> shapes;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    GPULET_TRY(auto output, found("output '" + outputs_.specs[i].name + "'", outputs[i].get()));
    shapes.push_back(std::move(output.shape));
  }
  return shapes;
}

}  // namespace gpulet::executor
