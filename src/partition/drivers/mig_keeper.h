// MigKeeper: which instances of one GPU there are, who has them, and the thread that makes and
// destroys them. Its methods do not block; one thread calls them.
//
// An instance is wanted by asking for it. The thread makes room for it, makes it, starts the MPS
// daemon in it where several processes share it, and from then on whoever asks has it. What cannot
// be done now is tried again for as long as it is asked for.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gpulet/core/ids.h"
#include "gpulet/core/status.h"
#include "gpulet/gpu/mig_device.h"
#include "gpulet/partition/drivers/mig.h"
#include "gpulet/partition/drivers/mps_daemon.h"
#include "gpulet/partition/mig_geometry.h"
#include "partition/drivers/mps_keeper.h"

namespace gpulet::partition {

class MigKeeper {
 public:
  struct Held {
    gpu::MigDeviceInstance instance;
    std::map<std::string, std::string> daemon{};  // its environment; empty: it has none
  };

  MigKeeper(gpu::MigDevice device, std::vector<gpu::MigDeviceInstance> there, MigGpu gpu,
            MpsOptions mps);
  ~MigKeeper();
  MigKeeper(const MigKeeper&) = delete;
  MigKeeper& operator=(const MigKeeper&) = delete;

  // Fails with unavailable: it is being made, its place or all of it is taken, something is in its
  // way; internal: NVML's words. REQUIRES: the instance exists in the geometry.
  [[nodiscard]] Result<Held> hold(GpuletId gpulet, const MigInstance& instance);
  void let_go(GpuletId gpulet);
  // Nothing is being made or waited for.
  [[nodiscard]] bool ready() const;
  // As PartitionDriver::end.
  [[nodiscard]] bool end(GpuletId gpulet, pid_t process);

 private:
  using Clock = std::chrono::steady_clock;
  struct Holder {
    MigInstance instance;
    std::string uuid;
  };
  struct Wanted {
    Clock::time_point asked;
    Status refusal;  // of the last try
  };

  // Under the mutex:
  [[nodiscard]] Status place_for(const MigInstance& instance) const;
  [[nodiscard]] const gpu::MigDeviceInstance* find(const MigInstance& instance) const;
  [[nodiscard]] bool in_the_way(const gpu::MigDeviceInstance& there,
                                const MigInstance& instance) const;
  void settle(const MigInstance& instance, Status how);

  // On the thread, without the mutex:
  void run();
  [[nodiscard]] Status make(const MigInstance& instance);
  [[nodiscard]] Status look();
  [[nodiscard]] Status make_room(const MigInstance& instance);
  [[nodiscard]] Status start_daemon(const MigInstance& instance);

  const MigGpu gpu_;
  const MpsOptions mps_;
  const gpu::MigDevice device_;  // of the thread
  mutable std::mutex mutex_;     // guards all that follows but the thread
  std::condition_variable changed_;
  std::vector<gpu::MigDeviceInstance> there_;
  std::map<GpuletId, Holder> holders_;
  std::map<MigInstance, Wanted> wanted_;
  std::map<MigInstance, Status> failed_;                       // until it is asked for again
  std::map<std::string, std::shared_ptr<MpsKeeper>> daemons_;  // by UUID of the instance
  bool leaving_ = false;
  std::thread thread_;  // last: it uses the members above
};

}  // namespace gpulet::partition
