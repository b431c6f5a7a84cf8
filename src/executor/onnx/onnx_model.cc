#include "executor/onnx/onnx_model.h"

#include <algorithm>
#include <array>
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

// The failure of a call while a model is loaded.
Status failed_to_load(const OnnxLibrary& library, const OnnxFailure& failure) {
  switch (failure.code) {
    case abi::ErrorCode::no_such_file:
      return {StatusCode::not_found, failure.message};
    case abi::ErrorCode::runtime_exception:
    case abi::ErrorCode::engine_error:
    case abi::ErrorCode::provider_fail:
      return {StatusCode::internal, failure.message};
    default:
      return invalid(failure.message + "; export it again, with operators that ONNX Runtime " +
                     library.version() + " has");
  }
}

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

std::vector<std::byte> sample_of(DataType type, std::size_t bytes) {
  std::vector<std::byte> sample(bytes);
  if (type == DataType::fp32) fill_rising<float>(sample);
  if (type == DataType::fp64) fill_rising<double>(sample);
  return sample;
}

bool aligned(const std::byte* bytes, DataType type) {
  // Strings are copied one by one.
  return type == DataType::bytes || reinterpret_cast<std::uintptr_t>(bytes) % byte_size(type) == 0;
}

// ---- options of a session

class SessionOptions {
 public:
  SessionOptions(const OnnxLibrary& library, OnnxFailure& failure)
      : library_(library),
        failure_(failure),
        options_(library.make(abi::kReleaseSessionOptions, failure, abi::kCreateSessionOptions)) {}

  template <typename... Parameters, typename... Arguments>
  void set(abi::Member<abi::Failure*(Parameters...)> member, Arguments... arguments) {
    if (failure_.ok()) failure_ = library_.attempt(member, options_.get(), arguments...);
  }

  void use_gpu(std::uint32_t gpu) {
    if (!failure_.ok()) return;
    const auto cuda = library_.make(abi::kReleaseCudaOptions, failure_, abi::kCreateCudaOptions);
    const std::string number = std::to_string(gpu);
    const std::array<const char*, 1> keys{"device_id"};
    const std::array<const char*, 1> values{number.c_str()};
    if (failure_.ok()) {
      failure_ = library_.attempt(abi::kSetCudaOptions, cuda.get(), keys.data(), values.data(),
                                  keys.size());
    }
    set(abi::kUseCuda, cuda.get());
  }

  [[nodiscard]] const abi::SessionOptions* get() const { return options_.get(); }

 private:
  const OnnxLibrary& library_;
  OnnxFailure& failure_;
  OnnxHandle<abi::SessionOptions> options_;
};

Result<OnnxHandle<abi::Session>> open_session(const OnnxLibrary& library,
                                              const std::filesystem::path& file,
                                              const OnnxTarget& target) {
  OnnxFailure failure;
  SessionOptions options(library, failure);
  options.set(abi::kSetOptimizations, abi::kAllOptimizations);
  options.set(abi::kSetThreadsInside, target.threads);
  options.set(abi::kSetThreadsAcross, 1);
  options.set(abi::kSetOption, "session.intra_op.allow_spinning", target.spins ? "1" : "0");
  options.set(abi::kSetOption, "session.force_spinning_stop", "1");
  if (failure.ok() && target.gpu) {
    options.use_gpu(*target.gpu);
    if (!failure.ok()) {
      return Status(StatusCode::internal,
                    "this ONNX Runtime cannot use the GPU (" + failure.message +
                        "); install one with the CUDA execution provider, or serve on the CPU");
    }
  }
  if (!failure.ok()) return Status(StatusCode::internal, failure.message);
  auto session = library.make(abi::kReleaseSession, failure, abi::kCreateSession,
                              library.environment(), file.c_str(), options.get());
  if (!failure.ok()) return failed_to_load(library, failure);
  return session;
}

}  // namespace

Result<OnnxModel> OnnxModel::load(const OnnxLibrary& library, const ModelToLoad& request,
                                  const OnnxTarget& target) {
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
  auto session = open_session(library, request.file, target);
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
    memory.push_back(sample_of(inputs_.specs[i].type, inputs_.sizes[i] * count));
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
