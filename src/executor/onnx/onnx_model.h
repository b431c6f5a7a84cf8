// OnnxModel: the session of ONNX Runtime over its file, and the tensors that it takes and gives.
// Movable; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "executor/onnx/onnx_library.h"
#include "executor/onnx/onnx_sessions.h"
#include "gpulet/base/status.h"
#include "gpulet/core/tensor.h"
#include "gpulet/executor/executor.h"

namespace gpulet::executor {

// The tensors of one side of a model, in the order of the declaration.
struct OnnxTensors {
  std::vector<TensorSpec> specs;
  std::vector<std::size_t> sizes;  // bytes of one request's part of each
  std::vector<const char*> names;  // of `specs`, which must not change any more
};

// How a batch ended.
struct OnnxOutcome {
  OnnxFailure failure{};
  Status strings{};         // of the outputs; invalid: they do not fit what is declared
  std::size_t written = 0;  // bytes; where both are ok
};

class OnnxModel {
 public:
  // Opens the file as Executor::load. Runs nothing.
  [[nodiscard]] static Result<OnnxModel> load(const OnnxLibrary& library,
                                              const ModelToLoad& request, OnnxSessions& sessions);

  [[nodiscard]] const OnnxTensors& inputs() const { return inputs_; }
  [[nodiscard]] const OnnxTensors& outputs() const { return outputs_; }

  // Runs a batch of sample inputs and compares its outputs with the declared ones. Fails with
  // invalid: the file is at fault.
  [[nodiscard]] Status run_sample(std::uint32_t count) const;
  // Runs a batch into its output. REQUIRES: check_sizes().
  [[nodiscard]] OnnxOutcome run(std::uint32_t count, std::span<const std::byte> input,
                                std::span<std::byte> output) const;

 private:
  OnnxModel(const OnnxLibrary& library, std::shared_ptr<onnx_abi::Session> session,
            OnnxHandle<onnx_abi::MemoryInfo> memory)
      : library_(&library), session_(std::move(session)), memory_(std::move(memory)) {}

  using Value = OnnxHandle<onnx_abi::Value>;
  [[nodiscard]] OnnxFailure wrap(const OnnxTensors& tensors, std::size_t index, std::uint32_t count,
                                 std::span<std::byte> bytes, std::vector<Value>& values) const;
  // The library makes strings; all other outputs are written in place.
  [[nodiscard]] Status store_strings(std::uint32_t count, const std::vector<Value>& results,
                                     std::span<std::byte> output) const;
  [[nodiscard]] OnnxFailure wrap_sample(std::uint32_t count,
                                        std::vector<std::vector<std::byte>>& memory,
                                        std::vector<Value>& values) const;
  [[nodiscard]] OnnxFailure run(const std::vector<Value>& inputs,
                                std::vector<onnx_abi::Value*>& outputs) const;
  [[nodiscard]] Status check_output(std::size_t index, std::uint32_t count,
                                    const onnx_abi::Value* value) const;

  const OnnxLibrary* library_;
  std::shared_ptr<onnx_abi::Session> session_;
  OnnxHandle<onnx_abi::MemoryInfo> memory_;
  OnnxTensors inputs_;
  OnnxTensors outputs_;
};

}  // namespace gpulet::executor
