// The part of NVML's C interface that is used here: types and constants of nvml.h, which are stable
// across drivers. Names ending in _v2 are the symbols of the current versions.
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
inline constexpr Return kInUse = 19;
inline constexpr Return kInsufficientResources = 23;

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

// MIG. A profile is requested by a number (NVML_GPU_INSTANCE_PROFILE_*); the reply has an id, which
// all other functions use.
using GpuInstance = void*;      // nvmlGpuInstance_t
using ComputeInstance = void*;  // nvmlComputeInstance_t

inline constexpr Count kGpuInstanceProfiles = 32;     // more than any driver has so far
inline constexpr Count kComputeInstanceProfiles = 8;  // one of them is the whole instance
inline constexpr Count kSharedEngines = 0;            // the only engine profile

struct Placement {
  Count start;  // in memory slices; for a compute instance in compute slices
  Count size;
};

struct GpuInstanceProfile {  // nvmlGpuInstanceProfileInfo_t
  Count id;
  Count peer_to_peer;
  Count slices;
  Count instances;  // at most
  Count multiprocessors;
  Count copy_engines;
  Count decoders;
  Count encoders;
  Count jpeg_engines;
  Count optical_flow_engines;
  unsigned long long memory_mb;
};

struct GpuInstanceInfo {  // nvmlGpuInstanceInfo_t
  Device device;
  Count id;
  Count profile_id;
  Placement placement;
};

struct ComputeInstanceProfile {  // nvmlComputeInstanceProfileInfo_t
  Count id;
  Count slices;
  Count instances;
  Count multiprocessors;
  Count copy_engines;
  Count decoders;
  Count encoders;
  Count jpeg_engines;
  Count optical_flow_engines;
};

struct RunningProcess {  // nvmlProcessInfo_t, since nvmlDeviceGetComputeRunningProcesses_v2
  Count process;
  unsigned long long memory;
  Count gpu_instance;
  Count compute_instance;
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
// nvmlDeviceGetPowerUsage, nvmlDeviceGetEnforcedPowerLimit: milliwatts.
using DevicePower = Return(Device, unsigned*);
// nvmlDeviceGetTotalEnergyConsumption: millijoules since the driver was loaded.
using DeviceEnergy = Return(Device, unsigned long long*);

using DeviceProfile = Return(Device, Count, GpuInstanceProfile*);  // ..GetGpuInstanceProfileInfo
// nvmlDeviceGetGpuInstancePossiblePlacements_v2: without a buffer it returns their number.
using DevicePlacements = Return(Device, Count profile_id, Placement*, Count*);
using DeviceInstances = Return(Device, Count profile_id, GpuInstance*, Count*);  // ..GpuInstances
using DeviceInstanceById = Return(Device, Count, GpuInstance*);
using CreateInstance = Return(Device, Count profile_id, const Placement*, GpuInstance*);
using DestroyInstance = Return(GpuInstance);  // nvmlGpuInstanceDestroy, of a compute one as well
using InstanceInfo = Return(GpuInstance, GpuInstanceInfo*);  // nvmlGpuInstanceGetInfo
using InstanceProfile = Return(GpuInstance, Count, Count engines, ComputeInstanceProfile*);
using InstanceParts = Return(GpuInstance, Count profile_id, ComputeInstance*, Count*);
using CreatePart = Return(GpuInstance, Count profile_id, ComputeInstance*);
using MigDeviceCount = Return(Device, Count*);            // nvmlDeviceGetMaxMigDeviceCount
using MigDeviceByIndex = Return(Device, Count, Device*);  // not_found: none of that number
using MigDeviceInstance = Return(Device, Count*);         // nvmlDeviceGetGpuInstanceId
using RunningProcesses = Return(Device, Count*, RunningProcess*);

}  // namespace gpulet::gpu::nvml_abi
