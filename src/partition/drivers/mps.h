// NVIDIA's Multi-Process Service for one device: its control daemon, and a supervisor that keeps
// the daemon running and ends its clients safely.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gpulet/base/files.h"
#include "gpulet/base/status.h"
#include "gpulet/partition/drivers/drivers.h"
#include "partition/drivers/process_control.h"

namespace gpulet::partition {

enum class MpsServerState : std::uint8_t {
  none,  // no server, because no client has connected yet
  initializing,
  active,
  fault,  // accepts no clients until the present ones are gone
};

// MpsDaemon: the control daemon of one GPU or MIG instance, started or adopted. Each daemon has its
// own pipe and log directory, because a fatal fault reaches all clients of a server on all devices
// that they share.
//
// Shares are set only in the environment of the client process, never through the daemon: the
// daemon's percentage applies to all clients that start later, so two processes that start at once
// could swap theirs. The daemon stays at 100 %.
//
// Commands go to the standard input of `nvidia-cuda-mps-control` and are bounded in time. Failures:
// as make_mps_driver(). One thread at a time; calls block, most for the duration of that program.
class MpsDaemon {
 public:
  // Starts the device's daemon, or adopts the one that answers in its pipe directory. Removes the
  // files of a dead daemon. Fails for a running daemon that limits its clients to less than the
  // whole device, because all shares would be smaller than planned.
  [[nodiscard]] static Result<std::unique_ptr<MpsDaemon>> start(const MpsOptions& options,
                                                                const std::string& uuid);
  ~MpsDaemon();  // stops a daemon that it started and waits for its exit; leaves an adopted one
  MpsDaemon(const MpsDaemon&) = delete;
  MpsDaemon& operator=(const MpsDaemon&) = delete;

  [[nodiscard]] bool adopted() const { return !started_; }
  // Whether the daemon process runs. Does not block.
  [[nodiscard]] bool running() const;
  // The variables with which a client finds this daemon, to be set before its first use of CUDA.
  [[nodiscard]] std::map<std::string, std::string> client_environment() const;

  [[nodiscard]] Result<MpsServerState> state() const;
  // Ends the GPU work of a client without harming the others; the process may be killed afterwards.
  // Fails with not_found where the process is not a client.
  [[nodiscard]] Status terminate(pid_t client) const;

 private:
  MpsDaemon(MpsOptions options, std::string uuid);
  [[nodiscard]] Status start();
  [[nodiscard]] Result<std::string> send(const std::string& what) const;
  // The process ids in the answer to the command.
  [[nodiscard]] Result<std::vector<pid_t>> list(const std::string& what) const;
  [[nodiscard]] Status find_control();
  [[nodiscard]] Status make_directories() const;
  [[nodiscard]] Status adopt();
  [[nodiscard]] Status launch();
  [[nodiscard]] Status wait_until_ready();
  void open_process();
  [[nodiscard]] Command command() const;

  MpsOptions options_;
  const std::string uuid_;
  const std::filesystem::path pipes_;
  const std::filesystem::path logs_;
  FileDescriptor pidfd_;  // invalid where the daemon's process id is unknown
  bool started_ = false;
};

// MpsSupervisor: restarts the daemon when it exits, and terminates clients through the daemon
// before it kills them. Blocking work runs on its own thread. Any thread.
class MpsSupervisor {
 public:
  MpsSupervisor(std::unique_ptr<MpsDaemon> daemon, MpsOptions options, std::string uuid);
  // Completes the requested ends first.
  ~MpsSupervisor();
  MpsSupervisor(const MpsSupervisor&) = delete;
  MpsSupervisor& operator=(const MpsSupervisor&) = delete;

  // MpsDaemon::client_environment(); a restart does not change it.
  [[nodiscard]] const std::map<std::string, std::string>& environment() const {
    return environment_;
  }
  // Ok, or the reason why the daemon accepts no clients now.
  [[nodiscard]] Status ready() const;
  // As PartitionDriver::end. Also false if the process does not exist.
  bool end(pid_t process);

 private:
  struct Client {
    pid_t process = 0;
    FileDescriptor pidfd;
    int attempts = 0;
  };

  void run();
  void restart_if_exited();
  void end_client(Client& client);
  [[nodiscard]] bool terminate_work(pid_t process) const;
  void set_failure(Status failure);

  const MpsOptions options_;
  const std::string uuid_;
  const std::map<std::string, std::string> environment_;
  std::unique_ptr<MpsDaemon> daemon_;  // used by thread_ only; null while it restarts
  mutable std::mutex mutex_;           // guards the members below, except the thread
  std::condition_variable changed_;
  std::deque<Client> to_end_;
  std::set<pid_t> ending_;  // of to_end_, and of those that thread_ is ending
  Status failure_;          // as ready()
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the members above
};

// The memory limit of a client, in bytes: the need of its models plus the overhead of a process, at
// most the device's memory (0: unknown); `otherwise` if the need is unknown (0). 0: no limit.
[[nodiscard]] std::uint64_t mps_memory_limit(std::uint64_t models_need, std::uint64_t device_bytes,
                                             std::uint64_t otherwise);
// The environment variable that limits the memory of a client, and its value for a daemon with one
// device. `limit`: in bytes.
inline constexpr const char* kMpsMemoryVariable = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";
[[nodiscard]] std::string mps_memory_text(std::uint64_t limit);

}  // namespace gpulet::partition
