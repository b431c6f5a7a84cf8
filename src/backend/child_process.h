// Starting proxy programs with minimal rights, and watching them until they end.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/backend/proxy_process.h"
#include "gpulet/base/alive.h"
#include "gpulet/base/status.h"
#include "gpulet/core/failure.h"
#include "gpulet/net/asio.h"

namespace gpulet::backend {

// ---- the environment of a proxy
//
// A backend's environment may contain keys, tokens and addresses that no model should read, so only
// some of its variables are passed on.

// A variable that lists more variables to pass on, separated by commas: for programs without a
// configuration file.
inline constexpr const char* kPassedOnVariable = "GPULET_PROXY_ENVIRONMENT";

// The strings "NAME=value" with which a proxy starts: `overrides`, and from `own`, which has the
// form of environ, the other variables that are passed on or listed in `more` or kPassedOnVariable.
[[nodiscard]] std::vector<std::string> proxy_environment(
    const char* const* own, const std::vector<std::string>& more,
    const std::map<std::string, std::string>& overrides);

// The overrides of every proxy before its share is known. Numeric libraries create threads when the
// program starts; the share may allow more than one thread later.
[[nodiscard]] const std::map<std::string, std::string>& environment_without_share();

// ---- starting

struct SpawnOptions {
  std::filesystem::path program;
  std::vector<std::string> arguments;              // without the program's name
  std::map<std::string, std::string> environment;  // overrides
  std::vector<int> descriptors;                    // become 3, 4, ...; others above 2 are closed
  bool in_background = false;       // at a low priority, if raise_priority() can undo that
  std::optional<ProxyUser> user{};  // empty: the user of this process
  ProxyConfinement confinement{};
  // Becomes its standard output and error, and its standard input is empty. -1: it has the standard
  // streams of this process.
  int output = -1;
};

// Starts a program. In the child, signals have their defaults and none is blocked. It leads a
// process group of its own. Neither the child nor its descendants can gain privileges
// (no_new_privs). It writes no core file, and its files are for its user only. `user` need not have
// access to the program's directory. Fails with not_found or unavailable, naming the program and
// the user.
[[nodiscard]] Result<pid_t> spawn(const SpawnOptions& options);

// Gives a process that was started in the background the priority of this one.
void raise_priority(pid_t process);

// ---- watching

// A child of this process that is watched until it has ended. It is reaped only here, so its id is
// not reused during the life of this object. Single-strand type on the executor given.
class ChildProcess {
 public:
  // `how`: ok for exit code 0, else unavailable, such as "was killed by signal 9 (Killed)".
  using OnEnd = std::function<void(const Status& how)>;

  ChildProcess(const net::asio::any_io_executor& executor, pid_t process);
  // Kills the process and waits for its end.
  ~ChildProcess() { end(std::chrono::milliseconds(0)); }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // `on_end` is called once, from the executor; it may destroy this object. Fails with unavailable.
  [[nodiscard]] Status watch(OnEnd on_end);
  [[nodiscard]] pid_t id() const { return process_; }
  [[nodiscard]] std::string name() const { return "process " + std::to_string(process_); }
  [[nodiscard]] bool ended() const { return ended_; }
  // Valid once `on_end` is called.
  [[nodiscard]] const ProcessEnd& process_end() const { return process_end_; }
  // Sends SIGKILL unless the process has ended.
  void kill() const;
  // Waits up to `timeout` for the process to end, then kills it. It has ended on return; on_end is
  // not called.
  void end(std::chrono::milliseconds timeout);

 private:
  void wait();
  void reap();

  const pid_t process_;
  net::asio::posix::stream_descriptor pidfd_;  // readable once the process has ended
  OnEnd on_end_;
  bool ended_ = false;
  ProcessEnd process_end_;
  AliveToken alive_;
};

}  // namespace gpulet::backend
