// CudaCalls: the functions of the CUDA driver library.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "gpu/cuda_abi.h"
#include "gpu/shared_library.h"
#include "gpulet/base/status.h"

namespace gpulet::gpu {

class CudaCalls {
 public:
  // The first version with green contexts: 12.4.
  static constexpr std::uint32_t kGreenSince = 12040;
  // The first version that creates a stream in a green context that is not current: 12.5.
  static constexpr std::uint32_t kGreenStreamsSince = 12050;

  // Loads and initialises the library. Fails with unavailable and a one-line reason.
  [[nodiscard]] static Result<std::shared_ptr<const CudaCalls>> load(
      const std::filesystem::path& library);

  // "<what> (<the driver's message and code>)", with the matching status code.
  [[nodiscard]] Status failure(cuda_abi::Return code, const std::string& what) const;
  [[nodiscard]] Result<std::uint32_t> version() const;
  // Fails with unavailable where the driver is older than green contexts.
  [[nodiscard]] Status can_divide() const;
  [[nodiscard]] Result<cuda_abi::Device> device(std::uint32_t number) const;
  [[nodiscard]] Result<std::uint32_t> attribute(int attribute, cuda_abi::Device device) const;

  cuda_abi::CuDriverGetVersion* driver_get_version = nullptr;
  cuda_abi::CuDeviceGetCount* device_get_count = nullptr;
  cuda_abi::CuDeviceGetUuid* device_get_uuid = nullptr;
  cuda_abi::CuDevicePrimaryCtxRetain* primary_context_retain = nullptr;
  cuda_abi::CuDevicePrimaryCtxRelease* primary_context_release = nullptr;
  cuda_abi::CuCtxPushCurrent* context_push_current = nullptr;
  cuda_abi::CuCtxPopCurrent* context_pop_current = nullptr;
  cuda_abi::CuStreamCreate* stream_create = nullptr;
  cuda_abi::CuStreamDestroy* stream_destroy = nullptr;
  cuda_abi::CuMemHostRegister* memory_register = nullptr;
  cuda_abi::CuMemHostUnregister* memory_unregister = nullptr;
  cuda_abi::CuMemAlloc* memory_allocate = nullptr;
  cuda_abi::CuMemFree* memory_free = nullptr;
  cuda_abi::CuMemcpyHtoD* copy_to_device = nullptr;
  // nullptr where the driver is too old.
  cuda_abi::CuDeviceGetDevResource* device_get_resource = nullptr;
  cuda_abi::CuDevSmResourceSplitByCount* sm_resource_split_by_count = nullptr;
  cuda_abi::CuDevResourceGenerateDesc* resource_generate_descriptor = nullptr;
  cuda_abi::CuGreenCtxCreate* green_context_create = nullptr;
  cuda_abi::CuGreenCtxDestroy* green_context_destroy = nullptr;
  cuda_abi::CuGreenCtxGetDevResource* green_context_get_resource = nullptr;
  cuda_abi::CuCtxFromGreenCtx* context_from_green_context = nullptr;
  cuda_abi::CuGreenCtxStreamCreate* green_context_stream_create = nullptr;

 private:
  explicit CudaCalls(SharedLibrary library) : library_(std::move(library)) {}
  [[nodiscard]] Status find_functions();
  void find_green_functions();

  SharedLibrary library_;
  bool has_green_functions_ = false;  // except green_context_stream_create
  cuda_abi::CuInit* init_ = nullptr;
  cuda_abi::CuGetErrorName* error_name_ = nullptr;
  cuda_abi::CuGetErrorString* error_string_ = nullptr;
  cuda_abi::CuDeviceGet* device_get_ = nullptr;
  cuda_abi::CuDeviceGetAttribute* device_get_attribute_ = nullptr;
};

// A retained primary context of a device (cuda_abi::Context); the last copy releases it. Creating
// one takes a tenth of a second and hundreds of MB, so it is shared by all green contexts of a
// partition.
using PrimaryContext = std::shared_ptr<void>;
[[nodiscard]] Result<PrimaryContext> retain_primary_context(std::shared_ptr<const CudaCalls> calls,
                                                            cuda_abi::Device device);

}  // namespace gpulet::gpu
