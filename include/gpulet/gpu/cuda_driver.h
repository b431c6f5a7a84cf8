// CudaDriver: the part of CUDA's driver interface that divides a GPU, found at run time as Nvml is.
//
// Green contexts (CUDA 12.4 and later): disjoint groups of a GPU's SMs within one process. Who runs
// on streams of a group uses no other SM; memory, L2 and faults are shared by all groups. The
// driver cuts a GPU into blocks of SMs (Hopper: 8), and a group is any number of blocks of one cut,
// so what is asked for is rounded down to whole blocks, at least one.
//
// Handles are owned values: dropping one destroys what it names, and each keeps what it needs
// alive. One thread at a time. Failures: unavailable (no library or driver, or one that is too old;
// the message says which version it takes), not_found (no such GPU in this process), invalid (a
// size that the GPU cannot give), overloaded (no SMs left), internal (the driver's own words).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gpulet/core/status.h"

namespace gpulet::gpu {

// As CUDA_MPS_PIPE_DIRECTORY it keeps a process out of any MPS daemon: there is none. Nobody makes
// one there, because Debian keeps the path free.
inline constexpr const char* kNoMpsDirectory = "/nonexistent/gpulet-without-mps";

class CudaCalls;  // the library's functions
class PrimaryContext;

// What a GPU's SMs can be divided into.
struct SmGroups {
  std::uint32_t sms = 0;        // of the GPU, or of what MPS left to this process
  std::uint32_t divisible = 0;  // of them, those that are in a block
  std::uint32_t smallest = 0;   // of a group
  std::uint32_t step = 0;       // between sizes

  // The SMs of a share of 0 to 100 percent: rounded down to a step, at least the smallest group;
  // all there are at 100 percent.
  [[nodiscard]] std::uint32_t sms_of(double percent) const;
  // What so many SMs really are, in percent.
  [[nodiscard]] double percent_of(std::uint32_t granted) const { return 100.0 * granted / sms; }
};

// A context over a group of SMs, and a stream in it.
class GreenStream {
 public:
  // As the driver tells it of the context.
  [[nodiscard]] std::uint32_t sms() const;
  // A CUstream, for libraries that take one from outside. Good as long as this.
  [[nodiscard]] void* stream() const;

  GreenStream(GreenStream&&) noexcept;
  GreenStream& operator=(GreenStream&&) noexcept;
  ~GreenStream();

 private:
  friend class SmBlocks;
  class Handles;
  explicit GreenStream(std::unique_ptr<Handles> handles);
  std::unique_ptr<Handles> handles_;
};

// One cut of a GPU's SMs. Groups that have no block in common have no SM in common; which block is
// whose, the caller decides: a group can be made anew while the others go on.
class SmBlocks {
 public:
  [[nodiscard]] const SmGroups& sizes() const;
  [[nodiscard]] std::uint32_t count() const;

  // Over the SMs of those blocks, by number, each once, in any order. Any thread.
  [[nodiscard]] Result<GreenStream> stream_over(std::span<const std::uint32_t> blocks) const;
  // Over all the SMs there are, those with them that are in no block. Any thread.
  [[nodiscard]] Result<GreenStream> stream_over_all() const;

  SmBlocks(SmBlocks&&) noexcept;
  SmBlocks& operator=(SmBlocks&&) noexcept;
  ~SmBlocks();

 private:
  friend class CudaDriver;
  class Cut;
  explicit SmBlocks(std::unique_ptr<Cut> cut);
  std::unique_ptr<Cut> cut_;
};

// Memory of this process that the GPUs copy from and to by themselves: its pages stay where they
// are.
class RegisteredMemory {
 public:
  RegisteredMemory(RegisteredMemory&&) noexcept;
  RegisteredMemory& operator=(RegisteredMemory&&) noexcept;
  ~RegisteredMemory();  // nothing of the memory may be under way

 private:
  friend class CudaDriver;
  class Registration;
  explicit RegisteredMemory(std::unique_ptr<Registration> registration);
  std::unique_ptr<Registration> registration_;
};

class CudaDriver {
 public:
  static constexpr const char* kLibrary = "libcuda.so.1";

  // Loads and initialises it, which makes no context. What CUDA reads of the environment
  // (CUDA_VISIBLE_DEVICES, CUDA_MPS_...) must be there before.
  [[nodiscard]] static Result<CudaDriver> load(const std::filesystem::path& library = kLibrary);

  // Of the driver: 12040 is 12.4.
  [[nodiscard]] Result<std::uint32_t> version() const;
  // The number, in this process, of the GPU with that UUID. Fails with not_found where
  // CUDA_VISIBLE_DEVICES hides it.
  [[nodiscard]] Result<std::uint32_t> number_of(const std::string& uuid) const;
  // SMs that this process may use of it: fewer than the GPU has under an MPS share.
  [[nodiscard]] Result<std::uint32_t> usable_sms(std::uint32_t gpu) const;
  // Whether something outside this process holds it to a part of a GPU: an MPS daemon; or that GPU
  // is the MIG instance that CUDA_VISIBLE_DEVICES names, with a daemon as well unless its
  // CUDA_MPS_PIPE_DIRECTORY is kNoMpsDirectory.
  [[nodiscard]] Result<bool> is_held(std::uint32_t gpu) const;
  // Registers that memory, which must outlive the result, and keeps the GPU's primary context up as
  // long as that.
  [[nodiscard]] Result<RegisteredMemory> register_memory(std::uint32_t gpu,
                                                         std::span<std::byte> memory) const;
  [[nodiscard]] Result<SmGroups> sm_groups(std::uint32_t gpu) const;

  // Cuts the GPU's SMs into the smallest blocks, and keeps its primary context up as long as that.
  [[nodiscard]] Result<SmBlocks> cut(std::uint32_t gpu) const;
  // Divides the GPU into groups of these sizes at once, disjoint, in that order. What is not named
  // stays unused.
  [[nodiscard]] Result<std::vector<GreenStream>> divide(
      std::uint32_t gpu, const std::vector<std::uint32_t>& sms) const;

  CudaDriver(CudaDriver&&) noexcept;
  CudaDriver& operator=(CudaDriver&&) noexcept;
  ~CudaDriver();

 private:
  explicit CudaDriver(std::shared_ptr<const CudaCalls> calls);
  // Whether this process's contexts on it are an MPS daemon's.
  [[nodiscard]] Result<bool> in_mps(std::uint32_t gpu) const;

  std::shared_ptr<const CudaCalls> calls_;
};

// "12.4" of 12040.
[[nodiscard]] std::string cuda_version_text(std::uint32_t version);

}  // namespace gpulet::gpu
