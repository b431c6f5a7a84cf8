// Pacer: holds processes to a share of CPU time from user space.
//
// One thread keeps a token bucket per process: it fills with the process's cores' worth of time and
// empties by the CPU time that the kernel counted for it. A process that overdraws is stopped by
// SIGSTOP until the debt is paid, so that the mean is exact whatever a single turn overshoots.
// Signals go through a pidfd: an id that was reused by another process cannot be hit. All methods
// may be called from one thread; the pacing thread is the only other.
#pragma once

#include <sys/types.h>
#include <time.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "gpulet/core/ids.h"
#include "gpulet/core/status.h"

namespace gpulet::partition {

class Pacer {
 public:
  Pacer();
  // Lets every process run again.
  ~Pacer();
  Pacer(const Pacer&) = delete;
  Pacer& operator=(const Pacer&) = delete;

  // Paces the process from now on to that many cores' worth of time. Fails with unavailable.
  [[nodiscard]] Status add(GpuletId gpulet, pid_t process, double cores);
  void set(GpuletId gpulet, double cores);
  // Forgets the process and lets it run.
  void remove(GpuletId gpulet);

 private:
  using Clock = std::chrono::steady_clock;
  struct Paced {
    int pidfd = -1;
    clockid_t cpu_clock{};
    double cores = 0;
    double tokens = 0;  // seconds of CPU time it may still use; negative: a debt
    double used = 0;    // seconds of CPU time at the last look
    Clock::time_point looked;
    Clock::time_point next_look;
    bool stopped = false;
    bool ended = false;
  };

  void run();
  static void look(Paced& paced, Clock::time_point now);
  static void let_run(Paced& paced);

  std::mutex mutex_;  // between the owner's calls and the pacing thread
  std::condition_variable changed_;
  std::map<GpuletId, Paced> paced_;  // guarded by mutex_
  bool ending_ = false;              // guarded by mutex_
  std::thread thread_;               // last: it uses the members above
};

}  // namespace gpulet::partition
