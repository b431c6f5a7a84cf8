// TorchExecutor: runs TorchScript models with LibTorch.
//
// One per process: it sets LibTorch's and OpenBLAS's threads (OMP_NUM_THREADS of the environment
// inside one operation, 1 where that is not set; one operation at a time) and, on the CPU, its
// execution mode and the C library's handling of freed memory. Inputs are used where they lie,
// outputs are copied once into place. On a GPU copies of
// one batch overlap the execution of another, and who waits sleeps. Used by one thread. No LibTorch
// header is needed to use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "gpulet/executor/executor.h"

namespace gpulet::executor {

// What the first use of LibTorch costs a process on the CPU, as far as it depends on no share and
// no model: 20 ms of finding operators and making the first kernels, and 64 MB of heap that the
// kernel maps in advance. No second thread exists afterwards. May throw what LibTorch throws.
void prepare_torch();

class TorchExecutor final : public Executor {
 public:
  // `device` as LibTorch writes it: "cpu", "cuda", "cuda:0". Throws std::invalid_argument on any
  // other text.
  explicit TorchExecutor(const std::string& device = "cpu");
  ~TorchExecutor() override;
  TorchExecutor(const TorchExecutor&) = delete;
  TorchExecutor& operator=(const TorchExecutor&) = delete;

  // On a GPU it is registered with the driver.
  void use_memory(std::span<std::byte> memory) override;

  // Of a GPU: held where an MPS daemon has this process or it has a MIG instance, and the SMs it
  // may use.
  [[nodiscard]] Result<partition::FoundShare> found_share() override;
  [[nodiscard]] partition::DeviceHealth health() const override;

  // Freezes the model and keeps the faster of two forms of it: as frozen, or further rewritten by
  // LibTorch's optimize_for_inference, which gains up to 45 % on some networks and costs up to 30 %
  // on others; the second only where it answers the same. Both are timed here, on this machine,
  // with batches of one. Where `form` tells which one an earlier load() has found, that one alone
  // is made: a third to a half of the work.
  //
  // Then runs batches of 1, 2, 4, .. max_batch, as many of them as fit a fifth of a second by the
  // time that the smaller ones took, and has memory mapped for the largest: what is left then of
  // the extra cost of a size's first batch is a few milliseconds, and a proxy that is not ready yet
  // costs everybody. Two are always tried where two are allowed and the form is not known: a model
  // exported for one batch size fails there.
  //
  // With numerics other than the file's, the model as the file has it is loaded first and answers a
  // sample batch; the converted one must answer that alike, by the bound given. Clients still see
  // the declared types. The CPU has no half precision, and keeps full.
  //
  // On a GPU, batches of the sizes that were run so are taken down as CUDA graphs where the model
  // lets itself be.
  //
  // Replaces a model of the same name once all this is done.
  // Fails with not_found (no such file) or invalid (not TorchScript, does not run on the declared
  // inputs, answers with other outputs than declared, does not take any batch size); the message
  // names the file and the difference.
  [[nodiscard]] Result<std::uint32_t> load(const ModelToLoad& model) override;

  [[nodiscard]] double error_of(std::uint32_t form) const override;

  [[nodiscard]] Result<std::size_t> run(const BatchToRun& batch) override;
  // 2 where the device copies by itself.
  [[nodiscard]] std::size_t depth() const override;
  [[nodiscard]] Result<std::unique_ptr<RunningBatch>> begin(const BatchToRun& batch) override;

 private:
  std::unique_ptr<Executor> lane_;
};

}  // namespace gpulet::executor
