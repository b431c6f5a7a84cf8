// MpsKeeper: looks after one MPS daemon, and ends clients through it. What blocks happens on a
// thread of its own: a daemon that ends is started again, and a client is terminated through the
// daemon before it is killed. Its methods may be called from any thread.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "gpulet/core/status.h"
#include "gpulet/partition/drivers/mps_daemon.h"
#include "partition/drivers/descriptor.h"

namespace gpulet::partition {

class MpsKeeper {
 public:
  // `uuid`: of the device that the daemon is for.
  MpsKeeper(MpsDaemon daemon, MpsOptions options, std::string uuid);
  // Ends first whom it has been told to end.
  ~MpsKeeper();
  MpsKeeper(const MpsKeeper&) = delete;
  MpsKeeper& operator=(const MpsKeeper&) = delete;

  // What a client's process needs to find the daemon; of one that is started again, the same.
  [[nodiscard]] const std::map<std::string, std::string>& environment() const {
    return environment_;
  }
  // Why it takes no clients now; ok: it does.
  [[nodiscard]] Status ready() const;
  // As PartitionDriver::end. False where the process is none that could be watched.
  bool end(pid_t process);

 private:
  struct Client {
    pid_t process = 0;
    Descriptor handle;  // a pidfd: the number may be somebody else's by the time
    int attempts = 0;
  };

  void run();
  void look_after_daemon();
  void end_one(Client& client);
  [[nodiscard]] bool may_be_killed(pid_t process) const;
  void set_failure(Status failure);

  const MpsOptions options_;
  const std::string uuid_;
  const std::map<std::string, std::string> environment_;
  std::optional<MpsDaemon> daemon_;  // of the thread below
  mutable std::mutex mutex_;         // guards all that follows but the thread
  std::condition_variable changed_;
  std::deque<Client> to_end_;
  std::set<pid_t> ending_;
  Status failure_;
  bool leaving_ = false;
  std::thread thread_;  // last: it uses the members above
};

// What a client may take of its device's memory: what its models were found to need, with room for
// what a process needs of its own, or `otherwise` where that is not known (0). 0: no limit.
[[nodiscard]] std::uint64_t mps_memory_limit(std::uint64_t models_need, std::uint64_t device_bytes,
                                             std::uint64_t otherwise);
// The variable by which a client of a daemon with one device is held to it, and its value.
inline constexpr const char* kMpsMemoryVariable = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";
[[nodiscard]] std::string mps_memory_text(std::uint64_t limit);

}  // namespace gpulet::partition
