// The frontend and the backend that `gpulet serve` runs as its children. One thread.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/base/status.h"

namespace gpulet::tools {

// A daemon in a process group of its own, so that Ctrl-C in a terminal does not reach it. It gets
// SIGTERM when this process ends, however that happens.
class LocalDaemon {
 public:
  // `log`: where its output goes. Fails with unavailable.
  [[nodiscard]] static Result<LocalDaemon> start(std::string name,
                                                 const std::filesystem::path& program,
                                                 const std::vector<std::string>& arguments,
                                                 std::filesystem::path log);
  LocalDaemon(LocalDaemon&& other) noexcept;
  LocalDaemon& operator=(LocalDaemon&&) = delete;
  LocalDaemon(const LocalDaemon&) = delete;
  LocalDaemon& operator=(const LocalDaemon&) = delete;
  // Kills the process if it still runs.
  ~LocalDaemon();

  [[nodiscard]] const std::string& name() const { return name_; }
  // Empty while it runs; "ended with exit code 2", "was killed by signal 9".
  [[nodiscard]] std::optional<std::string> end();
  // Asks it to stop and waits. Returns how it ended, or that it had to be killed.
  [[nodiscard]] Status stop();
  // The last lines of its output, each with an indentation.
  [[nodiscard]] std::string end_of_log() const;

 private:
  LocalDaemon(std::string name, pid_t process, std::filesystem::path log)
      : name_(std::move(name)), process_(process), log_(std::move(log)) {}

  std::string name_;
  pid_t process_;  // 0: it has ended
  std::filesystem::path log_;
  std::string ended_;
  bool failed_ = false;
};

}  // namespace gpulet::tools
