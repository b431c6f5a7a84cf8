// OnnxModel: the session of ONNX Runtime over its file, and the tensors that it takes and gives.
// Movable; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "executor/input_converter.h"
#include "executor/onnx/onnx_library.h"
#include "executor/onnx/onnx_sessions.h"
#include "gpulet/base/status.h"
#include "gpulet/core/tensor.h"
#include "gpulet/executor/executor.h"

namespace gpulet::executor {

// The tensors of one side of a model, in the order of the declaration. Of inputs those that clients
// send (InputConversion).
struct OnnxTensors {
  std::vector<TensorSpec> specs;
  std::vector<std::size_t> sizes;  // bytes of one request's part of each
  std::vector<const char*> names;  // of `specs`, which must not change any more
};

// How a batch ended.
struct OnnxOutcome {
  OnnxFailure failure{};    // of the library
  Status shapes{};          // invalid: the outputs have other types or shapes than declared
  Status strings{};         // invalid: those of an output have more bytes than declared
  std::size_t written = 0;  // bytes; where all of these are ok
};

class OnnxModel {
 public:
  // Opens the file as Executor::load. Runs nothing.
  [[nodiscard]] static Result<OnnxModel> load(const OnnxLibrary& library,
                                              const ModelToLoad& request, OnnxSessions& sessions);
  // The same for a model of whose outputs only the names are known.
  [[nodiscard]] static Result<OnnxModel> open(const OnnxLibrary& library,
                                              const ModelToLoad& request, OnnxSessions& sessions);

  [[nodiscard]] const OnnxTensors& inputs() const { return inputs_; }
  [[nodiscard]] const OnnxTensors& outputs() const { return outputs_; }
  // Whether its outputs may have random numbers in them.
  [[nodiscard]] bool random() const { return random_; }

  // Runs a batch into its output. The library makes the outputs, and each is checked before it is
  // copied: it need not write where it is told to, for example not where an output of the graph is
  // one of its inputs. So all bytes of `output` up to `written` belong to this batch. REQUIRES:
  // check_sizes().
  [[nodiscard]] OnnxOutcome run(std::uint32_t count, std::span<const std::byte> input,
                                std::span<std::byte> output) const;

  // Runs a batch of one and returns the shapes of its outputs with all dimensions, whatever is
  // declared. Fails with invalid where the library does not compute it, or an output is no tensor.
  [[nodiscard]] Result<std::vector<std::vector<std::int64_t>>> output_shapes(
      std::span<const std::byte> input) const;

 private:
  OnnxModel(const OnnxLibrary& library, std::shared_ptr<onnx_abi::Session> session,
            OnnxHandle<onnx_abi::MemoryInfo> memory)
      : library_(&library), session_(std::move(session)), memory_(std::move(memory)) {}

  using Value = OnnxHandle<onnx_abi::Value>;
  using Memory = std::unique_ptr<std::byte[]>;
  // The inputs of a batch. `copies` keeps those that are converted or not aligned; both must
  // outlive the values.
  [[nodiscard]] OnnxFailure wrap_inputs(std::uint32_t count, std::span<const std::byte> input,
                                        std::vector<Memory>& copies,
                                        std::vector<Value>& values) const;
  // The numbers of an input where the library can use them: `given`, or a copy.
  [[nodiscard]] std::span<std::byte> readable(std::size_t index, std::span<const std::byte> given,
                                              std::vector<Memory>& copies) const;
  // The outputs of the library, one for each declared one.
  [[nodiscard]] OnnxFailure compute(const std::vector<Value>& inputs,
                                    std::vector<Value>& outputs) const;
  // An output as the library has it. Fails with invalid where it is no tensor.
  struct Found {
    int type = 0;
    std::vector<std::int64_t> shape{};
  };
  [[nodiscard]] Result<Found> found(const std::string& which, const onnx_abi::Value* value) const;
  [[nodiscard]] Status check_output(std::size_t index, std::uint32_t count,
                                    const onnx_abi::Value* value) const;
  [[nodiscard]] Status store(std::size_t index, std::uint32_t count, onnx_abi::Value* value,
                             std::span<std::byte> to) const;

  const OnnxLibrary* library_;
  std::shared_ptr<onnx_abi::Session> session_;
  OnnxHandle<onnx_abi::MemoryInfo> memory_;
  OnnxTensors inputs_;
  std::vector<TensorSpec> taken_;                          // what the model takes in their place
  std::vector<std::optional<InputConverter>> converters_;  // by input
  OnnxTensors outputs_;
  bool random_ = false;
};

}  // namespace gpulet::executor
