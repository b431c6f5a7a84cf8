// NVML's C interface, as much of it as is used here: types and numbers of nvml.h, which stay as
// they are from one driver to the next. Names ending in _v2 are the symbols of the current
// versions.
#pragma once

namespace gpulet::gpu::nvml_abi {

using Return = int;      // nvmlReturn_t
using Device = void*;    // nvmlDevice_t
using Count = unsigned;  // C's unsigned int

inline constexpr Return kSuccess = 0;
inline constexpr Return kUninitialized = 1;
inline constexpr Return kInvalidArgument = 2;
inline constexpr Return kNotSupported = 3;
inline constexpr Return kNoPermission = 4;
inline constexpr Return kNotFound = 6;
inline constexpr Return kDriverNotLoaded = 9;
inline constexpr Return kLibraryNotFound = 12;
inline constexpr Return kGpuIsLost = 15;
inline constexpr Return kResetRequired = 16;
inline constexpr Return kVersionMismatch = 18;  // of kernel module and library

inline constexpr Count kMigEnabled = 1;
inline constexpr int kComputeModeProhibited = 2;
inline constexpr int kComputeModeExclusiveThread = 1;
inline constexpr int kClockSm = 1;
inline constexpr int kClockMemory = 2;

struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

using Init = Return();                                 // nvmlInit_v2
using Shutdown = Return();                             // nvmlShutdown
using ErrorString = const char*(Return);               // nvmlErrorString
using DriverVersion = Return(char*, Count);            // nvmlSystemGetDriverVersion
using DeviceCount = Return(Count*);                    // nvmlDeviceGetCount_v2
using DeviceByIndex = Return(Count, Device*);          // nvmlDeviceGetHandleByIndex_v2
using DeviceByUuid = Return(const char*, Device*);     // nvmlDeviceGetHandleByUUID
using DeviceText = Return(Device, char*, Count);       // nvmlDeviceGetUUID, nvmlDeviceGetName
using DeviceMemory = Return(Device, Memory*);          // nvmlDeviceGetMemoryInfo
using DeviceCapability = Return(Device, int*, int*);   // nvmlDeviceGetCudaComputeCapability
using DeviceMigMode = Return(Device, Count*, Count*);  // nvmlDeviceGetMigMode
using DeviceComputeMode = Return(Device, int*);        // nvmlDeviceGetComputeMode
using DeviceClock = Return(Device, int, unsigned*);    // nvmlDeviceGetClockInfo, in MHz

}  // namespace gpulet::gpu::nvml_abi
