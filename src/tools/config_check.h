// What `gpulet config check` finds beyond the files' own rules (config/check_file.h): what would
// keep a daemon from starting with them, and what could not work once it has.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/config/check_file.h"
#include "gpulet/core/status.h"
#include "gpulet/gpu/nvml.h"

namespace gpulet::tools {

// What a backend's file is held against.
struct Machine {
  std::vector<std::uint32_t> cores;  // that a backend may use, ascending
  double memory_mb = 0;              // 0: not known
  std::vector<gpu::GpuInfo> gpus;
  std::string no_gpus;  // why there are none; empty where there are
  std::string no_mps;   // why MPS cannot be had; empty where it can
};
// Asks the GPUs' driver only where a device of the file is on a GPU.
[[nodiscard]] Machine find_machine(const config::BackendConfig& backend);

struct ConfigReport {
  std::vector<std::string> errors;    // nothing starts, or something can never be served
  std::vector<std::string> warnings;  // it works, and perhaps not as it was meant
};

// The devices of a backend against the machine that it is to run on. Pure.
void check_devices(const config::BackendConfig& backend, const Machine& machine,
                   const std::filesystem::path& file, ConfigReport& report);

// All that is wrong with what could be read. Without a machine, the file is for another one.
// Blocking file I/O.
[[nodiscard]] ConfigReport check_config(const config::CheckedFile& checked,
                                        const std::filesystem::path& file,
                                        const std::optional<Machine>& machine);

}  // namespace gpulet::tools
