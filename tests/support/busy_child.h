// A process that is always busy, and the CPU time that a process has used.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <system_error>
#include <thread>

namespace gpulet::support {

// Of all its threads, ended ones too. Throws std::system_error where there is no such process.
inline double cpu_seconds(pid_t process) {
  clockid_t clock{};
  if (const int error = ::clock_getcpuclockid(process, &clock); error != 0)
    throw std::system_error(error, std::generic_category(), "clock_getcpuclockid");
  timespec time{};
  if (::clock_gettime(clock, &time) != 0)
    throw std::system_error(errno, std::generic_category(), "clock_gettime");
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// A child whose threads never pause, until it is killed.
class BusyChild {
 public:
  explicit BusyChild(std::size_t threads = 1) : pid_(::fork()) {
    if (pid_ != 0) return;
    const auto spin = [] {
      for (volatile unsigned spins = 0;;) spins = spins + 1;
    };
    for (std::size_t more = 1; more < threads; ++more) std::thread(spin).detach();
    spin();
  }
  ~BusyChild() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  BusyChild(const BusyChild&) = delete;
  BusyChild& operator=(const BusyChild&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] double cpu_seconds() const { return support::cpu_seconds(pid_); }

 private:
  pid_t pid_;
};

}  // namespace gpulet::support
