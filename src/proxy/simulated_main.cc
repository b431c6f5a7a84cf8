// gpulet-proxy-simulated: serves one or several gpulets on a simulated device.
#include <memory>
#include <span>

#include "gpulet/executor/executor.h"
#include "gpulet/executor/simulated_executor.h"
#include "gpulet/version/version.h"
#include "proxy/proxy.h"

namespace {

using namespace gpulet;

// Reports its share as held: the latency that comes with each batch accounts for the share.
class SharedSimulatedExecutor final : public executor::SimulatedExecutor {
 public:
  Result<partition::FoundShare> found_share() override {
    return partition::FoundShare{.held = true};
  }
};

class SimulatedDevice final : public executor::SharedDevice {
 public:
  Result<std::unique_ptr<executor::Executor>> add_executor(
      Share /*share*/, std::span<const std::string> /*models*/) override {
    return std::unique_ptr<executor::Executor>(std::make_unique<SharedSimulatedExecutor>());
  }
};

}  // namespace

int main(int argc, char** argv) {
  const std::span<const char* const> arguments(argv, static_cast<std::size_t>(argc));
  if (version::print_if_asked("gpulet-proxy-simulated", arguments.subspan(1))) return 0;
  proxy::Program program;
  program.make_executor = [] { return std::make_unique<executor::SimulatedExecutor>(); };
  program.make_shared_device = [] {
    return Result<std::unique_ptr<executor::SharedDevice>>(std::make_unique<SimulatedDevice>());
  };
  return proxy::run(arguments.subspan(1), program);
}
