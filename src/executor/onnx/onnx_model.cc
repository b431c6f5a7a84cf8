#include "executor/onnx/onnx_model.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "executor/onnx/onnx_strings.h"
#include "gpulet/config/onnx_signature.h"
#include "gpulet/core/bytes_tensor.h"

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

std::vector<std::int64_t> batch_shape(const TensorSpec& spec, std::uint32_t count) {
  std::vector<std::int64_t> shape{count};
  shape.insert(shape.end(), spec.shape.begin(), spec.shape.end());
  return shape;
}

// "[2,28,28]"
std::string to_string(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t size : shape) text += (text.empty() ? "" : ",") + std::to_string(size);
  return "[" + text + "]";
}

Status invalid(const std::string& message) { return {StatusCode::invalid, message}; }

Result<OnnxTensors> tensors_of(const std::vector<TensorSpec>& specs) {
  Result<std::vector<std::size_t>> sizes = tensor_sizes(specs);
  if (!sizes.ok()) return sizes.status();
  OnnxTensors tensors{.specs = specs, .sizes = std::move(sizes).value(), .names = {}};
  for (const TensorSpec& spec : tensors.specs) tensors.names.push_back(spec.name.c_str());
  return tensors;
}

// Rising from 0 to 1 in floating-point numbers, 0 in others.
template <typename Number>
void fill_rising(std::span<std::byte> bytes) {
  const std::size_t numbers = bytes.size() / sizeof(Number);
  for (std::size_t i = 0; i < numbers; ++i) {
    const auto number = static_cast<Number>(static_cast<double>(i) / static_cast<double>(numbers));
    std::memcpy(bytes.data() + i * sizeof number, &number, sizeof number);
  }
}

// Slots whose elements are "0", or empty where the slot has no room: text to most models, and a
// number to those that parse one.
std::vector<std::byte> sample_slots(const TensorSpec& spec, std::uint32_t count) {
  const std::size_t elements = element_count(spec);
  const bool fits = spec.max_bytes / elements > byte_size(spec.type);
  std::string slot;
  for (std::size_t i = 0; i < elements; ++i) append_element(slot, fits ? "0" : "");
  slot.resize(spec.max_bytes, '\0');
  std::vector<std::byte> slots;
  const auto bytes = std::as_bytes(std::span(slot));
  for (std::uint32_t i = 0; i < count; ++i) slots.insert(slots.end(), bytes.begin(), bytes.end());
  return slots;
}

std::vector<std::byte> sample_of(const TensorSpec& spec, std::size_t bytes, std::uint32_t count) {
  if (spec.type == DataType::bytes) return sample_slots(spec, count);
  std::vector<std::byte> sample(bytes * count);
  if (spec.type == DataType::fp32) fill_rising<float>(sample);
  if (spec.type == DataType::fp64) fill_rising<double>(sample);
  return sample;
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
  Result<OnnxTensors> inputs = tensors_of(request.inputs);
  if (!inputs.ok()) return inputs.status();
  Result<OnnxTensors> outputs = tensors_of(request.outputs);
  if (!outputs.ok()) return outputs.status();
  const auto signature = config::read_onnx_signature(request.file);
  if (!signature.ok()) return signature.status();
  if (Status declared = config::check_declared(signature.value(), request.inputs, request.outputs,
                                               std::max(1U, request.max_batch));
      !declared.ok())
    return declared;
  auto session = sessions.open(library, request.file);
  if (!session.ok()) return session.status();
  OnnxFailure failure;
  auto memory = library.make(abi::kReleaseMemory, failure, abi::kCpuMemory, abi::kDeviceAllocator,
                             abi::kDefaultMemory);
  if (!failure.ok()) return Status(StatusCode::internal, failure.message);
  OnnxModel model(library, std::move(session).value(), std::move(memory));
  model.inputs_ = std::move(inputs).value();
  model.outputs_ = std::move(outputs).value();
  return model;
}

// ---- running

OnnxFailure OnnxModel::wrap(const OnnxTensors& tensors, std::size_t index, std::uint32_t count,
                            std::span<std::byte> bytes, std::vector<Value>& values) const {
  const TensorSpec& spec = tensors.specs[index];
  const std::vector<std::int64_t> shape = batch_shape(spec, count);
  OnnxFailure failure;
  if (spec.type == DataType::bytes) {
    values.push_back(strings_of_slots(*library_, failure, spec, count, bytes));
    return failure;
  }
  values.push_back(library_->make(abi::kReleaseValue, failure, abi::kCreateTensor, memory_.get(),
                                  static_cast<void*>(bytes.data()), bytes.size(), shape.data(),
                                  shape.size(), element_type(spec.type)));
  return failure;
}

OnnxFailure OnnxModel::run(const std::vector<Value>& inputs,
                           std::vector<abi::Value*>& outputs) const {
  std::vector<const abi::Value*> given;
  given.reserve(inputs.size());
  for (const Value& input : inputs) given.push_back(input.get());
  return library_->attempt(abi::kRun, session_.get(), nullptr, inputs_.names.data(), given.data(),
                           given.size(), outputs_.names.data(), outputs.size(), outputs.data());
}

OnnxFailure OnnxModel::wrap_sample(std::uint32_t count, std::vector<std::vector<std::byte>>& memory,
                                   std::vector<Value>& values) const {
  OnnxFailure failure;
  for (std::size_t i = 0; i < inputs_.specs.size() && failure.ok(); ++i) {
    memory.push_back(sample_of(inputs_.specs[i], inputs_.sizes[i], count));
    failure = wrap(inputs_, i, count, memory.back(), values);
  }
  return failure;
}

Status OnnxModel::check_output(std::size_t index, std::uint32_t count,
                               const abi::Value* value) const {
  OnnxFailure failure;
  const auto tensor = library_->make(abi::kReleaseTensor, failure, abi::kTensorOfValue, value);
  int type = 0;
  std::vector<std::int64_t> shape;
  std::size_t dimensions = 0;
  if (failure.ok()) failure = library_->attempt(abi::kElementType, tensor.get(), &type);
  if (failure.ok()) failure = library_->attempt(abi::kDimensionCount, tensor.get(), &dimensions);
  if (failure.ok()) {
    shape.resize(dimensions);
    failure = library_->attempt(abi::kDimensions, tensor.get(), shape.data(), dimensions);
  }
  if (!failure.ok()) return invalid(failure.message);
  const TensorSpec& spec = outputs_.specs[index];
  const std::vector<std::int64_t> expected = batch_shape(spec, count);
  if (type == element_type(spec.type) && shape == expected) return {};
  const auto found = config::data_type_of(type);
  return invalid("output '" + spec.name + "' of a batch of " + std::to_string(count) + " is " +
                 std::string(found ? gpulet::to_string(*found) : "of another type") +
                 to_string(shape) + ", but it is declared as " + gpulet::to_string(spec) +
                 " of one request, which makes " + std::string(gpulet::to_string(spec.type)) +
                 to_string(expected));
}

Status OnnxModel::run_sample(std::uint32_t count) const {
  std::vector<std::vector<std::byte>> memory;
  std::vector<Value> inputs;
  OnnxFailure failure = wrap_sample(count, memory, inputs);
  std::vector<abi::Value*> outputs(outputs_.specs.size(), nullptr);  // the library makes them
  if (failure.ok()) failure = run(inputs, outputs);
  std::vector<Value> owned;
  owned.reserve(outputs.size());
  for (abi::Value* const output : outputs)
    owned.push_back(library_->own(abi::kReleaseValue, output));
  if (!failure.ok()) {
    return invalid("does not run on a batch of " + std::to_string(count) +
                   " with the declared inputs: " + failure.message);
  }
  for (std::size_t i = 0; i < owned.size(); ++i) {
    if (Status status = check_output(i, count, owned[i].get()); !status.ok()) return status;
  }
  return {};
}

Status OnnxModel::store_strings(std::uint32_t count, const std::vector<Value>& results,
                                std::span<std::byte> output) const {
  std::size_t begin = 0;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const auto slots = output.subspan(begin, outputs_.sizes[i] * count);
    begin += slots.size();
    const TensorSpec& spec = outputs_.specs[i];
    if (spec.type != DataType::bytes) continue;
    // Loading has checked samples only.
    Status stored = check_output(i, count, results[i].get());
    if (stored.ok()) stored = strings_to_slots(*library_, spec, count, results[i].get(), slots);
    if (!stored.ok()) return stored;
  }
  return {};
}

OnnxOutcome OnnxModel::run(std::uint32_t count, std::span<const std::byte> input,
                           std::span<std::byte> output) const {
  OnnxOutcome outcome;
  OnnxFailure& failure = outcome.failure;
  std::vector<std::vector<std::byte>> copies;  // of unaligned inputs
  std::vector<Value> values;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < inputs_.specs.size() && failure.ok(); ++i) {
    const auto given = input.subspan(begin, inputs_.sizes[i] * count);
    begin += given.size();
    // The library has no tensors over constant memory; a session does not write to its inputs.
    std::span<std::byte> bytes(
        const_cast<std::byte*>(given.data()),  // NOLINT(cppcoreguidelines-pro-type-const-cast)
        given.size());
    if (!aligned(bytes.data(), inputs_.specs[i].type))
      bytes = copies.emplace_back(given.begin(), given.end());
    failure = wrap(inputs_, i, count, bytes, values);
  }

  struct Copy {
    std::span<std::byte> target;
    std::vector<std::byte> bytes;
  };
  std::vector<Copy> unaligned;
  unaligned.reserve(outputs_.specs.size());
  std::vector<Value> results;
  begin = 0;
  for (std::size_t i = 0; i < outputs_.specs.size() && failure.ok(); ++i) {
    std::span<std::byte> bytes = output.subspan(begin, outputs_.sizes[i] * count);
    begin += bytes.size();
    if (!aligned(bytes.data(), outputs_.specs[i].type)) {
      unaligned.push_back({bytes, std::vector<std::byte>(bytes.size())});
      bytes = unaligned.back().bytes;
    }
    if (outputs_.specs[i].type == DataType::bytes) {
      results.push_back(library_->own<abi::Value>(abi::kReleaseValue, nullptr));
    } else {
      failure = wrap(outputs_, i, count, bytes, results);
    }
  }
  std::vector<abi::Value*> places;
  for (const Value& result : results) places.push_back(result.get());
  if (failure.ok()) failure = run(values, places);
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (results[i] == nullptr) results[i] = library_->own(abi::kReleaseValue, places[i]);
  }
  if (!failure.ok()) return outcome;
  for (const Copy& copy : unaligned)
    std::copy(copy.bytes.begin(), copy.bytes.end(), copy.target.begin());
  outcome.strings = store_strings(count, results, output);
  outcome.written = begin;
  return outcome;
}

}  // namespace gpulet::executor
