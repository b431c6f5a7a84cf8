// MpsDaemon: the control daemon of NVIDIA's Multi-Process Service for one GPU: started, or taken
// over where one runs already. One daemon per GPU, each with its own pipe and log directory: a
// fatal fault reaches all clients of a daemon's server on every device that they share, and so
// stays on one GPU.
//
// Everything about shares goes through the environment of the process that gets one, never through
// the daemon: its percentage is one for all that start from then on, so two processes that start
// together would swap theirs. The daemon stays at 100 %.
//
// Commands go to `nvidia-cuda-mps-control` on its standard input and are bounded in time. Failures:
// unavailable (no such program, it does not start, it does not answer; the message says what to
// do), invalid (a directory that is too long for a socket's name). One thread at a time; calls
// block, most for as long as that program takes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/core/status.h"
#include "gpulet/core/time.h"

namespace gpulet::partition {

struct MpsOptions {
  std::filesystem::path control = "nvidia-cuda-mps-control";  // looked for in PATH
  std::filesystem::path directory;  // of pipes and logs, one folder below it per GPU
  // Whom daemon and clients run as: a server has clients of one user at a time.
  std::optional<uid_t> user{};
  std::optional<gid_t> group{};
  Duration patience = std::chrono::seconds(5);  // for one command
};

// Where PATH has MPS's control program; the place itself where one is named. Fails with not_found.
[[nodiscard]] Result<std::filesystem::path> find_mps_control(
    const std::filesystem::path& control = MpsOptions().control);

enum class MpsServerState : std::uint8_t {
  none,  // no client yet, so no server
  initializing,
  active,
  fault,  // takes no clients until those it has are gone
};

class MpsDaemon {
 public:
  // Starts the GPU's daemon, or adopts the one that answers in its pipe directory. What a dead one
  // left there is removed. One that answers and does not leave its clients the whole GPU is not
  // adopted: every share would be smaller than it says.
  [[nodiscard]] static Result<MpsDaemon> start(const MpsOptions& options,
                                               const std::string& gpu_uuid);

  [[nodiscard]] bool adopted() const;
  // Whether its process is still there. Does not block.
  [[nodiscard]] bool running() const;
  // What a client's process needs to find this daemon, before CUDA is first used in it.
  [[nodiscard]] std::map<std::string, std::string> client_environment() const;

  [[nodiscard]] Result<MpsServerState> state() const;
  // Process ids, as this machine's others see them.
  [[nodiscard]] Result<std::vector<pid_t>> clients() const;
  // Ends a client whose GPU work is not done, without hurting the others; the process may be killed
  // afterwards. Takes up to the patience. Fails with not_found where it is no client.
  [[nodiscard]] Status terminate(pid_t client) const;

  MpsDaemon(MpsDaemon&&) noexcept;
  MpsDaemon& operator=(MpsDaemon&&) noexcept;
  ~MpsDaemon();  // quits a daemon that it started, and waits for that; leaves one that it adopted

 private:
  class Impl;
  explicit MpsDaemon(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpulet::partition
