// The public functions of a program that links LibTorch.
#include "executor/torch/cuda_parts.h"
#include "executor/torch/package.h"
#include "executor/torch/process.h"
#include "gpulet/executor/torch/torch_executor.h"

namespace gpulet::executor {

Result<TorchAbilities> torch_abilities() {
  return TorchAbilities{.cuda = built_with_cuda(), .packages = built_with_packages()};
}

void prepare_torch() { prepare_process(); }

std::unique_ptr<Executor> make_torch_executor(const std::string& device) {
  return make_gpulet_executor(device);
}

Result<std::unique_ptr<SharedDevice>> make_torch_shared_device(const std::string& device) {
  return make_shared_device(device);
}

}  // namespace gpulet::executor
