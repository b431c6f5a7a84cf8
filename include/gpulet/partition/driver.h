// PartitionDriver: enforces a gpulet's share of one device on the process that serves it.
//
// Life of a grant: grant() precedes the process and returns the environment that it must start
// with. attach() follows right after the start, while the process loads its models. activate()
// follows when the process is ready to serve; from then on the share is in force. release() follows
// when the process has ended or never started. adjust() changes the share of a running gpulet where
// the driver supports it. Only the backend's thread calls a driver. No call blocks for longer than
// a few file writes.
//
// Failures: invalid (a share that the device cannot give), unavailable (the mechanism refused; the
// message says what to do), internal (a violated contract).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "gpulet/base/status.h"
#include "gpulet/core/failure.h"
#include "gpulet/core/ids.h"
#include "gpulet/partition/mig_geometry.h"
#include "gpulet/partition/traits.h"

namespace gpulet::partition {

// Environment variables for a gpulet's process: the share that it must find enforced on its device,
// in percent, and the number of SMs of the whole device, if known. A process that cannot verify its
// share does not serve (proxy/share_check.h).
inline constexpr const char* kExpectedShareVariable = "GPULET_EXPECTED_SHARE";
inline constexpr const char* kDeviceSmsVariable = "GPULET_DEVICE_SMS";
// The device to compute on, in LibTorch's notation: "cuda:0". Not set: the CPU.
inline constexpr const char* kDeviceVariable = "GPULET_DEVICE";

// The part of the device that a gpulet asks for.
struct Claim {
  GpuletId gpulet;
  Share share;
  std::uint64_t memory_bytes = 0;  // measured need of its models; 0: unknown
  // Set exactly where MIG divides the device. The share is then the instance's nominal share, and
  // several gpulets may claim one instance, up to the device's processes per instance.
  std::optional<MigInstance> instance{};
  // Whether adjust() will change its cores while it runs. Libraries choose their number of threads
  // once, at the start of the process. An adjustable process therefore gets as many threads as the
  // whole device has cores, and waiting threads sleep. With threads for the initial share only,
  // additional cores would stay unused; with spinning threads, a small share would go into waiting.
  bool adjustable = false;
};

struct Grant {
  std::map<std::string, std::string> environment;  // in addition to the backend's own
  // The environment must be set at the start of the process, so a pre-started process cannot be
  // used.
  bool read_at_start = false;
};

// Whether the kernel killed a gpulet's process for lack of memory.
enum class OutOfMemory : std::uint8_t {
  no,
  at_its_limit,   // the process exceeded its own limit
  with_the_node,  // the process was within its limit, but the node ran out of memory
};

class PartitionDriver {
 public:
  virtual ~PartitionDriver() = default;

  // The mechanism for the status: "cgroup v1", "cgroup v2", "pacing", "simulated", ...
  [[nodiscard]] virtual std::string mechanism() const = 0;
  [[nodiscard]] virtual Traits traits() const { return {}; }
  // The cause to record for a failure of grant, attach or activate.
  [[nodiscard]] virtual FailureCause blame() const { return FailureCause::device; }

  // Reserves the claim. A second grant for one id is a bug.
  [[nodiscard]] virtual Result<Grant> grant(const Claim& claim) = 0;
  // Takes control of the process, with a loose limit that lets it load without starving its
  // neighbours. The default suits drivers whose environment enforces the share from the first use
  // of the device on.
  [[nodiscard]] virtual Status attach(GpuletId /*gpulet*/, pid_t /*process*/) { return {}; }
  // The share is in force when this returns.
  [[nodiscard]] virtual Status activate(GpuletId /*gpulet*/) { return {}; }
  // Replaces the claimed share by an amount of cores: 0.1, 1.5, up to all cores of the device.
  // Takes effect at once, or with activate() if that is still to come; release() ends it. The
  // process is not interrupted. Fails with invalid for other amounts and for devices without
  // support; the share in force then stays.
  [[nodiscard]] virtual Status adjust(GpuletId /*gpulet*/, double /*cores*/) {
    return {StatusCode::invalid,
            "this device cannot resize a running gpulet; create one of another size instead"};
  }
  // Whether the mechanism works now. While it does not, grant() fails with unavailable and may
  // succeed later.
  [[nodiscard]] virtual bool ready() const { return true; }
  // Ends a process that must be killed. True: the driver kills it later on a thread of its own, and
  // the caller must not; repeated calls for the process return true as well. False: the caller may
  // kill it at once. REQUIRES: the process has not been reaped yet.
  [[nodiscard]] virtual bool end(GpuletId /*gpulet*/, pid_t /*process*/) { return false; }
  // Called after the gpulet's process has ended, before release().
  [[nodiscard]] virtual OutOfMemory out_of_memory(GpuletId /*gpulet*/) const {
    return OutOfMemory::no;
  }
  // Forgets the gpulet and removes everything that was made for it. Never fails; ignores unknown
  // ids.
  virtual void release(GpuletId gpulet) = 0;
};

// For implementations of grant(). Fails with invalid for a share outside of 1..100 %, and with
// internal for a gpulet that was granted a share before.
[[nodiscard]] inline Status check_claim(const Claim& claim, bool granted) {
  if (!claim.share.valid()) {
    return {StatusCode::invalid,
            "a gpulet's share must be 1..100 %; was " + std::to_string(claim.share.percent)};
  }
  if (!granted) return {};
  return {StatusCode::internal, name_of(claim.gpulet) + " has a share already"};
}

}  // namespace gpulet::partition
