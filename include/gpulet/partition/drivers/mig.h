// mig: a gpulet is a process on one MIG instance of a GPU, alone there or, with several processes
// per instance, as a client of an MPS daemon that is the instance's own. The instance holds SMs and
// memory apart from its neighbours' in hardware; a fatal fault stays in it.
//
// Instances are made when they are first claimed, which takes up to seconds, on a thread of the
// driver's own: until then grant() fails with unavailable and ready() is false. One that no gpulet
// has is kept, is given to the next who claims it, and is destroyed where it is in the way of
// another. What instances the GPU has already, whoever made them, is treated so too. Where one is
// in use by somebody else, the claim for its place fails with unavailable, naming whom, and is
// tried again as long as somebody asks for it. When the driver goes, instances stay.
//
// MIG mode is never changed. To make instances takes root (gpu/mig_device.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gpulet/core/status.h"
#include "gpulet/gpu/mig_device.h"
#include "gpulet/partition/driver.h"
#include "gpulet/partition/drivers/mps_daemon.h"
#include "gpulet/partition/mig_geometry.h"

namespace gpulet::partition {

struct MigGpu {
  std::string uuid;
  MigGeometry geometry;
  std::uint32_t processes_per_instance = 1;
};

// Whether the GPU has the instances that the geometry says, in their places and with their memory.
// Fails with invalid, naming the first difference.
[[nodiscard]] Status check_mig_geometry(const MigGeometry& geometry,
                                        const std::vector<gpu::MigProfileInfo>& profiles);

// Fails as MigDevice::open and check_mig_geometry do. `mps` is for more than one process per
// instance.
[[nodiscard]] Result<std::unique_ptr<PartitionDriver>> make_mig_driver(
    const MigGpu& gpu, const std::filesystem::path& nvml, const MpsOptions& mps);

}  // namespace gpulet::partition
