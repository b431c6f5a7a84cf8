#include "tools/proxy_source.h"

#include <utility>

#include "gpulet/backend/proxy_process.h"

namespace gpulet::tools {

Result<std::unique_ptr<backend::Proxy>> ProxySource::make(backend::ProxyCallbacks callbacks) {
  if (!lanes_) {
    auto started = backend::ProxyProcess::start(executor_, {program_}, std::move(callbacks));
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
