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
// Fails with unavailable where the port is taken, or nobody may listen there, and with invalid for
// a host that is no IPv4 address.
[[nodiscard]] Status check_free(const std::string& host, std::uint16_t port);

// The text of a models file with these models, and these applications as their JSON texts. Paths
// are as the models have them.
[[nodiscard]] std::string models_text(const std::vector<config::ModelConfig>& models,
                                      const std::vector<std::string>& applications = {});

struct ServingFiles {
  std::filesystem::path frontend;
  std::filesystem::path backend;
};

struct ServingSettings {
  std::filesystem::path proxy{};            // for all models; empty: the backend chooses for each
  bool proxies_as_root = false;             // otherwise the backend chooses the user
  bool shared_memory = false;               // clients may register shared memory of this machine
  bool native_models = false;               // models may be native code
  std::vector<std::string> applications{};  // as their JSON texts
};

// Writes models.json, frontend.json, backend.json and the profile into the folder. Fails with
// unavailable.
[[nodiscard]] Result<ServingFiles> write_serving_files(
    const std::filesystem::path& folder, const std::vector<config::ModelConfig>& models,
    const profile::Profile& profile, const MachineDevices& machine, const ServingPorts& ports,
    const ServingSettings& settings = {});

// Replaces the models and their figures while the daemons serve. Fails with unavailable.
[[nodiscard]] Status rewrite_models(const std::filesystem::path& folder,
                                    const std::vector<config::ModelConfig>& models,
                                    const std::vector<std::string>& applications,
                                    const profile::Profile& profile);

}  // namespace gpulet::tools
