// mps: a gpulet is a client process of one GPU's MPS daemon that may use so many percent of the
// GPU's SMs, and so much of its memory. The share is fixed when the process makes its CUDA context:
// a change of size is a new process. Percentages are caps, rounded down to whole SMs; the process
// reports what it was granted, and refuses to serve where it finds itself outside MPS, where it
// would have the whole GPU.
//
// Memory is limited to what the gpulet's models were found to need, with room for what a process
// needs of its own; where that is not known, in proportion to the share. A daemon that ends is
// started again. A process that must be ended is terminated through the daemon first: killed over
// work on the GPU, it could take its neighbours along. After a fault, when nothing runs there, and
// where the daemon has refused three times, it is killed all the same. What may take long happens
// on a thread of the driver's own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "gpulet/core/status.h"
#include "gpulet/partition/driver.h"
#include "gpulet/partition/drivers/mps_daemon.h"

namespace gpulet::partition {

struct MpsGpu {
  std::string uuid;
  std::uint64_t memory_bytes = 0;
  std::uint32_t sms = 0;           // 0: not known
  std::uint32_t max_clients = 48;  // 60 since CUDA 13.1
};

// Fails as MpsDaemon::start does.
[[nodiscard]] Result<std::unique_ptr<PartitionDriver>> make_mps_driver(const MpsGpu& gpu,
                                                                       const MpsOptions& options);

}  // namespace gpulet::partition
