// Replays: batches of the sizes that were warmed are taken down once, and then launched as a whole:
// what a network's many small kernels cost the CPU is paid once. What cannot be taken down (a
// network that looks at its own numbers while it runs) runs as it is. Used by one thread, under the
// stream that everything is replayed on. Functions throw what LibTorch throws.
#pragma once

#include <torch/script.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "executor/torch/cuda_parts.h"
#include "executor/torch/model.h"
#include "gpulet/core/status.h"

namespace gpulet::executor {

class Replays {
 public:
  using Capture = std::function<std::unique_ptr<CapturedWork>(const std::function<void()>& work)>;

  explicit Replays(Capture capture) : capture_(std::move(capture)) {}

  // Batches of these sizes, up to that one, may be taken down: powers of two, and `largest`.
  void allow(const LoadedModel& model, std::uint32_t largest) { largest_[&model] = largest; }
  // The model goes.
  void forget(const LoadedModel& model);
  // The stream goes: everything is taken down anew.
  void forget_work() { taken_.clear(); }

  // As executor::answers. The tensors are the caller's own. `may_take_down`: where there is nothing
  // to replay yet.
  [[nodiscard]] Result<std::vector<at::Tensor>> answers(const LoadedModel& model,
                                                        std::uint32_t count,
                                                        std::vector<c10::IValue> inputs,
                                                        bool may_take_down);

  [[nodiscard]] std::size_t size() const { return taken_.size(); }

 private:
  // Its tensors are where they were when it was taken down.
  struct Taken {
    std::vector<at::Tensor> inputs;
    std::vector<at::Tensor> outputs;
    std::unique_ptr<CapturedWork> work;
    std::size_t bytes = 0;
  };
  using Key = std::pair<const LoadedModel*, std::uint32_t>;

  [[nodiscard]] bool allowed(const LoadedModel& model, std::uint32_t count) const;
  // False, and no further attempt with this model, where it cannot be.
  [[nodiscard]] bool take_down(const LoadedModel& model, std::uint32_t count,
                               const std::vector<c10::IValue>& inputs,
                               const std::vector<at::Tensor>& expected);

  Capture capture_;
  std::map<const LoadedModel*, std::uint32_t> largest_;
  std::map<Key, Taken> taken_;
};

}  // namespace gpulet::executor
