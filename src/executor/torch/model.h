// TorchModel: a model in memory. Loading picks the fastest variant of its network that gives the
// right outputs; ModelCache shares loaded models between executors. A loaded model does not change,
// so several threads may run it at the same time. Functions throw what LibTorch throws.
#pragma once

#include <c10/core/Device.h>
#include <torch/script.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "executor/torch/conversions.h"
#include "executor/torch/package.h"
#include "gpulet/base/status.h"
#include "gpulet/core/tensor.h"
#include "gpulet/executor/executor.h"
#include "gpulet/partition/traits.h"

namespace gpulet::executor {

struct TorchNetwork {
  torch::jit::Module module;
  std::shared_ptr<TorchPackage> package{};  // in place of the module
  Numerics numerics{};                      // the numerics in which it computes
  bool changes_itself = false;  // it could not be frozen: a run may change its attributes
  bool writes_inputs = false;   // a run may change its inputs
};

struct TorchModel {
  std::string name;
  std::vector<TensorSpec> inputs;  // that clients send
  std::vector<TensorSpec> outputs;
  InputConversions conversions;          // of the inputs, to those that the network takes
  std::vector<std::size_t> input_sizes;  // bytes of one request's part of each tensor
  std::vector<std::size_t> output_sizes;
  std::uint32_t variant = 0;  // the result of Executor::load
  TorchNetwork network;
  std::vector<std::uint32_t> replayable_sizes;  // batches that CudaGraphCache may capture
};

// Runs a batch of `count` requests with the model's inputs, which it converts for the network. The
// outputs have the declared types and shapes, whatever the
// numerics of the network. Fails with internal (the whole message of LibTorch) or invalid (other
// outputs than declared).
[[nodiscard]] Result<std::vector<at::Tensor>> run_network(const TorchNetwork& network,
                                                          const TorchModel& model,
                                                          std::uint32_t count,
                                                          std::vector<c10::IValue> inputs);

// ---- loading

struct ExecutionTarget {
  c10::Device device;
  int threads = 1;  // inside one operation
};

// Loads the variant `request.variant`, or chooses the fastest one if that is not known, and runs a
// batch of one. Adds the times of its stages to `stages`. Fails as Executor::load.
[[nodiscard]] Result<TorchModel> load_model(const ModelToLoad& request,
                                            const ExecutionTarget& target,
                                            partition::LoadStages& stages);

// Executor::error_of, decoded from the variant.
[[nodiscard]] double error_of_variant(std::uint32_t variant);

struct WarmUp {
  std::uint32_t largest_batch = 1;  // that was run
  std::size_t peak_bytes = 0;       // estimate of the CPU tensors of a batch of max_batch
};
// For the CPU. Runs batches of 1, 2, 4, .. and the largest planned size (max_batch if none is
// planned): at least `min_sizes` sizes as far as that allows, then more while the next one, which
// is assumed to take twice the time of the last, fits the budget.
[[nodiscard]] Result<WarmUp> warm_up(const TorchModel& model, std::uint32_t min_sizes,
                                     std::span<const std::uint32_t> planned,
                                     std::uint32_t max_batch);

// Runs a batch of each of these sizes on this thread while a budget of seconds lasts, and at least
// one. Returns those that ran.
[[nodiscard]] Result<std::vector<std::uint32_t>> warm_up_sizes(const TorchModel& model,
                                                               std::span<const std::uint32_t> sizes,
                                                               const c10::Device& device);

// ---- sharing

// The loaded models of one device. A model that one executor holds is not loaded again. Any thread.
class ModelCache {
 public:
  using Load = std::function<Result<TorchModel>()>;

  // Returns the model of that file with these tensors and numerics. The first caller loads it;
  // concurrent callers wait. The cache keeps a model only while somebody holds it, and does not
  // share networks that change themselves. REQUIRES: a file does not change while a model of it is
  // held.
  [[nodiscard]] Result<std::shared_ptr<const TorchModel>> get(const ModelToLoad& request,
                                                              const Load& load);

 private:
  struct Entry {
    std::mutex loading;
    std::weak_ptr<const TorchModel> model;  // guarded by `loading`
  };
  std::shared_ptr<Entry> entry_of(const std::string& key);

  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Entry>> entries_;  // guarded by mutex_
};

}  // namespace gpulet::executor
