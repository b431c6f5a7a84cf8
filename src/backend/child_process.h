// ChildProcess: a process that this one started, watched until it has ended and waited for, so that
// its id is its own for as long as anybody uses it.
//
// Single-strand type on the executor given.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "gpulet/core/process_end.h"
#include "gpulet/core/status.h"
#include "gpulet/net/asio.h"

namespace gpulet::backend {

class ChildProcess {
 public:
  // What describe_end (spawn.h) says of it.
  using OnEnd = std::function<void(const Status& how)>;

  ChildProcess(const net::asio::any_io_executor& executor, pid_t process);
  // Kills it and waits for its end.
  ~ChildProcess() { end(std::chrono::milliseconds(0)); }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // `on_end` is called once, from the executor; it may destroy this. Fails with unavailable.
  [[nodiscard]] Status watch(OnEnd on_end);
  [[nodiscard]] pid_t id() const { return process_; }
  [[nodiscard]] std::string name() const { return "process " + std::to_string(process_); }
  [[nodiscard]] bool ended() const { return ended_; }
  // How, once `on_end` is called.
  [[nodiscard]] const ProcessEnd& process_end() const { return process_end_; }
  // SIGKILL, unless it has ended.
  void kill() const;
  // Waits so long for somebody else to end it, and then kills it. It has ended on return; on_end is
  // not called any more.
  void end(std::chrono::milliseconds patience);

 private:
  void wait();
  void reap();

  const pid_t process_;
  net::asio::posix::stream_descriptor watch_;  // a pidfd: readable once the process has ended
  OnEnd on_end_;
  bool ended_ = false;
  ProcessEnd process_end_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // gone: nobody is left to reap
};

}  // namespace gpulet::backend
