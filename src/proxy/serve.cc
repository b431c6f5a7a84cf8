#include <cstdlib>
#include <memory>

#include "gpulet/proxy/proxy.h"
#include "proxy/obey.h"

namespace gpulet::proxy {

Status serve(const ProxyOptions& options, const Program& program) {
  // Nothing that is timed comes before LoadModels.
  if (program.prepare != nullptr) program.prepare();
  const auto make_executor =
      [&program](const serve::LoadModels& command) -> Result<std::unique_ptr<executor::Executor>> {
    // The only other thread, the command reader, looks at no variable.
    for (const auto& [name, value] : command.environment) {
      ::setenv(name.c_str(), value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
    }
    return program.make_executor();
  };
  return obey(options, make_executor, {});
}

}  // namespace gpulet::proxy
