// TorchExecutor: runs TorchScript models with LibTorch.
//
// One per process: it sets LibTorch's threads (OMP_NUM_THREADS of the environment inside one
// operation, 1 where that is not set; one operation at a time) and, on the CPU, its execution mode
// and the C library's handling of freed memory. Inputs are used where they lie, outputs are copied
// once into place. Used by one thread. No LibTorch header is needed to use it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "gpulet/executor/executor.h"

namespace gpulet::executor {

class TorchExecutor final : public Executor {
 public:
  // `device` as LibTorch writes it: "cpu", "cuda", "cuda:0". Throws std::invalid_argument on any
  // other text.
  explicit TorchExecutor(const std::string& device = "cpu");
  ~TorchExecutor() override;
  TorchExecutor(const TorchExecutor&) = delete;
  TorchExecutor& operator=(const TorchExecutor&) = delete;

  // Freezes the model and keeps the faster of two forms of it: as frozen, or further rewritten by
  // LibTorch's optimize_for_inference, which gains up to 45 % on some networks and costs up to 30 %
  // on others; the second only where it answers the same. Both are timed here, on this machine and
  // this share, with batches of one.
  //
  // Then runs batches of 1, 2, 4, .. max_batch, as many of them as fit two seconds by the time that
  // the smaller ones took: the first batch of a size costs 5 to 30 % more, and a proxy that is not
  // ready yet costs everybody.
  //
  // Replaces a model of the same name once all this is done.
  // Fails with not_found (no such file) or invalid (not TorchScript, does not run on the declared
  // inputs, answers with other outputs than declared, does not take any batch size); the message
  // names the file and the difference.
  [[nodiscard]] Status load(const ModelToLoad& model) override;

  [[nodiscard]] Result<std::size_t> run(const BatchToRun& batch) override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpulet::executor
