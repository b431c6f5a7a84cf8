#include "backend/child_process.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "backend/spawn.h"

namespace gpulet::backend {

using boost::system::error_code;

ChildProcess::ChildProcess(const net::asio::any_io_executor& executor, pid_t process)
    : process_(process), watch_(executor) {}

Status ChildProcess::watch(OnEnd on_end) {
  const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, process_, 0));
  if (pidfd < 0)
    return {StatusCode::unavailable, "cannot watch " + name() + ": " + std::strerror(errno)};
  on_end_ = std::move(on_end);
  watch_.assign(pidfd);
  wait();
  return {};
}

void ChildProcess::wait() {
  watch_.async_wait(net::asio::posix::stream_descriptor::wait_read,
                    [this, alive = std::weak_ptr(alive_)](const error_code& error) {
                      if (!error && !alive.expired()) reap();
                    });
}

void ChildProcess::reap() {
  int status = 0;
  if (ended_) return;
  if (::waitpid(process_, &status, WNOHANG) != process_) {
    // Asio may deliver an event of the descriptor that had this number before.
    wait();
    return;
  }
  ended_ = true;
  if (WIFSIGNALED(status)) {
    process_end_.signal = static_cast<std::uint8_t>(WTERMSIG(status));
  } else {
    process_end_.exit_status = static_cast<std::uint8_t>(WEXITSTATUS(status));
  }
  const auto on_end = std::exchange(on_end_, nullptr);
  on_end(describe_end(process_, status));
}

void ChildProcess::kill() const {
  if (!ended_) ::kill(process_, SIGKILL);  // not waited for yet: the id is still its own
}

void ChildProcess::end(std::chrono::milliseconds patience) {
  on_end_ = nullptr;
  if (!ended_ && patience.count() > 0) {
    pollfd ending{watch_.native_handle(), POLLIN, 0};
    ::poll(&ending, 1, static_cast<int>(patience.count()));
  }
  error_code ignored;
  watch_.close(ignored);
  if (ended_) return;
  kill();
  ::waitpid(process_, nullptr, 0);
  ended_ = true;
}

}  // namespace gpulet::backend
