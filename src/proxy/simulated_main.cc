// gpulet-proxy-simulated: a gpulet's process on a simulated device.
#include <memory>
#include <span>

#include "gpulet/executor/simulated_executor.h"
#include "gpulet/proxy/proxy.h"

int main(int argc, char** argv) {
  const std::span<const char* const> arguments(argv, static_cast<std::size_t>(argc));
  gpulet::proxy::Program program;
  program.make_executor = [] { return std::make_unique<gpulet::executor::SimulatedExecutor>(); };
  return gpulet::proxy::run(arguments.subspan(1), program);
}
