// SharedMemory: regions of POSIX shared memory that clients registered (the protocol's
// system_shared_memory extension). Off unless the configuration allows it: whoever may register can
// have this process read and write any shared memory that its user may.
//
// Regions are read and written by system calls and never mapped: a client that shrinks its memory
// gets an error, where a mapping would end this process. Blocking only for these calls. One thread
// at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gpulet/core/bytes.h"
#include "gpulet/core/status.h"
#include "gpulet/net/kserve/infer_call.h"

namespace gpulet::net::kserve {

struct RegionToRegister {
  std::string name;
  std::string key;  // as shm_open takes it
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};
using RegionInfo = RegionToRegister;

// Why a region of CUDA shared memory is not registered, and what to use instead. There are none:
// clients may ask for their status and unregister all of them, as some do when they start.
[[nodiscard]] std::string cuda_memory_refusal(const std::string& region);
// The failure of asking for the status of one.
[[nodiscard]] Status unknown_cuda_region(const std::string& region);

class SharedMemory {
 public:
  // `enabled` false: every call fails with unavailable, saying how to switch it on.
  explicit SharedMemory(bool enabled) : enabled_(enabled) {}

  // Fails with invalid (a name twice, nothing there, beyond its end, too many regions).
  [[nodiscard]] Status add(const RegionToRegister& region);
  // An unknown name is not an error. Empty: all.
  void remove(const std::string& name);
  [[nodiscard]] std::vector<RegionInfo> regions() const;
  [[nodiscard]] bool enabled() const { return enabled_; }

  // A copy: the client may write to the region at any time. Fails with invalid (no such region,
  // beyond its end).
  [[nodiscard]] Result<Bytes> read(const RegionSlice& slice) const;
  // Fails also where the slice is smaller than the data, or may only be read.
  [[nodiscard]] Status write(const RegionSlice& slice, const Bytes& data);

 private:
  class Descriptor;
  struct Region {
    RegionInfo info;
    std::shared_ptr<const Descriptor> memory;
  };
  [[nodiscard]] Status check_enabled() const;
  [[nodiscard]] Result<const Region*> find(const RegionSlice& slice) const;

  bool enabled_;
  std::map<std::string, Region, std::less<>> regions_;
};

}  // namespace gpulet::net::kserve
