// LibTorch is linked with the program: what is public is made in place.
#include "executor/torch/lane.h"
#include "executor/torch/process.h"
#include "gpulet/executor/torch/torch_executor.h"
#include "gpulet/executor/torch/torch_shared_device.h"

namespace gpulet::executor {

void prepare_torch() { prepare_process(); }

TorchExecutor::TorchExecutor(const std::string& device) : lane_(make_lane(device)) {}

Result<std::unique_ptr<SharedDevice>> make_torch_shared_device(const std::string& device) {
  return make_device_of_lanes(device);
}

}  // namespace gpulet::executor
