// BusyWatch: how much of some CPU cores others used while a process was measured there, by the
// kernel's accounts (proc(5): /proc/stat, /proc/PID/stat). Whatever is not the measured process
// counts, interrupts and the time that a hypervisor gave to somebody else as well. The process that
// measures stays off those cores where it can (OffCores). Blocking reads of /proc; one thread.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace gpulet::tools {

// Keeps the calling thread off those cores while it lives. Threads and processes that it starts
// meanwhile begin there as well.
class OffCores {
 public:
  explicit OffCores(const std::vector<std::uint32_t>& cores);
  ~OffCores();
  OffCores(const OffCores&) = delete;
  OffCores& operator=(const OffCores&) = delete;

  // False where the thread may run on no others.
  [[nodiscard]] bool off() const { return off_; }

 private:
  cpu_set_t before_{};
  bool off_ = false;
};

class BusyWatch {
 public:
  // `cores` empty: nothing is known of any measurement. `shared`: this process runs on those cores
  // as well, and what it uses is no disturbance.
  BusyWatch(std::vector<std::uint32_t> cores, bool shared, std::filesystem::path proc = "/proc");

  void begin(pid_t process);
  // Since begin(), as a fraction of the cores' time. Nothing: the kernel does not tell, or too
  // little time has passed for accounts that go by ticks of mostly 10 ms.
  [[nodiscard]] std::optional<double> end() const;

 private:
  struct Ticks {
    std::uint64_t all = 0;     // of the cores
    std::uint64_t used = 0;    // of them, by whoever ran there
    std::uint64_t stolen = 0;  // of them, by the hypervisor
    std::uint64_t own = 0;     // of the measurement
  };
  [[nodiscard]] std::optional<Ticks> look() const;

  std::vector<std::uint32_t> cores_;
  bool shared_;
  std::filesystem::path proc_;
  pid_t process_ = 0;
  std::optional<Ticks> before_;
};

}  // namespace gpulet::tools
