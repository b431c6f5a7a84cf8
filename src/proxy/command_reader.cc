#include "proxy/command_reader.h"

#include <sys/socket.h>

#include <utility>
#include <variant>

#include "proxy/channel.h"

namespace gpulet::proxy {
namespace {

// A backend keeps a few batches in flight. One that sends more than this waits in the socket,
// unread and untimed.
constexpr std::size_t kMostWaiting = 256;

}  // namespace

CommandReader::CommandReader(int control_fd)
    : control_fd_(control_fd), thread_([this, control_fd] { read_all(control_fd); }) {}

CommandReader::~CommandReader() {
  {
    const std::lock_guard lock(mutex_);
    abandoned_ = true;
  }
  changed_.notify_all();
  ::shutdown(control_fd_, SHUT_RD);
  thread_.join();
}

void CommandReader::read_all(int control_fd) {
  for (bool more = true; more;) {
    Result<std::optional<serve::ProxyCommand>> command = read_command(control_fd);
    const auto arrived = std::chrono::steady_clock::now();
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return waiting_.size() < kMostWaiting || abandoned_; });
      if (abandoned_) return;
      if (!command.ok()) {
        failure_ = command.status();
        more = false;
      } else if (!command.value().has_value()) {
        closed_ = true;
        more = false;
      } else {
        more = !std::holds_alternative<serve::StopProxy>(*command.value());
        waiting_.push_back({std::move(*command.value()), arrived});
      }
    }
    changed_.notify_all();
  }
}

Result<std::optional<TimedCommand>> CommandReader::take() {
  std::optional<TimedCommand> next;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return closed_ || !waiting_.empty() || !failure_.ok(); });
    if (closed_) return next;
    if (waiting_.empty()) return failure_;
    next = std::move(waiting_.front());
    waiting_.pop_front();
  }
  changed_.notify_all();
  return next;
}

bool CommandReader::peer_is_gone() {
  const std::lock_guard lock(mutex_);
  return closed_;
}

}  // namespace gpulet::proxy
