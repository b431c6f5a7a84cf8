// ProfiledRange: what a profiler that was told to wait for it (`ncu --profile-from-start off`)
// looks at, as long as this is there. Without a profiler it does nothing.
#pragma once

#include <filesystem>

#include "gpulet/core/status.h"
#include "gpulet/gpu/cuda_driver.h"

namespace gpulet::gpu {

class ProfiledRange {
 public:
  // On the thread that works on the GPU, which has a context there. Fails with unavailable where
  // there is no driver, and internal (the driver's number of the error).
  [[nodiscard]] static Result<ProfiledRange> begin(
      const std::filesystem::path& library = CudaDriver::kLibrary);

  ProfiledRange(ProfiledRange&&) noexcept;
  ProfiledRange& operator=(ProfiledRange&&) = delete;
  ~ProfiledRange();

 private:
  using Call = int (*)();
  explicit ProfiledRange(Call stop) : stop_(stop) {}
  Call stop_;  // null: moved from
};

}  // namespace gpulet::gpu
