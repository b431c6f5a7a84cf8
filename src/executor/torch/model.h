// A model as it is in memory: its network in one of its forms, and what is declared of it. Nothing
// of it changes once it is loaded, so that threads may run it at the same time. Functions throw
// what LibTorch throws.
#pragma once

#include <torch/script.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gpulet/core/numerics.h"
#include "gpulet/core/status.h"
#include "gpulet/core/tensor.h"
#include "gpulet/executor/executor.h"

namespace gpulet::executor {

struct Network {
  torch::jit::Module module;
  Numerics numerics{};          // as it computes here
  bool changes_itself = false;  // it could not be frozen: a run may leave something behind in it
};

struct LoadedModel {
  std::string name;
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  std::vector<std::size_t> input_sizes;  // bytes of one request's part of each
  std::vector<std::size_t> output_sizes;
  std::uint32_t form = 0;  // Executor::load's
  Network network;
};

// What is declared of it, and no network yet. Fails with invalid where a shape has no size.
[[nodiscard]] Result<LoadedModel> declared(const ModelToLoad& request);

// The answers to a batch of `count`, which must be as declared: in their types, whatever the
// network computes in. Fails with internal (LibTorch's own words) or invalid (other outputs than
// declared).
[[nodiscard]] Result<std::vector<at::Tensor>> answers(const Network& network,
                                                      const LoadedModel& model, std::uint32_t count,
                                                      std::vector<c10::IValue> inputs);

// The same for a sample batch, told as what is wrong with the file.
[[nodiscard]] Result<std::vector<at::Tensor>> try_batch(const Network& network,
                                                        const LoadedModel& model,
                                                        std::uint32_t count,
                                                        const c10::Device& device);

}  // namespace gpulet::executor
