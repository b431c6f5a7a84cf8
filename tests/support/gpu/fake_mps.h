// FakeMps: a folder that configures tests/support/gpu/fake_mps_control.sh and records its commands.
// One per process: the program finds the folder by an environment variable.
#pragma once

#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "gpulet/partition/drivers/drivers.h"
#include "tests/support/gpu/proxy_environment.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::support {

class FakeMps {
 public:
  FakeMps() {
    ::setenv("GPULET_FAKE_MPS", folder_.path().c_str(), 1);
    share_with_proxies();
  }
  // Kills the daemons that it started.
  ~FakeMps() {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path())) {
      if (entry.path().extension() == ".pid") kill_daemon(entry.path());
    }
    ::unsetenv("GPULET_FAKE_MPS");
  }
  FakeMps(const FakeMps&) = delete;
  FakeMps& operator=(const FakeMps&) = delete;

  [[nodiscard]] partition::MpsOptions options() const {
    partition::MpsOptions options;
    options.control = GPULET_SOURCE_DIR "/tests/support/gpu/fake_mps_control.sh";
    options.directory = folder_.path();
    return options;
  }

  void set(const std::string& name, const std::string& text = "") const {
    std::ofstream(folder_.path() / name) << text;
  }
  void clear(const std::string& name) const { std::filesystem::remove(folder_.path() / name); }
  [[nodiscard]] std::string recorded(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(folder_.path() / name).rdbuf();
    return text.str();
  }
  [[nodiscard]] bool received(const std::string& command) const {
    return recorded("commands").find(command) != std::string::npos;
  }
  [[nodiscard]] std::filesystem::path pid_file(const std::string& uuid) const {
    return folder_.path() / uuid / "pipe" / "nvidia-cuda-mps-control.pid";
  }
  [[nodiscard]] static pid_t pid_in(const std::filesystem::path& file) {
    pid_t process = 0;
    std::ifstream(file) >> process;
    return process;
  }
  static void kill_daemon(const std::filesystem::path& file) {
    const auto process = pid_in(file);
    if (process > 0) ::kill(process, SIGKILL);
  }

 private:
  TemporaryFolder folder_;
};

}  // namespace gpulet::support
