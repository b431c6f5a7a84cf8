// Compares src/gpu/cuda_abi.h with the toolkit's cuda.h at compile time. The headers declare
// different types, so functions match where all results and parameters have the same size and kind.
#include <cuda.h>

#include <cstddef>
#include <type_traits>

#include "gpu/cuda_abi.h"

namespace gpulet::gpu::cuda_abi {
namespace {

// Checks only what the installed cuda.h declares.
static_assert(CUDA_VERSION >= 12040, "the check takes the headers of CUDA 12.4 or later");

template <typename Own, typename Theirs>
constexpr bool kAlike =
    sizeof(Own) == sizeof(Theirs) && std::is_pointer_v<Own> == std::is_pointer_v<Theirs>;

template <typename Own, typename Theirs>
struct SameCall : std::false_type {};
template <typename OwnReturn, typename... Own, typename TheirReturn, typename... Theirs>
requires(sizeof...(Own) ==
         sizeof...(Theirs)) struct SameCall<OwnReturn(Own...), TheirReturn(Theirs...)>
    : std::bool_constant<kAlike<OwnReturn, TheirReturn> && (kAlike<Own, Theirs> && ...)> {
};

template <typename Own, typename Theirs>
constexpr bool kSameCall = SameCall<Own, Theirs>::value;

static_assert(kSameCall<CuInit, decltype(cuInit)>);
static_assert(kSameCall<CuDriverGetVersion, decltype(cuDriverGetVersion)>);
static_assert(kSameCall<CuGetErrorName, decltype(cuGetErrorName)>);
static_assert(kSameCall<CuGetErrorString, decltype(cuGetErrorString)>);
static_assert(kSameCall<CuDeviceGetCount, decltype(cuDeviceGetCount)>);
static_assert(kSameCall<CuDeviceGet, decltype(cuDeviceGet)>);
static_assert(kSameCall<CuDeviceGetUuid, decltype(cuDeviceGetUuid_v2)>);
static_assert(kSameCall<CuDeviceGetAttribute, decltype(cuDeviceGetAttribute)>);
static_assert(kSameCall<CuDevicePrimaryCtxRetain, decltype(cuDevicePrimaryCtxRetain)>);
static_assert(kSameCall<CuDevicePrimaryCtxRelease, decltype(cuDevicePrimaryCtxRelease_v2)>);
static_assert(kSameCall<CuCtxPushCurrent, decltype(cuCtxPushCurrent_v2)>);
static_assert(kSameCall<CuCtxPopCurrent, decltype(cuCtxPopCurrent_v2)>);
static_assert(kSameCall<CuStreamCreate, decltype(cuStreamCreate)>);
static_assert(kSameCall<CuStreamDestroy, decltype(cuStreamDestroy_v2)>);
static_assert(kSameCall<CuMemHostRegister, decltype(cuMemHostRegister_v2)>);
static_assert(kSameCall<CuMemHostUnregister, decltype(cuMemHostUnregister)>);
static_assert(kSameCall<CuMemAlloc, decltype(cuMemAlloc_v2)>);
static_assert(kSameCall<CuMemFree, decltype(cuMemFree_v2)>);
static_assert(kSameCall<CuMemcpyHtoD, decltype(cuMemcpyHtoD_v2)>);
static_assert(kSameCall<CuDeviceGetDevResource, decltype(cuDeviceGetDevResource)>);
static_assert(kSameCall<CuDevSmResourceSplitByCount, decltype(cuDevSmResourceSplitByCount)>);
static_assert(kSameCall<CuDevResourceGenerateDesc, decltype(cuDevResourceGenerateDesc)>);
static_assert(kSameCall<CuGreenCtxCreate, decltype(cuGreenCtxCreate)>);
static_assert(kSameCall<CuGreenCtxDestroy, decltype(cuGreenCtxDestroy)>);
static_assert(kSameCall<CuGreenCtxGetDevResource, decltype(cuGreenCtxGetDevResource)>);
static_assert(kSameCall<CuCtxFromGreenCtx, decltype(cuCtxFromGreenCtx)>);
#if CUDA_VERSION >= 12050
static_assert(kSameCall<CuGreenCtxStreamCreate, decltype(cuGreenCtxStreamCreate)>);
#endif

static_assert(kSuccess == CUDA_SUCCESS);
static_assert(kInvalidValue == CUDA_ERROR_INVALID_VALUE);
static_assert(kNotInitialized == CUDA_ERROR_NOT_INITIALIZED);
static_assert(kDeinitialized == CUDA_ERROR_DEINITIALIZED);
static_assert(kStubLibrary == CUDA_ERROR_STUB_LIBRARY);
static_assert(kDeviceUnavailable == CUDA_ERROR_DEVICE_UNAVAILABLE);
static_assert(kNoDevice == CUDA_ERROR_NO_DEVICE);
static_assert(kInvalidDevice == CUDA_ERROR_INVALID_DEVICE);
static_assert(kOperatingSystem == CUDA_ERROR_OPERATING_SYSTEM);
static_assert(kNotSupported == CUDA_ERROR_NOT_SUPPORTED);
static_assert(kSystemNotReady == CUDA_ERROR_SYSTEM_NOT_READY);
static_assert(kSystemDriverMismatch == CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
static_assert(kMpsConnectionFailed == CUDA_ERROR_MPS_CONNECTION_FAILED);
static_assert(kMpsServerNotReady == CUDA_ERROR_MPS_SERVER_NOT_READY);
static_assert(kMpsMaxClientsReached == CUDA_ERROR_MPS_MAX_CLIENTS_REACHED);
static_assert(kInvalidResourceType == CUDA_ERROR_INVALID_RESOURCE_TYPE);
static_assert(kInvalidResourceConfiguration == CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
static_assert(kAttributeMultiprocessors == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
static_assert(kAttributeComputeMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(kAttributeMpsEnabled == CU_DEVICE_ATTRIBUTE_MPS_ENABLED);
static_assert(kRegisterPortable == CU_MEMHOSTREGISTER_PORTABLE);
static_assert(kResourceTypeSm == CU_DEV_RESOURCE_TYPE_SM);
static_assert(kGreenContextDefaultStream == CU_GREEN_CTX_DEFAULT_STREAM);
static_assert(kStreamNonBlocking == CU_STREAM_NON_BLOCKING);

static_assert(sizeof(Uuid) == sizeof(CUuuid));
static_assert(offsetof(Resource, type) == offsetof(CUdevResource, type));
static_assert(offsetof(Resource, sm) == offsetof(CUdevResource, sm));
static_assert(alignof(Resource) >= alignof(CUdevResource));
static_assert(offsetof(SmResource, sms) == offsetof(CUdevSmResource, smCount));
#if CUDA_VERSION >= 13000
// The size is constant since 12.4; the fields have names since 13.0.
static_assert(sizeof(Resource) == sizeof(CUdevResource));
static_assert(offsetof(SmResource, smallest) == offsetof(CUdevSmResource, minSmPartitionSize));
static_assert(offsetof(SmResource, alignment) == offsetof(CUdevSmResource, smCoscheduledAlignment));
#endif

}  // namespace
}  // namespace gpulet::gpu::cuda_abi
