// `gpulet config check`: finds what would keep a daemon from starting, or a model from being
// served, beyond the format of the files (config/check_file.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/config/check_file.h"
#include "gpulet/gpu/nvml.h"

namespace gpulet::tools {

// The machine on which a backend is to run.
struct Machine {
  std::vector<std::uint32_t> cores;  // that a backend may use, ascending
  double memory_mb = 0;              // 0: unknown
  std::vector<gpu::GpuInfo> gpus;
  std::string no_gpus;  // the reason if there are no GPUs, otherwise empty
  std::string no_mps;   // the reason if MPS is not available, otherwise empty
};
// Describes this machine. Asks the GPUs' driver only if a device of the file is on a GPU.
[[nodiscard]] Machine find_machine(const config::BackendConfig& backend);

struct ConfigReport {
  std::vector<std::string> errors;    // a daemon would not start, or a model could never be served
  std::vector<std::string> warnings;  // works, but perhaps not as intended
};

// Checks the devices of a backend against its machine. Pure.
void check_devices(const config::BackendConfig& backend, const Machine& machine,
                   const std::filesystem::path& file, ConfigReport& report);

// Checks all that could be read; without `machine`, for another machine. Blocking file I/O.
[[nodiscard]] ConfigReport check_config(const config::CheckedFile& checked,
                                        const std::filesystem::path& file,
                                        const std::optional<Machine>& machine);

}  // namespace gpulet::tools
