// CommandReader: reads ahead of the batch that runs, so that a command's waiting time counts from
// when it came and not from when somebody had time to look. One thread of its own reads; the owner
// takes.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "gpulet/core/status.h"
#include "gpulet/serve/messages.h"

namespace gpulet::proxy {

struct TimedCommand {
  serve::ProxyCommand command;
  std::chrono::steady_clock::time_point arrived;
};

class CommandReader {
 public:
  // Reads from the socket, which stays its caller's, until StopProxy, the end of the stream or a
  // failure.
  explicit CommandReader(int control_fd);
  // Shuts the socket's reading side down to wake the thread, and joins it.
  ~CommandReader();
  CommandReader(const CommandReader&) = delete;
  CommandReader& operator=(const CommandReader&) = delete;

  // Waits for the next command. Nothing once the peer has closed the channel: what it sent before
  // is dropped then. Fails as read_command does, after all commands read before the failure were
  // taken.
  [[nodiscard]] Result<std::optional<TimedCommand>> take();
  // It has closed the channel: nobody waits for an answer.
  [[nodiscard]] bool peer_is_gone();

 private:
  void read_all(int control_fd);

  int control_fd_;
  std::mutex mutex_;  // the reading thread and the owner meet here, and only here
  std::condition_variable changed_;
  std::deque<TimedCommand> waiting_;  // guarded by mutex_
  bool closed_ = false;               // guarded by mutex_; the peer is gone
  Status failure_;                    // guarded by mutex_
  bool abandoned_ = false;            // guarded by mutex_; the owner takes no more
  std::thread thread_;                // last: starts when the rest is there
};

}  // namespace gpulet::proxy
