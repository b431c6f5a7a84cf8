// The partition drivers, one for each way to divide a device:
//   cpu_quota  CPU cores, by cgroups or pacing
//   green      an NVIDIA GPU, by green contexts within one process
//   mig        an NVIDIA GPU, by MIG instances
//   mps        an NVIDIA GPU, by MPS percentages
//   simulated  no device
// Threads: as PartitionDriver.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/gpu/cuda_driver.h"
#include "gpulet/gpu/nvml.h"
#include "gpulet/partition/driver.h"
#include "gpulet/partition/mig_geometry.h"

namespace gpulet::partition {

// ---- cpu_quota
//
// A device is a set of cores. A gpulet of p percent gets p percent of their time, by one of two
// mechanisms:
// - cgroup v2 or v1: the kernel's CPU bandwidth control, in one cgroup per gpulet below the
//   backend's own, named gpulet-<backend pid>-<gpulet id>. The period is 10 ms; with the default of
//   100 ms, a batch of 12 ms takes between 12 and 73 ms. Creating a driver removes the cgroups of
//   backends that no longer run.
// - pacing, where no cgroup is writable: a thread of this process measures the CPU time of each
//   gpulet's process and stops and continues it by signals, as a token bucket with the same period.
//   Less precise, and the thread itself uses CPU time.
//
// A loading process may run on any core of the machine. Under cgroups it may use the time of the
// whole device at a tenth of the normal weight. Under pacing it may use the time that no serving
// gpulet of the device holds, and at least its own share.
//
// A serving process is bound to the device's cores. Environment variables limit its numeric
// libraries to as many threads as the share has whole cores (at least one), because a spinning
// second thread would use up the quota. The process of an adjustable claim has as many threads as
// the device has cores, and idle threads do not spin.
//
// adjust() takes any amount above 0 up to the device's cores. The kernel accepts no quota below
// 1 ms, so amounts below 0.1 cores have a longer period: 20 ms for 0.05 cores, and 1 s for 0.001
// cores, the smallest amount that is enforced.
//
// With MemoryLimits, where cgroups include the memory controller, each gpulet also has a memory
// limit: the kernel kills a process that exceeds it, and no other. Memory that the process had
// before attach() does not count.

enum class CpuMechanism : std::uint8_t {
  automatic,  // cgroup where possible, otherwise pacing
  cgroup,
  pacing,
};

// How the gpulets of a driver share busy cores with other processes.
enum class CpuPriority : std::uint8_t {
  normal,
  low,  // a tenth of the weight that others have, under cgroups; pacing leaves it to nice()
};

// Limits of each gpulet's memory on the node.
struct MemoryLimits {
  double factor = 1;  // times the memory that the gpulet's models need
  std::uint64_t floor_bytes = 0;
  std::uint64_t device_bytes = 0;  // maximum for all gpulets together; 0: unknown
};

// The limit for models that need that many bytes (0: unknown): factor times the need, at least the
// floor, at most device_bytes. 0: no limit.
[[nodiscard]] std::uint64_t memory_limit(const MemoryLimits& limits, std::uint64_t needed_bytes);

// Fails with invalid (no cores, or a core that this process may not use) or unavailable (the
// required mechanism does not work here; the message says why).
[[nodiscard]] Result<std::unique_ptr<PartitionDriver>> make_cpu_quota_driver(
    std::vector<std::uint32_t> cores, CpuMechanism mechanism = CpuMechanism::automatic,
    std::optional<MemoryLimits> memory = {}, CpuPriority priority = CpuPriority::normal);

// The cores that this process may run on, ascending.
[[nodiscard]] std::vector<std::uint32_t> usable_cores();

// ---- green
//
// The gpulets of a GPU are green streams of one process, each on SMs of its own
// (gpu/cuda_driver.h). A change of size is a new stream: no new process, and no model is loaded
// again. Memory is not divided. A fatal fault ends the process and with it all gpulets of the GPU.
//
// The driver enforces nothing itself: it checks sizes and sets the environment of the process. The
// environment names one GPU, and an MPS pipe directory without a daemon. Otherwise a machine-wide
// daemon could take over the process, with its SM cap, its single user, and the faults of its other
// clients.

struct GreenGpu {
  std::string uuid;
  gpu::SmGroups sizes;
};

// Fails with invalid for a share below the smallest SM group; the message names the smallest share.
// The GPU would round it up to a group, and streams that fit by their shares would not fit on the
// GPU.
[[nodiscard]] Status check_green_size(const GreenGpu& gpu, Share share);

// The driver refuses (unavailable) more than two streams per SM block. A plan change doubles the
// streams for a while; beyond that, each stream has less of a block than planned.
[[nodiscard]] std::unique_ptr<PartitionDriver> make_green_driver(const GreenGpu& gpu);

// ---- mps
//
// A gpulet is a client process of the GPU's MPS daemon with a maximum percentage of the SMs and of
// the memory. The percentage is fixed when the process creates its CUDA context: a change of size
// is a new process. It is a cap that is rounded down to whole SMs. The process reports the SMs that
// it was granted, and refuses to serve outside MPS, where it would have the whole GPU.
//
// The memory limit follows from the need of the gpulet's models, plus the overhead of a process;
// where the need is unknown it is proportional to the share. The driver restarts a daemon that
// exits. It terminates a client through the daemon before it kills it, because killing a client
// with GPU work in flight can end its neighbours. It kills the process directly after a fault, when
// no work runs, and after the daemon refused three times. Blocking work runs on a thread of the
// driver.

struct MpsOptions {
  std::filesystem::path control = "nvidia-cuda-mps-control";  // looked up in PATH
  std::filesystem::path directory;  // for pipes and logs, with one folder per GPU
  // The user of the daemon and its clients: an MPS server serves one user at a time.
  std::optional<uid_t> user{};
  std::optional<gid_t> group{};
  Duration patience = std::chrono::seconds(5);  // per command
};

struct MpsGpu {
  std::string uuid;
  std::uint64_t memory_bytes = 0;
  std::uint32_t sms = 0;           // 0: unknown
  std::uint32_t max_clients = 48;  // 60 since CUDA 13.1
};

// The path of MPS's control program. Fails with not_found.
[[nodiscard]] Result<std::filesystem::path> find_mps_control(
    const std::filesystem::path& control = MpsOptions().control);

// Starts the GPU's MPS daemon or adopts a running one. Fails with unavailable (no such program, the
// daemon does not start or answer; the message says what to do) or invalid (the directory's path is
// too long for a socket).
[[nodiscard]] Result<std::unique_ptr<PartitionDriver>> make_mps_driver(const MpsGpu& gpu,
                                                                       const MpsOptions& options);

// ---- mig
//
// A gpulet is a process on a MIG instance: alone, or, with several processes per instance, as a
// client of the instance's own MPS daemon. The hardware isolates SMs, memory and fatal faults of
// instances.
//
// The driver creates an instance when it is first claimed, on its own thread. That takes up to
// seconds; until then grant() fails with unavailable and ready() is false. The driver keeps an
// instance without a gpulet for the next claim, and destroys it where it blocks another instance.
// Existing instances of other origin are treated alike. If another process uses a blocking
// instance, the claim fails with unavailable and names the process; the driver retries while the
// claim is repeated. Instances outlive the driver.
//
// The driver never changes the MIG mode. Creating instances requires root (gpu/nvml.h).

struct MigGpu {
  std::string uuid;
  MigGeometry geometry;
  std::uint32_t processes_per_instance = 1;
};

// Fails with invalid unless the claim has an instance of the geometry, with its nominal share.
// `device`: for the message.
[[nodiscard]] Status check_mig_claim(const MigGeometry& geometry, const Claim& claim,
                                     const std::string& device);

// Fails as MigDevice::open does, and with invalid if the profiles, placements or memory of the GPU
// are not those of the geometry. `mps` is used for more than one process per instance.
[[nodiscard]] Result<std::unique_ptr<PartitionDriver>> make_mig_driver(
    const MigGpu& gpu, const std::filesystem::path& nvml, const MpsOptions& mps);

// ---- simulated
//
// Enforces nothing: the proxies of a simulated device take the configured times, whatever their
// share. The driver checks only the contract of PartitionDriver: a share is 1..100 %, each id is
// granted once, and only granted ids are adjusted. It does not know how many cores the device has.
//
// A simulated MIG device creates an instance for its first gpulet and removes it with the last. The
// driver refuses gpulets without an instance, unknown instances and wrong shares (invalid), and
// instances that are incompatible with existing ones or full (unavailable, "in use", like NVML).

struct SimulatedInstances {
  MigGeometry geometry;
  std::uint32_t processes_per_instance = 1;
};

[[nodiscard]] std::unique_ptr<PartitionDriver> make_simulated_driver(
    std::optional<SimulatedInstances> instances = std::nullopt);

}  // namespace gpulet::partition
