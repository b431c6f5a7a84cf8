#include "gpu/cuda_calls.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "gpulet/gpu/cuda_driver.h"

namespace gpulet::gpu {
namespace {

namespace abi = cuda_abi;

// Errors that may pass; the driver's message says why.
constexpr abi::Return kUnavailable[] = {
    abi::kNotInitialized,      abi::kDeinitialized,     abi::kStubLibrary,
    abi::kDeviceUnavailable,   abi::kNoDevice,          abi::kOperatingSystem,
    abi::kNotSupported,        abi::kSystemNotReady,    abi::kSystemDriverMismatch,
    abi::kMpsConnectionFailed, abi::kMpsServerNotReady, abi::kMpsMaxClientsReached};
constexpr abi::Return kInvalid[] = {abi::kInvalidValue, abi::kInvalidResourceType,
                                    abi::kInvalidResourceConfiguration};

template <std::size_t kCount>
bool is_among(const abi::Return (&codes)[kCount], abi::Return code) {
  return std::find(std::begin(codes), std::end(codes), code) != std::end(codes);
}

StatusCode kind_of(abi::Return code) {
  if (is_among(kUnavailable, code)) return StatusCode::unavailable;
  if (is_among(kInvalid, code)) return StatusCode::invalid;
  return code == abi::kInvalidDevice ? StatusCode::not_found : StatusCode::internal;
}

}  // namespace

Result<std::shared_ptr<const CudaCalls>> CudaCalls::load(const std::filesystem::path& library) {
  GPULET_TRY(SharedLibrary opened,
             SharedLibrary::open_driver(library, "cannot load CUDA's driver library ("));
  const std::shared_ptr<CudaCalls> calls(new CudaCalls(std::move(opened)));
  if (Status found = calls->find_functions(); !found.ok()) return found;
  if (const abi::Return code = calls->init_(0); code != abi::kSuccess) {
    const Status failed = calls->failure(code, "cannot initialise CUDA");
    return Status(StatusCode::unavailable, failed.message());
  }
  calls->find_green_functions();
  return std::shared_ptr<const CudaCalls>(calls);
}

Status CudaCalls::find_functions() {
  Symbols symbols(library_);
  symbols.require("cuInit", init_);
  symbols.require("cuGetErrorName", error_name_);
  symbols.require("cuGetErrorString", error_string_);
  symbols.require("cuDriverGetVersion", driver_get_version);
  symbols.require("cuDeviceGetCount", device_get_count);
  symbols.require("cuDeviceGet", device_get_);
  symbols.require("cuDeviceGetUuid_v2", device_get_uuid);
  symbols.require("cuDeviceGetAttribute", device_get_attribute_);
  symbols.require("cuDevicePrimaryCtxRetain", primary_context_retain);
  symbols.require("cuDevicePrimaryCtxRelease_v2", primary_context_release);
  symbols.require("cuCtxPushCurrent_v2", context_push_current);
  symbols.require("cuCtxPopCurrent_v2", context_pop_current);
  symbols.require("cuStreamCreate", stream_create);
  symbols.require("cuStreamDestroy_v2", stream_destroy);
  symbols.require("cuMemHostRegister_v2", memory_register);
  symbols.require("cuMemHostUnregister", memory_unregister);
  symbols.require("cuMemAlloc_v2", memory_allocate);
  symbols.require("cuMemFree_v2", memory_free);
  symbols.require("cuMemcpyHtoD_v2", copy_to_device);
  return symbols.status();
}

void CudaCalls::find_green_functions() {
  Symbols symbols(library_);
  symbols.require("cuDeviceGetDevResource", device_get_resource);
  symbols.require("cuDevSmResourceSplitByCount", sm_resource_split_by_count);
  symbols.require("cuDevResourceGenerateDesc", resource_generate_descriptor);
  symbols.require("cuGreenCtxCreate", green_context_create);
  symbols.require("cuGreenCtxDestroy", green_context_destroy);
  symbols.require("cuGreenCtxGetDevResource", green_context_get_resource);
  symbols.require("cuCtxFromGreenCtx", context_from_green_context);
  has_green_functions_ = symbols.status().ok();
  const Result<std::uint32_t> own = version();
  if (own.ok() && own.value() >= kGreenStreamsSince)
    symbols.find("cuGreenCtxStreamCreate", green_context_stream_create);
}

Status CudaCalls::failure(abi::Return code, const std::string& what) const {
  const char* name = nullptr;
  const char* message = nullptr;
  (void)error_name_(code, &name);
  (void)error_string_(code, &message);
  return {kind_of(code), what + " (" + (message != nullptr ? message : "no message") + ", " +
                             (name != nullptr ? name : "CUDA's") + ' ' + std::to_string(code) +
                             ')'};
}

Result<std::uint32_t> CudaCalls::version() const {
  int version = 0;
  if (const abi::Return code = driver_get_version(&version); code != abi::kSuccess)
    return failure(code, "cannot read the driver's version");
  return static_cast<std::uint32_t>(version);
}

Status CudaCalls::can_divide() const {
  GPULET_TRY(const std::uint32_t own, version());
  if (own >= kGreenSince && has_green_functions_) return {};
  return {StatusCode::unavailable, "green contexts require a driver for CUDA " +
                                       cuda_version_text(kGreenSince) +
                                       " or later; this one is for " + cuda_version_text(own) +
                                       "; install a newer driver, or divide the GPU by mps"};
}

Result<abi::Device> CudaCalls::device(std::uint32_t number) const {
  abi::Device device = 0;
  const abi::Return code = device_get_(&device, static_cast<int>(number));
  if (code == abi::kSuccess) return device;
  return failure(code, "this process has no GPU " + std::to_string(number));
}

Result<std::uint32_t> CudaCalls::attribute(int attribute, abi::Device device) const {
  int value = 0;
  if (const abi::Return code = device_get_attribute_(&value, attribute, device);
      code != abi::kSuccess)
    return failure(code, "cannot read attribute " + std::to_string(attribute) + " of the GPU");
  return static_cast<std::uint32_t>(value);
}

Result<PrimaryContext> retain_primary_context(std::shared_ptr<const CudaCalls> calls,
                                              abi::Device device) {
  abi::Context context = nullptr;
  if (const abi::Return code = calls->primary_context_retain(&context, device);
      code != abi::kSuccess)
    return calls->failure(code, "cannot create a context on the GPU");
  return PrimaryContext(context, [calls = std::move(calls), device](void*) {
    (void)calls->primary_context_release(device);
  });
}

}  // namespace gpulet::gpu
