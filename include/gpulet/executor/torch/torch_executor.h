// Executors that run TorchScript models with LibTorch. No LibTorch header is needed to use them.
//
// They configure the whole process: the threads of LibTorch and OpenBLAS (OMP_NUM_THREADS inside
// one operation, 1 if it is not set; one operation at a time) and, on the CPU, LibTorch's execution
// mode and the C library's treatment of freed memory. Inputs are used in place; outputs are copied
// once. On a GPU, the copies of one batch overlap the computation of another, and waiting threads
// sleep.
//
// load() freezes the model and keeps the faster of two variants: the frozen model, or the frozen
// model after LibTorch's optimize_for_inference, which gains up to 45 % on some networks and costs
// up to 30 % on others. The second is used only if its outputs are the same. Both are timed on this
// machine with batches of one. If ModelToLoad::variant names the result of an earlier load(), only
// that variant is made, which is a third to a half of the work.
//
// load() then runs batches of 1, 2, 4, .. max_batch, as many as fit into 200 ms according to the
// time of the smaller ones, and has memory mapped for the largest. After that, the first batch of a
// size costs only a few milliseconds more than the next. Where the variant is not known, it always
// runs two sizes if max_batch allows two: a model that was exported for one batch size fails there.
//
// With numerics other than the file's, the model is first loaded as the file has it and computes a
// sample batch; the outputs of the converted model must be within largest_error of these. Clients
// still see the declared types. The CPU has no half precision and keeps full precision.
//
// An AOTInductor package (.pt2) is loaded as it is, where LibTorch is 2.6 or later and
// $GPULET_NATIVE_MODELS is "on": it is native code. It has one variant, no other numerics than the
// file's, and no CUDA graphs, and executors do not share it.
//
// On a GPU, the batch sizes that were warmed up are captured as CUDA graphs if the model allows it.
//
// load() replaces a model of the same name once all of this has succeeded. It fails with not_found
// (no such file) or invalid (not TorchScript, does not run on the declared inputs, has other
// outputs than declared, does not take every batch size); the message names the file and the
// difference. depth() is 2 on a GPU, else 1.
#pragma once

#include <memory>
#include <string>

#include "gpulet/base/status.h"
#include "gpulet/executor/executor.h"

namespace gpulet::executor {

// What the LibTorch of this process can do.
struct TorchAbilities {
  bool cuda = false;
  bool packages = false;  // of AOTInductor
};

// Uses no device. Fails with unavailable where the executor cannot be loaded.
[[nodiscard]] Result<TorchAbilities> torch_abilities();

// Does the part of the first use of LibTorch on the CPU that depends on no share and no model: 20
// ms to register operators and create the first kernels, and 64 MB of heap for the kernel to map.
// The process still has one thread afterwards. May throw what LibTorch throws.
void prepare_torch();

// Makes the executor of a process that serves one gpulet. `device` in LibTorch's notation: "cpu",
// "cuda", "cuda:0". Throws std::invalid_argument on any other text.
[[nodiscard]] std::unique_ptr<Executor> make_torch_executor(const std::string& device = "cpu");

// Makes the device of a process that serves several gpulets. Executors that load the same file with
// the same tensors and numerics share one copy in memory. On a GPU each executor runs on a green
// stream of its own (gpu/green_streams.h); on the CPU, as if it were alone. Loading a model that
// another executor holds takes no time on the CPU, and milliseconds on a GPU for the executor's own
// libraries and CUDA graphs. Fails with invalid (no such device name) or unavailable (this process
// cannot use or divide the device).
[[nodiscard]] Result<std::unique_ptr<SharedDevice>> make_torch_shared_device(
    const std::string& device);

}  // namespace gpulet::executor
