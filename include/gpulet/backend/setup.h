// What a backend needs before it can start: its devices with the drivers that divide them, the
// model store, the profiles of simulated devices. Blocking file I/O; errors name the place and the
// mend.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/backend/gpu_watch.h"
#include "gpulet/backend/model_store.h"
#include "gpulet/backend/proxy_user.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/core/status.h"
#include "gpulet/gpu/cuda_driver.h"
#include "gpulet/gpu/nvml.h"
#include "gpulet/net/tls.h"
#include "gpulet/partition/driver.h"
#include "gpulet/partition/drivers/mps_daemon.h"
#include "gpulet/profile/profile.h"
#include "gpulet/serve/messages.h"

namespace gpulet::backend {

struct HostedDevice {
  serve::DeviceOffer offer;
  std::unique_ptr<partition::PartitionDriver> driver;
  std::filesystem::path proxy_program;
  std::string gpu{};  // its UUID; empty: it is none
};

struct Setup {
  config::BackendConfig config;
  std::vector<HostedDevice> devices;  // by number, without those that are absent
  ModelStore store;
  std::shared_ptr<const profile::ProfileSet> profiles;  // null where no device is simulated
  std::optional<ProxyUser> proxy_user{};                // nothing: whom this process is
  net::TlsContextPointer tls{};                         // towards the frontend; null: plain
  // GPUs of the file that cannot be used here, and why: a line each.
  std::vector<std::string> absent{};
  GpuWatchOptions gpu_watch{};
};

// Where NVIDIA's part of a machine is found; tests have their own.
struct GpuPlaces {
  std::filesystem::path nvml = gpu::Nvml::kLibrary;
  std::filesystem::path cuda = gpu::CudaDriver::kLibrary;
  // Without a directory: below /run for root, else below XDG_RUNTIME_DIR or the folder for
  // temporary files.
  partition::MpsOptions mps{};
  Duration look_every = GpuWatchOptions().every;
};

// Starts the daemons that its devices need, and asks CUDA in a child of this process: to be called
// before it has other threads. A GPU that cannot be used is absent, unless nothing
// else is left: then that is the failure.
[[nodiscard]] Result<Setup> make_setup(const config::BackendConfig& config,
                                       const GpuPlaces& places = {});

}  // namespace gpulet::backend
