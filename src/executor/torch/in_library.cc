// LibTorch is in a shared library: what is public is made over there.
#include "executor/torch/library.h"
#include "gpulet/executor/torch/torch_executor.h"
#include "gpulet/executor/torch/torch_shared_device.h"

namespace gpulet::executor {

void prepare_torch() { boundary::prepare(*gpulet_torch_boundary()); }

TorchExecutor::TorchExecutor(const std::string& device)
    : lane_(boundary::make_executor(*gpulet_torch_boundary(), device)) {}

Result<std::unique_ptr<SharedDevice>> make_torch_shared_device(const std::string& device) {
  return boundary::make_shared_device(*gpulet_torch_boundary(), device);
}

}  // namespace gpulet::executor
