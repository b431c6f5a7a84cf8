// CudaDriver: the part of the CUDA driver API that divides a GPU, loaded at run time like Nvml.
//
// Green contexts (CUDA 12.4 and later) are disjoint groups of a GPU's SMs within one process. Work
// on the streams of a group uses no other SMs; all groups share memory, L2 cache and faults. The
// driver partitions a GPU into blocks of SMs (Hopper: 8), and a group consists of blocks of one
// partition, so sizes are rounded down to whole blocks, at least one.
//
// Handles share what they name: it lives as long as one of their copies, and keeps its dependencies
// alive. One thread at a time. Failures: unavailable (no library or driver, or a driver that is too
// old; the message names the required version), not_found (no such GPU in this process), invalid (a
// group that the GPU cannot give), internal (the driver's message).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"

namespace gpulet::gpu {

// As CUDA_MPS_PIPE_DIRECTORY it keeps a process out of any MPS daemon: the folder does not exist,
// and Debian reserves the path.
inline constexpr const char* kNoMpsDirectory = "/nonexistent/gpulet-without-mps";

class CudaCalls;

// The possible sizes of a GPU's SM groups.
struct SmGroups {
  std::uint32_t sms = 0;        // of the GPU, or of the MPS share of this process
  std::uint32_t divisible = 0;  // SMs that are in a block
  std::uint32_t smallest = 0;   // size of a group
  std::uint32_t step = 0;       // between sizes

  // The SMs of a share of 0 to 100 percent: rounded down to a step, at least the smallest group;
  // all SMs at 100 percent.
  [[nodiscard]] std::uint32_t sms_of(double percent) const;
  // The share of that many SMs.
  [[nodiscard]] double percent_of(std::uint32_t granted) const { return 100.0 * granted / sms; }
};

// A context over a group of SMs, and a stream in it.
class GreenStream {
 public:
  // As the driver reports for the context.
  [[nodiscard]] std::uint32_t sms() const;
  // A CUstream for other libraries, valid as long as this object.
  [[nodiscard]] void* stream() const;
  // Another stream in the same context. Any thread.
  [[nodiscard]] Result<GreenStream> beside() const;

 private:
  friend class SmBlocks;
  class Handles;
  explicit GreenStream(std::shared_ptr<const Handles> handles) : handles_(std::move(handles)) {}
  std::shared_ptr<const Handles> handles_;
};

// A partition of a GPU's SMs into blocks. Groups without a common block have no common SM. The
// caller assigns the blocks and can replace one group while the others run.
class SmBlocks {
 public:
  [[nodiscard]] const SmGroups& sizes() const;
  [[nodiscard]] std::uint32_t count() const;

  // A stream over the SMs of those blocks; each block once, in any order. Any thread.
  [[nodiscard]] Result<GreenStream> stream_over(std::span<const std::uint32_t> blocks) const;
  // A stream over all SMs, including those that are in no block. Any thread.
  [[nodiscard]] Result<GreenStream> stream_over_all() const;

 private:
  friend class CudaDriver;
  struct Cut;
  explicit SmBlocks(std::shared_ptr<const Cut> cut) : cut_(std::move(cut)) {}
  std::shared_ptr<const Cut> cut_;
};

// Memory of this process with pinned pages, which GPUs can access by DMA. Released with the last
// copy. REQUIRES, then: no transfer from or to the memory in flight.
using RegisteredMemory = std::shared_ptr<const void>;

class CudaDriver {
 public:
  static constexpr const char* kLibrary = "libcuda.so.1";

  // Loads and initialises the library; creates no context. Set CUDA's environment variables
  // (CUDA_VISIBLE_DEVICES, CUDA_MPS_...) before.
  [[nodiscard]] static Result<CudaDriver> load(const std::filesystem::path& library = kLibrary);

  // The driver version: 12040 for 12.4.
  [[nodiscard]] Result<std::uint32_t> version() const;
  // The number of the GPU with that UUID in this process. Fails with not_found where
  // CUDA_VISIBLE_DEVICES hides it.
  [[nodiscard]] Result<std::uint32_t> number_of(const std::string& uuid) const;
  // The SMs that this process may use; under MPS only those of its share.
  [[nodiscard]] Result<std::uint32_t> usable_sms(std::uint32_t gpu) const;
  // Whether the process is limited to its share from outside: by an MPS daemon, or because the GPU
  // is the MIG instance in CUDA_VISIBLE_DEVICES. A process on an instance must also have a daemon,
  // unless its CUDA_MPS_PIPE_DIRECTORY is kNoMpsDirectory.
  [[nodiscard]] Result<bool> is_held(std::uint32_t gpu) const;
  // Pins the memory, which must outlive the result. The result retains the GPU's primary context.
  [[nodiscard]] Result<RegisteredMemory> register_memory(std::uint32_t gpu,
                                                         std::span<std::byte> memory) const;
  // Copies the memory to the GPU `copies` times, after a first time that is not timed, and returns
  // the mean time of a copy. Fast only from registered memory.
  [[nodiscard]] Result<Duration> time_copies(std::uint32_t gpu, std::span<const std::byte> memory,
                                             std::uint32_t copies) const;
  [[nodiscard]] Result<SmGroups> sm_groups(std::uint32_t gpu) const;

  // Partitions the GPU's SMs into the smallest blocks. The result retains the primary context.
  [[nodiscard]] Result<SmBlocks> cut(std::uint32_t gpu) const;

 private:
  explicit CudaDriver(std::shared_ptr<const CudaCalls> calls) : calls_(std::move(calls)) {}
  // Whether this process is a client of an MPS daemon on the GPU.
  [[nodiscard]] Result<bool> in_mps(std::uint32_t gpu) const;

  std::shared_ptr<const CudaCalls> calls_;
};

// "12.4" for 12040.
[[nodiscard]] std::string cuda_version_text(std::uint32_t version);

// ---- Queries for a process that must not use CUDA itself.
//
// Initialising CUDA connects a process to the machine's MPS daemon where there is one, and keeps
// the GPUs open until the process exits, even against their removal. A failing GPU breaks CUDA for
// the rest of the process. So query_cuda() runs in a child process, which creates no context.

struct CudaQueryResult {
  Result<std::uint32_t> sms;  // of the whole GPU
  Result<SmGroups> groups;    // fails as CudaDriver::sm_groups
};

struct CudaQuery {
  std::vector<std::string> uuids;
  std::filesystem::path library = CudaDriver::kLibrary;
  Duration patience = std::chrono::seconds(30);  // waking a GPU takes seconds
};

// One result per UUID. Forks: call it while no other thread may hold a lock of the dynamic linker,
// or, with AddressSanitizer, of the allocator. Blocks.
[[nodiscard]] std::vector<CudaQueryResult> query_cuda(const CudaQuery& question);

// ProfiledRange: the range for a profiler that starts in the off state (`ncu --profile-from-start
// off`), until the last copy is destroyed. Without a profiler it has no effect.
class ProfiledRange {
 public:
  // Call it on a thread with a current context. Fails with unavailable (no driver) or internal (the
  // driver's error code).
  [[nodiscard]] static Result<ProfiledRange> begin(
      const std::filesystem::path& library = CudaDriver::kLibrary);

 private:
  explicit ProfiledRange(std::shared_ptr<const void> range) : range_(std::move(range)) {}
  std::shared_ptr<const void> range_;
};

}  // namespace gpulet::gpu
