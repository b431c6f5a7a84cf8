// The device of this machine that a measurement divides, as --device and --partitioning name it:
// the cores of a CPU device, or a GPU. Told in one line where it cannot be had.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/partition/driver.h"
#include "gpulet/profile/profile.h"
#include "tools/own_folder.h"

namespace gpulet::tools {

// What --device means.
struct DeviceName {
  std::vector<std::uint32_t> cores;  // "cpu:0,1"; empty: a GPU
  std::string gpu;  // "cuda:0", "cuda:GPU-5c3d": its number, or how its UUID begins

  [[nodiscard]] bool is_gpu() const { return cores.empty(); }
};

// Fails with invalid, naming what may be written.
[[nodiscard]] Result<DeviceName> parse_device(const std::string& text);

struct MeasuredDevice {
  std::string name;                  // of a profile of it: "cpu-core", "h200"
  profile::Provenance facts;         // device, machine, driver, partitioning, ...
  std::string gpu;                   // UUID; empty: a CPU device
  std::vector<std::uint32_t> cores;  // of a CPU device
  // The shortest time over which what a share gives is even.
  Duration even_over{};
  double steady = 0;   // how far a median may be off by chance, as a fraction, and be good enough
  bool lanes = false;  // its gpulets are lanes of one process
  std::unique_ptr<OwnFolder> folder;  // of the MPS daemon; outlives the driver
  std::unique_ptr<partition::PartitionDriver> driver;
};

// `partitioning` of a GPU: "mps", under a daemon of its own, which ends with the driver, or
// "green". Fails with invalid (cores that are not there, an unknown partitioning), not_found or
// unavailable (no such GPU, no MPS).
[[nodiscard]] Result<MeasuredDevice> open_device(const DeviceName& device,
                                                 const std::string& partitioning);

}  // namespace gpulet::tools
