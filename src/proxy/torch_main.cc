// gpulet-proxy: a gpulet's process that runs TorchScript.
#include <memory>
#include <span>

#include "gpulet/executor/torch/torch_executor.h"
#include "gpulet/proxy/proxy.h"

int main(int argc, char** argv) {
  const std::span<const char* const> arguments(argv, static_cast<std::size_t>(argc));
  gpulet::proxy::Program program;
  program.prepare = gpulet::executor::prepare_torch;
  program.make_executor = [] { return std::make_unique<gpulet::executor::TorchExecutor>(); };
  return gpulet::proxy::run(arguments.subspan(1), program);
}
