// ProxySource: makes the gpulets that are measured on a device: processes of their own, or lanes of
// one process, as the device's partitioning has it. One thread, which must outlive them.
#pragma once

#include <filesystem>
#include <memory>

#include "gpulet/backend/device_process.h"
#include "gpulet/backend/proxy.h"
#include "gpulet/core/status.h"
#include "gpulet/net/asio.h"
#include "gpulet/partition/driver.h"

namespace gpulet::tools {

class ProxySource {
 public:
  ProxySource(net::asio::any_io_executor executor, std::filesystem::path program, bool lanes)
      : executor_(std::move(executor)), program_(std::move(program)), lanes_(lanes) {}

  // With the grant's environment from the start where it says so. The process of the lanes is
  // started with the first, and anew where it has ended.
  [[nodiscard]] Result<std::unique_ptr<backend::Proxy>> make(const partition::Grant& grant,
                                                             backend::ProxyCallbacks callbacks);

 private:
  net::asio::any_io_executor executor_;
  std::filesystem::path program_;
  bool lanes_;
  std::unique_ptr<backend::DeviceProcess> process_;
};

}  // namespace gpulet::tools
