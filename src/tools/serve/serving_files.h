// The configuration files with which `gpulet serve` starts a frontend and a backend on this
// machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/config/model_config.h"
#include "gpulet/profile/profile.h"
#include "tools/measure/machine.h"

namespace gpulet::tools {

struct ServingPorts {
  config::Endpoint clients;
  config::Endpoint backends;
  config::Endpoint http;
  config::Endpoint grpc;
  config::Endpoint metrics;
};

// `wanted` where it is free, otherwise a free port of the host. Fails with unavailable.
[[nodiscard]] Result<std::uint16_t> free_port(const std::string& host, std::uint16_t wanted);

// The device on which the models are measured: the first GPU of the machine or, without one, the
// first core.
[[nodiscard]] std::string device_to_measure(const MachineDevices& machine);
// "2 CPU cores", "4 GPUs"
[[nodiscard]] std::string devices_text(const MachineDevices& machine);

// The text of a models file with these models. Paths are as the models have them.
[[nodiscard]] std::string models_text(const std::vector<config::ModelConfig>& models);

struct ServingFiles {
  std::filesystem::path frontend;
  std::filesystem::path backend;
};

struct ServingSettings {
  std::filesystem::path proxy{};  // for all models; empty: the backend chooses for each
  bool proxies_as_root = false;   // otherwise the backend chooses the user
  bool shared_memory = false;     // clients may register shared memory of this machine
};

// Writes models.json, frontend.json, backend.json and the profile into the folder. Fails with
// unavailable.
[[nodiscard]] Result<ServingFiles> write_serving_files(
    const std::filesystem::path& folder, const std::vector<config::ModelConfig>& models,
    const profile::Profile& profile, const MachineDevices& machine, const ServingPorts& ports,
    const ServingSettings& settings = {});

}  // namespace gpulet::tools
