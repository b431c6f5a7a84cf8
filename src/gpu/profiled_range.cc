#include "gpulet/gpu/profiled_range.h"

#include <string>
#include <utility>

#include "gpu/shared_library.h"

namespace gpulet::gpu {

Result<ProfiledRange> ProfiledRange::begin(const std::filesystem::path& library) {
  const auto driver = SharedLibrary::open(library);
  if (!driver.ok()) return driver.status();
  Call start = nullptr;
  Call stop = nullptr;
  Symbols symbols(driver.value());
  symbols.require("cuProfilerStart", start);
  symbols.require("cuProfilerStop", stop);
  if (!symbols.status().ok()) return symbols.status();
  if (const int code = start(); code != 0)
    return Status(StatusCode::internal, "cuProfilerStart failed with " + std::to_string(code));
  return ProfiledRange(stop);
}

ProfiledRange::ProfiledRange(ProfiledRange&& other) noexcept
    : stop_(std::exchange(other.stop_, nullptr)) {}

ProfiledRange::~ProfiledRange() {
  if (stop_ != nullptr) stop_();
}

}  // namespace gpulet::gpu
