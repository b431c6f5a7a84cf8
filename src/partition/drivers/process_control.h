// Other processes without cgroups: pidfds, CPU affinity, pacing by signals, and running programs to
// their end. Linux.
#pragma once

#include <sys/types.h>
#include <time.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gpulet/base/files.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"

namespace gpulet::partition {

// A pidfd names its process even after the process id was reused. Invalid where there is no such
// process. Any thread.
[[nodiscard]] FileDescriptor open_pidfd(pid_t process);
// Sends the signal; false where the process is gone.
bool send_signal(const FileDescriptor& pidfd, int signal);
// Waits up to that time for the exit.
[[nodiscard]] bool has_exited(const FileDescriptor& pidfd,
                              std::chrono::milliseconds wait = std::chrono::milliseconds(0));

// Binds all threads of the process to these cores; new threads inherit the binding. Succeeds for a
// process that has ended: its exit is reported elsewhere. Any thread.
[[nodiscard]] Status bind_to_cores(pid_t process, const std::vector<std::uint32_t>& cores);

// Pacer: limits processes to a share of CPU time from user space.
//
// A thread keeps a token bucket for each process. The bucket fills at the rate of the process's
// cores and empties by the CPU time that the kernel counts. A process that overdraws its bucket is
// stopped by SIGSTOP until the debt is paid, so the mean is exact even where single slices
// overshoot. Call all methods from one thread.
class Pacer {
 public:
  Pacer();
  // Continues all processes.
  ~Pacer();
  Pacer(const Pacer&) = delete;
  Pacer& operator=(const Pacer&) = delete;

  // Limits the process to that many cores' worth of time. Fails with unavailable.
  [[nodiscard]] Status add(GpuletId gpulet, pid_t process, double cores);
  void set(GpuletId gpulet, double cores);
  // Forgets the process and continues it.
  void remove(GpuletId gpulet);

 private:
  using Clock = std::chrono::steady_clock;
  struct Paced {
    FileDescriptor pidfd;
    clockid_t cpu_clock{};
    double cores = 0;
    double tokens = 0;  // seconds of CPU time left; negative: a debt
    double used = 0;    // seconds of CPU time at the last sample
    Clock::time_point sampled;
    Clock::time_point next_sample;
    bool stopped = false;
    bool ended = false;
  };

  void run();
  static void sample(Paced& paced, Clock::time_point now);
  static void resume(const Paced& paced);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<GpuletId, Paced> paced_;  // guarded by mutex_
  bool stopping_ = false;            // guarded by mutex_
  std::thread thread_;               // last: it uses the members above
};

// ---- running programs, with limits on time and output. Blocking; any thread.

struct Command {
  std::filesystem::path program;  // a path, not only a name
  std::vector<std::string> arguments{};
  std::map<std::string, std::string> environment{};  // in addition to this process's own
  std::vector<std::string> without{};                // variables to remove from the environment
  std::string input{};                               // at most 4 KiB
  std::optional<uid_t> user{};                       // takes privileges
  std::optional<gid_t> group{};
  Duration patience = std::chrono::seconds(5);
};

struct CommandOutput {
  int exit_code = 0;
  std::string text;  // standard output and error, the first 64 KiB
};

// Fails with unavailable (the program does not start, or a signal ended it) or timeout; the program
// and its process group are then killed. Processes in other groups, such as a daemon that it
// started, are neither waited for nor killed.
[[nodiscard]] Result<CommandOutput> run_command(const Command& command);

// The path of a program in PATH; a name with a folder is returned as it is. Fails with not_found.
[[nodiscard]] Result<std::filesystem::path> find_program(const std::filesystem::path& name);

}  // namespace gpulet::partition
