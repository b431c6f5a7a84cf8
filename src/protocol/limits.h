// The limits of the codec for counts and lengths, besides those of frames. A message beyond one of
// them is malformed. Private to protocol. Values; any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "gpulet/base/time.h"

namespace gpulet::protocol {

inline constexpr std::size_t kMaxNameBytes =
    256;  // models, tensors, nodes, device types, mechanisms
inline constexpr std::size_t kMaxPathBytes = 4096;
inline constexpr std::size_t kMaxTokenBytes = 4096;
inline constexpr std::size_t kMaxConfigurationBytes = std::size_t{1} << 19U;  // of a model
inline constexpr std::size_t kMaxStatusMessageBytes = 4096;  // longer ones are cut when encoding
inline constexpr std::size_t kMaxTensors = 64;               // inputs or outputs of a model
inline constexpr std::size_t kMaxDimensions = 16;
inline constexpr std::size_t kMaxModels = 1024;         // of a gpulet
inline constexpr std::size_t kMaxModelsListed = 65536;  // in one message
inline constexpr std::size_t kMaxNamedFiles = 65536;    // of the entries in one message
inline constexpr std::size_t kMaxVariables = 64;        // of a proxy's environment
inline constexpr std::size_t kMaxDevices = 1024;        // of one backend
inline constexpr std::size_t kMaxGpulets = 4096;        // of one backend
inline constexpr std::size_t kMaxNodes = 4096;          // of a cluster
inline constexpr std::size_t kMaxMembers = 1024;        // of a cluster
inline constexpr std::size_t kMaxFigures = 65536;       // of one kind in one report
inline constexpr std::uint32_t kMaxSlices = 8;          // of a device divided by MIG
inline constexpr std::size_t kMaxProcessesPerInstance = 8;
inline constexpr std::uint32_t kMaxBatch = 1024;       // requests in one batch
inline constexpr std::size_t kMaxPlannedBatches = 64;  // batch sizes of one model of a gpulet
inline constexpr Duration kMaxDuration = std::chrono::hours(24 * 365);

}  // namespace gpulet::protocol
