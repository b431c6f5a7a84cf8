// DaemonProcess: a program started as a process of its own, its output in a log file. It ends with
// its owner: by SIGTERM, then SIGKILL; and by SIGTERM from the kernel if the bench dies. One
// thread, which must outlive the process.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/base/time.h"

namespace gpulet::bench {

class DaemonProcess {
 public:
  // `mark`: NAME=VALUE of its environment, which its children inherit. Throws std::runtime_error
  // where it cannot be started.
  DaemonProcess(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                std::filesystem::path log, const std::string& mark);
  ~DaemonProcess();
  DaemonProcess(const DaemonProcess&) = delete;
  DaemonProcess& operator=(const DaemonProcess&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  void signal(int number) const;
  // Reaps it if it has ended.
  [[nodiscard]] bool alive();
  // False where it has not ended within `patience`.
  bool wait_for_end(Duration patience);
  // The status of waitpid; empty while it runs.
  [[nodiscard]] std::optional<int> end() const { return end_; }
  // The output so far.
  [[nodiscard]] std::string log() const;

 private:
  std::filesystem::path log_;
  pid_t pid_ = -1;
  std::optional<int> end_;
};

}  // namespace gpulet::bench
