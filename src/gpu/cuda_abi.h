// The part of the CUDA driver's C interface that is used here, so that building needs no toolkit.
// tests/gpu/cuda_abi_check.cc compares it with cuda.h where that is installed. The aliases have the
// names of the library's symbols; "_v2" marks those whose symbol has that suffix.
#pragma once

#include <cstddef>

namespace gpulet::gpu::cuda_abi {

using Return = int;                       // CUresult
using DeviceMemory = unsigned long long;  // CUdeviceptr  NOLINT(google-runtime-int)
using Device = int;                       // CUdevice
using Context = void*;                    // CUcontext
using GreenContext = void*;               // CUgreenCtx
using Stream = void*;                     // CUstream
using Descriptor = void*;                 // CUdevResourceDesc

inline constexpr Return kSuccess = 0;
inline constexpr Return kInvalidValue = 1;
inline constexpr Return kNotInitialized = 3;
inline constexpr Return kDeinitialized = 4;
inline constexpr Return kStubLibrary = 34;
inline constexpr Return kDeviceUnavailable = 46;
inline constexpr Return kNoDevice = 100;
inline constexpr Return kInvalidDevice = 101;
inline constexpr Return kOperatingSystem = 304;
inline constexpr Return kNotSupported = 801;
inline constexpr Return kSystemNotReady = 802;
inline constexpr Return kSystemDriverMismatch = 803;
inline constexpr Return kMpsConnectionFailed = 805;
inline constexpr Return kMpsServerNotReady = 807;
inline constexpr Return kMpsMaxClientsReached = 808;
inline constexpr Return kInvalidResourceType = 914;
inline constexpr Return kInvalidResourceConfiguration = 915;

inline constexpr int kAttributeMultiprocessors = 16;
inline constexpr int kAttributeComputeMajor = 75;
inline constexpr int kAttributeMpsEnabled = 133;
inline constexpr int kResourceTypeSm = 1;
inline constexpr unsigned kGreenContextDefaultStream = 1;  // cuGreenCtxCreate requires it
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kRegisterPortable = 1;  // for all contexts

struct Uuid {
  unsigned char bytes[16];
};

struct SmResource {
  unsigned sms;
  unsigned smallest;   // 0: a driver older than this field
  unsigned alignment;  // likewise
};

// Opaque except for the type and the SM resource. From CUDA 13.1 on, it ends with a pointer in the
// former padding.
struct alignas(8) Resource {
  int type;
  unsigned char opaque[92];
  union {
    unsigned char padding[48];
    SmResource sm;
  };
};

using CuInit = Return(unsigned);
using CuDriverGetVersion = Return(int*);
using CuGetErrorName = Return(Return, const char**);
using CuGetErrorString = Return(Return, const char**);
using CuDeviceGetCount = Return(int*);
using CuDeviceGet = Return(Device*, int);
using CuDeviceGetUuid = Return(Uuid*, Device);  // _v2
using CuDeviceGetAttribute = Return(int*, int, Device);
using CuDevicePrimaryCtxRetain = Return(Context*, Device);
using CuDevicePrimaryCtxRelease = Return(Device);  // _v2
using CuCtxPushCurrent = Return(Context);          // _v2
using CuCtxPopCurrent = Return(Context*);          // _v2
using CuStreamCreate = Return(Stream*, unsigned);
using CuStreamDestroy = Return(Stream);                          // _v2
using CuMemHostRegister = Return(void*, std::size_t, unsigned);  // _v2
using CuMemHostUnregister = Return(void*);
using CuMemAlloc = Return(DeviceMemory*, std::size_t);                // _v2
using CuMemFree = Return(DeviceMemory);                               // _v2
using CuMemcpyHtoD = Return(DeviceMemory, const void*, std::size_t);  // _v2
// Since 12.4.
using CuDeviceGetDevResource = Return(Device, Resource*, int);
using CuDevSmResourceSplitByCount = Return(Resource*, unsigned*, const Resource*, Resource*,
                                           unsigned, unsigned);
using CuDevResourceGenerateDesc = Return(Descriptor*, Resource*, unsigned);
using CuGreenCtxCreate = Return(GreenContext*, Descriptor, Device, unsigned);
using CuGreenCtxDestroy = Return(GreenContext);
using CuGreenCtxGetDevResource = Return(GreenContext, Resource*, int);
using CuCtxFromGreenCtx = Return(Context*, GreenContext);
// Since 12.5.
using CuGreenCtxStreamCreate = Return(Stream*, GreenContext, unsigned, int);

}  // namespace gpulet::gpu::cuda_abi
