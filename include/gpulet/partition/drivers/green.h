// green: the gpulets of a GPU are lanes of one process, each on a green context over SMs of its own
// (gpu/green_lanes.h). Another size is another lane: no process, no model loaded again. Memory is
// not divided, and a fatal fault takes the process, so all gpulets of the GPU.
//
// The driver holds nothing itself; it says what a lane may be, and what the process must find in
// its environment. That names one GPU, and an MPS daemon's directory in which there is none: a
// machine's own daemon would take the process in unseen, so that its cap on SMs, its limit to one
// user, and its other clients' faults held here too.
#pragma once

#include <memory>
#include <string>

#include "gpulet/gpu/cuda_driver.h"
#include "gpulet/partition/driver.h"

namespace gpulet::partition {

struct GreenGpu {
  std::string uuid;
  gpu::SmGroups sizes;
};

// Of a size that rounds down to no block: what it should be. A lane would be given a whole block,
// and lanes that fit by their shares would not on the GPU.
[[nodiscard]] Status check_green_size(const GreenGpu& gpu, Share share);

// Refuses (unavailable) lanes beyond two for each block: while a plan replaces another there are as
// many again, and more would leave each less of a block than the plan says.
[[nodiscard]] std::unique_ptr<PartitionDriver> make_green_driver(const GreenGpu& gpu);

}  // namespace gpulet::partition
