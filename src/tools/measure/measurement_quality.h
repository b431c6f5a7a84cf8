// Whether measured times can be trusted: sustained times with their spread, other users of the CPU
// cores, the clocks of a GPU, and cells of a profile that contradict their neighbours.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/base/time.h"
#include "gpulet/profile/profile.h"

namespace gpulet::tools {

inline constexpr std::size_t kFewestRuns = 3;  // batches that a measurement needs at least
inline constexpr int kWarmUpFraction = 10;     // a warm-up takes a tenth of the measurement's time

// The time per batch of a gpulet that always has another batch to run, from the intervals between
// its responses. One thread.
//
// Batches are averaged over blocks of a given length (a longer batch is a block of its own), and
// the result is the median of the blocks, which short disturbances of the machine do not change.
// The median of single batches would be wrong: a batch shorter than a slice of a CPU quota mostly
// runs at full speed, and every few batches the process stands still for the rest of the period. A
// 20 % gpulet would seem to have the rate of a whole core.
class SustainedTime {
 public:
  explicit SustainedTime(Duration block) : block_(block) {}

  void add(Duration interval);

  [[nodiscard]] std::size_t batches() const { return intervals_ms_.size(); }
  [[nodiscard]] Duration total() const { return total_; }
  // REQUIRES, as do the three functions below: batches() > 0.
  [[nodiscard]] double median_ms() const;
  // Of the intervals, not the blocks.
  [[nodiscard]] double p99_ms() const;
  // The coefficient of variation of batches that vary independently and whose blocks vary as these
  // do. That of the intervals would be wrong for the same reason as their median. 0 for fewer than
  // two blocks.
  [[nodiscard]] double cv() const;
  // The possible error of the median as a fraction of it: 1.57 interquartile ranges of the blocks
  // divided by the root of their number, the half width of its 95 % confidence interval for
  // independent blocks. Infinite for fewer than three blocks.
  [[nodiscard]] double spread() const;

 private:
  [[nodiscard]] std::vector<double> sorted_blocks() const;

  Duration block_;
  std::vector<double> blocks_ms_;
  std::vector<double> intervals_ms_;
  Duration total_{};
  Duration open_block_{};  // sum of the block that is not complete
  int open_batches_ = 0;
};

// Other users of a machine make batches slower, never faster, and often only for some cells of a
// profile. A latency that is too high contradicts its neighbours: a batch takes at most as long as
// a larger batch or as its parts one after another, and halving its share at most doubles its time.
// The functions below are pure.

// A cell beyond this times what its neighbours allow is in doubt. Caches cause less.
inline constexpr double kDoubtfulExcess = 1.4;

// The cell's latency over what the next batches and the next sizes allow. 0 without neighbours.
[[nodiscard]] double excess_over_neighbours(const std::vector<profile::LatencySample>& samples,
                                            std::size_t cell);

// Marks the cells beyond kDoubtfulExcess that have no other doubt.
void doubt_by_neighbours(std::vector<profile::LatencySample>& samples);

// The better of two measurements of a cell: the one without doubt, otherwise the faster one.
[[nodiscard]] profile::LatencySample better_of(const profile::LatencySample& a,
                                               const profile::LatencySample& b);

// Keeps this thread, and those it starts meanwhile, off the cores during its lifetime.
class CoreAvoidance {
 public:
  explicit CoreAvoidance(const std::vector<std::uint32_t>& cores);
  ~CoreAvoidance();
  CoreAvoidance(const CoreAvoidance&) = delete;
  CoreAvoidance& operator=(const CoreAvoidance&) = delete;

  // False if the thread may not run on any other core.
  [[nodiscard]] bool active() const { return active_; }

 private:
  cpu_set_t before_{};
  bool active_ = false;
};

// How much of some cores was used by others while a process was measured there, from /proc/stat and
// /proc/PID/stat (proc(5)). Interrupts and the time that a hypervisor took count as others.
// Blocking reads of /proc; one thread.
class CoreUsageMonitor {
 public:
  // No cores: measures nothing. `shared`: this process runs there, and its time does not count.
  CoreUsageMonitor(std::vector<std::uint32_t> cores, bool shared,
                   std::filesystem::path proc = "/proc");

  void start(pid_t process);
  // Since start(), as a fraction of the cores' time. Empty if the kernel does not report it, or if
  // too little time has passed for accounts in ticks of usually 10 ms.
  [[nodiscard]] std::optional<double> used_by_others() const;

 private:
  struct Ticks {
    std::uint64_t all = 0;     // of the cores
    std::uint64_t used = 0;    // by any process
    std::uint64_t stolen = 0;  // by the hypervisor
    std::uint64_t own = 0;     // by the measurement
  };
  [[nodiscard]] std::optional<Ticks> read() const;

  std::vector<std::uint32_t> cores_;
  bool shared_;
  std::filesystem::path proc_;
  pid_t process_ = 0;
  std::optional<Ticks> before_;
};

// The range of clocks at which a GPU ran while it was measured. A thread of its own samples the
// clocks several times a second, which takes microseconds of a core.
class GpuClockMonitor {
 public:
  explicit GpuClockMonitor(std::string gpu_uuid);
  ~GpuClockMonitor();
  GpuClockMonitor(const GpuClockMonitor&) = delete;
  GpuClockMonitor& operator=(const GpuClockMonitor&) = delete;

  // Samples during its lifetime. A null monitor does nothing.
  class Sampling {
   public:
    explicit Sampling(GpuClockMonitor* monitor);
    ~Sampling();
    Sampling(const Sampling&) = delete;
    Sampling& operator=(const Sampling&) = delete;

   private:
    GpuClockMonitor* monitor_;
  };

  // The lowest and highest clocks, as "sm_clock_mhz": "1755-1980". Empty without samples.
  [[nodiscard]] profile::Provenance observed() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpulet::tools
