// What a backend needs before it can start: its devices with the drivers that divide them, the
// model store, the profiles of simulated devices. Blocking file I/O; errors name the place and the
// mend.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "gpulet/backend/model_store.h"
#include "gpulet/backend/proxy_user.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/core/status.h"
#include "gpulet/net/tls.h"
#include "gpulet/partition/driver.h"
#include "gpulet/profile/profile.h"
#include "gpulet/serve/messages.h"

namespace gpulet::backend {

struct HostedDevice {
  serve::DeviceOffer offer;
  std::unique_ptr<partition::PartitionDriver> driver;
  std::filesystem::path proxy_program;
};

struct Setup {
  config::BackendConfig config;
  std::vector<HostedDevice> devices;  // by number
  ModelStore store;
  std::shared_ptr<const profile::ProfileSet> profiles;  // null where no device is simulated
  std::optional<ProxyUser> proxy_user{};                // nothing: whom this process is
  net::TlsContextPointer tls{};                         // towards the frontend; null: plain
};

[[nodiscard]] Result<Setup> make_setup(const config::BackendConfig& config);

}  // namespace gpulet::backend
