// The configuration files with which `gpulet serve` starts a frontend and a backend on this
// machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
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

// The devices that "cpu" (all cores), "cpu:0,1", "gpu" (all GPUs) or "cuda:0" names; "auto" or
// empty: all, of which the GPUs are taken where there are some. Fails with invalid or not_found.
[[nodiscard]] Result<MachineDevices> devices_named(MachineDevices machine, const std::string& name);
// The same without GPUs.
[[nodiscard]] MachineDevices without_gpus(MachineDevices machine);

// The device on which the models are measured: the first GPU of the machine or, without one, the
// first core.
[[nodiscard]] std::string device_to_measure(const MachineDevices& machine);
// The entries of "devices" in a backend's file for the GPUs of the machine that can be used or,
// without one, for its cores. `type`: of the profile, as type_of().
[[nodiscard]] nlohmann::ordered_json device_entries(const MachineDevices& machine,
                                                    const std::string& type);
// "2 CPU cores", "4 GPUs"
[[nodiscard]] std::string devices_text(const MachineDevices& machine);

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
