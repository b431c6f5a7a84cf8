#include "tools/proxy_source.h"

#include <utility>

#include "gpulet/backend/proxy_process.h"

namespace gpulet::tools {

Result<std::unique_ptr<backend::Proxy>> ProxySource::make(const partition::Grant& grant,
                                                          backend::ProxyCallbacks callbacks) {
  if (!lanes_) {
    backend::ProxyOptions options{program_};
    if (grant.read_at_start) options.environment = grant.environment;
    auto started = backend::ProxyProcess::start(executor_, options, std::move(callbacks));
    if (!started.ok()) return started.status();
    return std::unique_ptr<backend::Proxy>(std::move(started).value());
  }
  if (process_ == nullptr || !process_->takes_lanes()) {
    auto started = backend::DeviceProcess::start(executor_, {program_}, [](const Status&) {});
    if (!started.ok()) return started.status();
    process_ = std::move(started).value();
  }
  return process_->add_lane(std::move(callbacks));
}

}  // namespace gpulet::tools
