// PartitionDriver: how a share of one device is put in force for the process that serves a gpulet.
//
// Life of a grant: grant() before the process exists gives the environment it must start with;
// attach() right after it was started, while it loads its models; activate() when it is ready to
// serve, from then on the share holds; release() when the process has ended (or never started). The
// backend's thread alone calls a driver; no call blocks for longer than a few file writes. A driver
// that can gives a gpulet another amount of its device while it runs: adjust().
// Failures: invalid (a share the device cannot give), unavailable (the mechanism refused; the
// message says what to do).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/core/failure.h"
#include "gpulet/core/ids.h"
#include "gpulet/core/share.h"
#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/partition/mig_geometry.h"
#include "gpulet/partition/traits.h"

namespace gpulet::partition {

// Variables by which a gpulet's process is told what it must find on its device before it may
// serve: its share in percent, held by the device's own means; and how many SMs the whole device
// has, where that is known. A process that cannot tell does not serve (proxy/share_check.h).
inline constexpr const char* kExpectedShareVariable = "GPULET_EXPECTED_SHARE";
inline constexpr const char* kDeviceSmsVariable = "GPULET_DEVICE_SMS";
// Which device it computes on, as LibTorch writes it: "cuda:0". Not set: the CPU.
inline constexpr const char* kDeviceVariable = "GPULET_DEVICE";

// What a gpulet is to have of the device.
struct Claim {
  GpuletId gpulet;
  Share share;
  std::uint64_t memory_bytes = 0;  // what its models were found to need; 0: not known
  // Set exactly where the device is divided by MIG: then the share is what the instance is called,
  // and as many gpulets may claim one instance as the device has processes per instance.
  std::optional<MigInstance> instance{};
  // Its cores will change while it runs (adjust). Its libraries choose their threads once, when the
  // process starts: so they are told of as many as the whole device has cores, and that a thread
  // which waits sleeps. Were they told of the share's, more cores would go unused; and with fewer
  // cores than threads, those that spin would burn the time that the working ones need.
  bool adjustable = false;
};

struct Grant {
  std::map<std::string, std::string>
      environment;  // for the gpulet's process, on top of the backend's own
  // It must be there when the program starts: one that was started ahead of its gpulet will not do.
  bool read_at_start = false;
};

// Whether the kernel has ended a gpulet's process for want of memory.
enum class OutOfMemory : std::uint8_t {
  no,
  at_its_limit,   // it took more than it may
  with_the_node,  // it was within its limit, and the node had no more
};

class PartitionDriver {
 public:
  virtual ~PartitionDriver() = default;

  // What holds the shares, for the status: "cgroup v1", "cgroup v2", "pacing", "simulated", ...
  [[nodiscard]] virtual std::string mechanism() const = 0;
  [[nodiscard]] virtual Traits traits() const { return {}; }
  // What it counts against where grant, attach or activate fails.
  [[nodiscard]] virtual FailureCause blame() const { return FailureCause::device; }

  // Reserves what is claimed. A second grant for one id is a bug.
  [[nodiscard]] virtual Result<Grant> grant(const Claim& claim) = 0;
  // Puts the process under the driver's hand, with a loose bound that lets it load without starving
  // its neighbours.
  [[nodiscard]] virtual Status attach(GpuletId gpulet, pid_t process) = 0;
  // The share is in force when this returns.
  [[nodiscard]] virtual Status activate(GpuletId gpulet) = 0;
  // From now on so many cores' worth of time instead of the share that was claimed: 0.1, 1.5, up to
  // all that the device has. In force when this returns where the share is, else with activate();
  // gone with release(). The process notices nothing else. Fails with invalid on other amounts and
  // where the device cannot; then what was in force stays.
  [[nodiscard]] virtual Status adjust(GpuletId /*gpulet*/, double /*cores*/) {
    return {StatusCode::invalid,
            "this device's shares are fixed while a gpulet runs; make one of another size instead"};
  }
  // Whether what holds the shares is at work now. While it is not, a grant fails with unavailable,
  // and asking again later helps.
  [[nodiscard]] virtual bool ready() const { return true; }
  // The process does not end by itself, and must. True: the driver ends it, in a while, on a thread
  // of its own, and nobody else may kill it before; called again for the same process, it says so
  // again. False: it may be killed at once. REQUIRES: the process was not waited for yet.
  [[nodiscard]] virtual bool end(GpuletId /*gpulet*/, pid_t /*process*/) { return false; }
  // Asked when its process has ended, before release().
  [[nodiscard]] virtual OutOfMemory out_of_memory(GpuletId /*gpulet*/) const {
    return OutOfMemory::no;
  }
  // Forgets the gpulet and removes everything made for it. Never fails; unknown ids are ignored.
  virtual void release(GpuletId gpulet) = 0;
};

}  // namespace gpulet::partition
