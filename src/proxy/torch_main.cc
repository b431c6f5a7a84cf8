// gpulet-proxy: serves one gpulet, or all gpulets of a device, with TorchScript models.
#include <cstdlib>
#include <memory>
#include <span>
#include <string>

#include "gpulet/executor/torch/torch_executor.h"
#include "gpulet/partition/driver.h"
#include "gpulet/proxy/proxy.h"

namespace {

// The device in the environment of the share, which no longer changes.
std::string device() {
  const char* const text =
      std::getenv(gpulet::partition::kDeviceVariable);  // NOLINT(concurrency-mt-unsafe)
  return text == nullptr ? "cpu" : text;
}

}  // namespace

int main(int argc, char** argv) {
  const std::span<const char* const> arguments(argv, static_cast<std::size_t>(argc));
  gpulet::proxy::Program program;
  program.prepare = gpulet::executor::prepare_torch;
  program.make_executor = [] { return gpulet::executor::make_torch_executor(device()); };
  program.make_shared_device = [] { return gpulet::executor::make_torch_shared_device(device()); };
  return gpulet::proxy::run(arguments.subspan(1), program);
}
