#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "gpulet/observe/sinks/log.h"

namespace gpulet::observe {

namespace {

using Clock = std::chrono::steady_clock;

// How long a descriptor that is not ready is watched before the thread looks for other news.
constexpr std::chrono::milliseconds kLook{50};
// For a thread that was told to end and is not held by the system.
constexpr std::chrono::milliseconds kEndWithin{500};
constexpr Duration kSilentAfter = std::chrono::seconds(2);

}  // namespace

Status LineWriterState::problem() const {
  if (!fault.ok()) return fault;
  if (waiting < kSilentAfter) return {};
  return {StatusCode::unavailable,
          fmt::format("nothing has taken its lines for {:.0f} s", to_seconds(waiting))};
}

// What the caller and the thread share. The thread may outlive the LineWriter.
struct LineWriter::Shared {
  Shared(FileDescriptor descriptor, LineWriterOptions given)
      : options(std::move(given)), out(std::move(descriptor)) {
    inspect();
  }

  // ---- under the mutex
  [[nodiscard]] bool idle() const { return queued.empty() && writing.empty() && untold == 0; }
  void drop(std::uint64_t lines) {
    dropped += lines;
    untold += lines;
  }
  void take_queue();
  void note_written(std::size_t bytes);
  void note_failure(int error);
  void use(Result<FileDescriptor> opened);

  // ---- on the thread
  void inspect();
  void run();
  void write_some(std::unique_lock<std::mutex>& lock);

  const LineWriterOptions options;
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::string queued;       // whole lines
  std::string writing;      // belongs to the thread while `busy`
  std::size_t written = 0;  // of `writing`
  std::uint64_t dropped = 0;
  std::uint64_t untold = 0;  // dropped, and no line tells it yet
  std::optional<Clock::time_point> waiting_since;
  Status fault;
  bool closed = false;  // takes no more lines
  bool ending = false;  // the thread ends
  bool ended = false;   // it has
  bool reopens = false;
  std::thread thread;  // joined or detached by close()

  FileDescriptor out;  // the thread's once it runs
  bool is_socket = false;
  bool may_block = true;
};

void LineWriter::Shared::inspect() {
  struct stat found {};
  if (::fstat(out.get(), &found) != 0) return;
  is_socket = S_ISSOCK(found.st_mode);
  const int flags = ::fcntl(out.get(), F_GETFL);
  may_block = !S_ISREG(found.st_mode) && (flags < 0 || (flags & O_NONBLOCK) == 0);
}

void LineWriter::Shared::take_queue() {
  writing = std::exchange(queued, {});
  written = 0;
  if (untold > 0 && options.dropped_line) writing += options.dropped_line(untold);
  untold = 0;
}

void LineWriter::Shared::note_written(std::size_t bytes) {
  written += bytes;
  fault = {};
  if (written == writing.size()) {
    writing.clear();
    written = 0;
  }
  if (writing.empty() && queued.empty()) {
    waiting_since.reset();
  } else {
    waiting_since = Clock::now();
  }
}

void LineWriter::Shared::note_failure(int error) {
  fault = {StatusCode::unavailable, std::strerror(error)};
}

// A line that was written in part is written again as a whole.
void LineWriter::Shared::use(Result<FileDescriptor> opened) {
  if (!opened.ok()) {
    fault = opened.status();
    return;
  }
  out = std::move(opened).value();
  inspect();
  fault = {};
  const std::size_t before = written == 0 ? std::string::npos : writing.rfind('\n', written - 1);
  written = before == std::string::npos ? 0 : before + 1;
}

// Writes what the descriptor takes now. The mutex is free meanwhile.
void LineWriter::Shared::write_some(std::unique_lock<std::mutex>& lock) {
  const std::size_t left = writing.size() - written;
  const std::size_t most = may_block ? std::min<std::size_t>(left, PIPE_BUF) : left;
  const char* const from = writing.data() + written;
  lock.unlock();
  pollfd ready{out.get(), POLLOUT, 0};
  const bool may_write = ::poll(&ready, 1, static_cast<int>(kLook.count())) > 0;
  ssize_t done = 0;
  int error = 0;
  if (may_write) {
    done = is_socket ? ::send(out.get(), from, most, MSG_DONTWAIT | MSG_NOSIGNAL)
                     : ::write(out.get(), from, most);
    if (done < 0) error = errno;
  }
  lock.lock();
  if (done > 0) return note_written(static_cast<std::size_t>(done));
  const bool later = error == 0 || error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
  if (later) {
    // A full socket may be reported as ready.
    if (may_write) changed.wait_for(lock, kLook, [this] { return ending; });
    return;
  }
  note_failure(error);
  changed.wait_for(lock, options.retry_after, [this] { return ending || reopens; });
}

void LineWriter::Shared::run() {
  std::unique_lock lock(mutex);
  while (!ending) {
    if (std::exchange(reopens, false) && options.open_again) {
      lock.unlock();
      Result<FileDescriptor> opened = options.open_again();
      lock.lock();
      use(std::move(opened));
    }
    if (writing.empty()) take_queue();
    if (!writing.empty()) {
      write_some(lock);
      continue;
    }
    changed.notify_all();
    changed.wait(lock, [this] { return ending || reopens || !queued.empty(); });
  }
  ended = true;
  changed.notify_all();
}

LineWriter::LineWriter(FileDescriptor out, LineWriterOptions options)
    : shared_(std::make_shared<Shared>(std::move(out), std::move(options))) {}

LineWriter::~LineWriter() { close(); }

namespace {

// Runs `work` on a new thread that takes no signals: they belong to the threads of the daemon, and
// the end of a pipe's reader must not end the process. Throws what std::thread throws.
template <typename Work>
std::thread start_without_signals(Work work) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread started(std::move(work));
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return started;
  } catch (...) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
}

}  // namespace

void LineWriter::write(std::string_view line) {
  const std::scoped_lock lock(shared_->mutex);
  Shared& shared = *shared_;
  const std::size_t waiting = shared.queued.size() + shared.writing.size() - shared.written;
  if (shared.closed || waiting + line.size() > shared.options.max_bytes) return shared.drop(1);
  try {
    shared.queued += line;
    if (!shared.waiting_since) shared.waiting_since = Clock::now();
    if (!shared.thread.joinable())
      shared.thread = start_without_signals([state = shared_] {
        (void)::pthread_setname_np(::pthread_self(), "log");
        state->run();
      });
  } catch (const std::bad_alloc&) {
    shared.drop(1);
  } catch (const std::system_error&) {
    // No thread now: the line waits for the next one.
  }
  shared.changed.notify_all();
}

bool LineWriter::flush(Duration within) {
  std::unique_lock lock(shared_->mutex);
  return shared_->changed.wait_for(lock, within, [this] { return shared_->idle(); });
}

void LineWriter::reopen() {
  const std::scoped_lock lock(shared_->mutex);
  shared_->reopens = true;
  shared_->changed.notify_all();
}

void LineWriter::close() {
  {
    const std::scoped_lock lock(shared_->mutex);
    shared_->closed = true;
    if (!shared_->thread.joinable()) return;
  }
  (void)flush(shared_->options.close_within);
  std::unique_lock lock(shared_->mutex);
  shared_->ending = true;
  shared_->changed.notify_all();
  const bool ended = shared_->changed.wait_for(lock, kEndWithin, [this] { return shared_->ended; });
  std::thread thread = std::move(shared_->thread);
  lock.unlock();
  if (ended) {
    thread.join();
  } else {
    thread.detach();
  }
}

LineWriterState LineWriter::state() const {
  const std::scoped_lock lock(shared_->mutex);
  LineWriterState state{shared_->dropped, {}, shared_->fault};
  if (shared_->waiting_since) state.waiting = Clock::now() - *shared_->waiting_since;
  return state;
}

// ---- descriptors

Result<FileDescriptor> open_to_append(const std::filesystem::path& file) {
  FileDescriptor opened(::open(file.c_str(),
                               O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
                               S_IRUSR | S_IWUSR));
  if (opened.valid()) return opened;
  return Status(StatusCode::unavailable,
                fmt::format("{} cannot be written ({}); check the path and the permissions of this "
                            "user",
                            file.string(), std::strerror(errno)));
}

FileDescriptor open_standard_error() {
  struct stat found {};
  const bool other =
      ::fstat(STDERR_FILENO, &found) == 0 && (S_ISFIFO(found.st_mode) || S_ISCHR(found.st_mode));
  if (other) {
    FileDescriptor own(::open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (own.valid()) return own;
  }
  return FileDescriptor(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3));
}

}  // namespace gpulet::observe
