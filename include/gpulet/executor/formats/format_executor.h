// An executor for models of both formats: the content of a model's file decides which of two
// executors loads and runs it (config::format_of). Both compute on the same device, one batch at a
// time on the CPU; on a GPU, an ONNX batch ends before the next batch begins.
//
// An executor is made when it is needed first, so a process without one of the libraries serves the
// models of the other. load() fails with internal if that executor cannot be made.
#pragma once

#include <functional>
#include <memory>

#include "gpulet/executor/executor.h"

namespace gpulet::executor {

using MakeExecutor = std::function<std::unique_ptr<Executor>()>;  // may throw

// `on_gpu`: the executor for TorchScript is made at once, because it holds the device.
[[nodiscard]] std::unique_ptr<Executor> make_format_executor(MakeExecutor torchscript,
                                                             MakeExecutor onnx, bool on_gpu);

}  // namespace gpulet::executor
