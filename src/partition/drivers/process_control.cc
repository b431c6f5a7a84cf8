#include "partition/drivers/process_control.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

namespace gpulet::partition {

FileDescriptor open_pidfd(pid_t process) {
  return FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
}

bool send_signal(const FileDescriptor& pidfd, int signal) {
  return ::syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, 0) == 0;
}

bool has_exited(const FileDescriptor& pidfd, std::chrono::milliseconds wait) {
  pollfd exited{pidfd.get(), POLLIN, 0};
  return ::poll(&exited, 1, static_cast<int>(wait.count())) > 0;
}

Status bind_to_cores(pid_t process, const std::vector<std::uint32_t>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const auto core : cores) CPU_SET(core, &set);

  std::error_code error;
  const auto tasks = std::filesystem::path("/proc") / std::to_string(process) / "task";
  for (std::filesystem::directory_iterator entry(tasks, error), end; !error && entry != end;
       entry.increment(error)) {
    const auto thread = static_cast<pid_t>(std::atol(entry->path().filename().c_str()));
    if (sched_setaffinity(thread, sizeof set, &set) != 0 && errno != ESRCH) {
      return {StatusCode::unavailable,
              fmt::format("cannot bind process {} to its device's cores: {}", process,
                          std::strerror(errno))};
    }
  }
  // The process has ended, or hidepid hides it.
  if (error && ::kill(process, 0) == 0) {
    return {
        StatusCode::unavailable,
        fmt::format("cannot see the threads of process {} in {}; mount /proc without hidepid (in "
                    "a systemd unit: ProtectProc=default)",
                    process, tasks.string())};
  }
  return {};
}

namespace {

// A busy process with 20 % of a core runs for 2 ms and is stopped for 8 ms.
constexpr double kPeriodSeconds = 0.010;
// Shorter slices would cost the pacing thread more time than they save.
constexpr double kMinSliceSeconds = 0.001;

std::optional<double> cpu_seconds(clockid_t clock) {
  timespec time{};
  if (clock_gettime(clock, &time) != 0) return std::nullopt;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

std::chrono::steady_clock::duration seconds(double value) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(value));
}

}  // namespace

Pacer::Pacer()
    : thread_([this] {
        (void)::pthread_setname_np(::pthread_self(), "pacer");
        run();
      }) {}

Pacer::~Pacer() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
  for (auto& [gpulet, paced] : paced_) resume(paced);
}

Status Pacer::add(GpuletId gpulet, pid_t process, double cores) {
  const auto failed = [process](int error) {
    return Status(StatusCode::unavailable,
                  fmt::format("cannot pace process {}: {}", process, std::strerror(error)));
  };
  Paced paced;
  const int clock_error = clock_getcpuclockid(process, &paced.cpu_clock);
  if (clock_error != 0) return failed(clock_error);
  const auto used = cpu_seconds(paced.cpu_clock);
  if (!used) return failed(errno);
  paced.pidfd = open_pidfd(process);
  if (!paced.pidfd.valid()) return failed(errno);
  paced.cores = cores;
  paced.used = *used;
  paced.sampled = Clock::now();
  paced.next_sample = paced.sampled;
  {
    const std::lock_guard lock(mutex_);
    paced_.emplace(gpulet, std::move(paced));
  }
  changed_.notify_one();
  return {};
}

void Pacer::set(GpuletId gpulet, double cores) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = paced_.find(gpulet);
    if (found == paced_.end()) return;
    sample(found->second, Clock::now());
    found->second.cores = cores;
    found->second.tokens = std::min(found->second.tokens, cores * kPeriodSeconds);
    found->second.next_sample = Clock::now();
  }
  changed_.notify_one();
}

void Pacer::remove(GpuletId gpulet) {
  const std::lock_guard lock(mutex_);
  const auto found = paced_.find(gpulet);
  if (found == paced_.end()) return;
  resume(found->second);
  paced_.erase(found);
}

void Pacer::resume(const Paced& paced) {
  if (paced.stopped) send_signal(paced.pidfd, SIGCONT);
}

void Pacer::sample(Paced& paced, Clock::time_point now) {
  if (paced.ended) return;
  const auto used = cpu_seconds(paced.cpu_clock);
  if (!used) {
    paced.ended = true;
    paced.next_sample = Clock::time_point::max();
    return;
  }
  const double full = paced.cores * kPeriodSeconds;
  const double filled = paced.cores * std::chrono::duration<double>(now - paced.sampled).count();
  paced.tokens = std::min(paced.tokens + filled - (*used - paced.used), full);
  paced.used = *used;
  paced.sampled = now;

  const bool stop = paced.stopped ? paced.tokens < full : paced.tokens <= 0;
  if (stop != paced.stopped && send_signal(paced.pidfd, stop ? SIGSTOP : SIGCONT)) {
    paced.stopped = stop;
  }
  // Stopped: until the bucket is full. Running: until one busy core could empty it.
  const double slice = paced.stopped ? (full - paced.tokens) / paced.cores : paced.tokens;
  paced.next_sample = now + seconds(std::max(slice, kMinSliceSeconds));
}

void Pacer::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const auto now = Clock::now();
    auto next = Clock::time_point::max();
    for (auto& [gpulet, paced] : paced_) {
      if (paced.next_sample <= now) sample(paced, now);
      next = std::min(next, paced.next_sample);
    }
    if (next == Clock::time_point::max()) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock, next);
    }
  }
}

// ---- running programs

namespace {

constexpr std::size_t kMostInput = 4096;  // an empty pipe accepts as much without blocking
constexpr std::size_t kMostText = 64UL << 10U;
constexpr int kNotStarted = 127;  // the convention of shells

Status failure(const Command& command, const std::string& what) {
  return {StatusCode::unavailable, command.program.string() + ": " + what};
}

struct Pipe {
  FileDescriptor read_end;
  FileDescriptor write_end;
};

Result<Pipe> make_pipe() {
  std::array<int, 2> ends{-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return Status(StatusCode::unavailable, fmt::format("cannot make a pipe: {}", strerror(errno)));
  }
  return Pipe{FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

std::vector<std::string> environment_of(const Command& command) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string name(text.substr(0, text.find('=')));
    const bool left_out =
        command.environment.contains(name) ||
        std::find(command.without.begin(), command.without.end(), name) != command.without.end();
    if (!left_out) merged.emplace_back(text);
  }
  for (const auto& [name, value] : command.environment) merged.push_back(name + "=" + value);
  return merged;
}

std::vector<char*> as_pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (auto& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Runs in the child between fork and exec, where allocation is forbidden. Uses raw system calls,
// because the library's setuid functions synchronise with other threads.
[[noreturn]] void exec_child(const Command& command, int input, int output, char* const* arguments,
                             char* const* environment) {
  ::setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
  bool may = ::dup2(input, STDIN_FILENO) >= 0 && ::dup2(output, STDOUT_FILENO) >= 0 &&
             ::dup2(output, STDERR_FILENO) >= 0;
  ::syscall(SYS_close_range, 3U, ~0U, 0U);
  if (command.group) {
    may = may && ::syscall(SYS_setgroups, 0, nullptr) == 0 &&
          ::syscall(SYS_setgid, *command.group) == 0;
  }
  if (command.user) may = may && ::syscall(SYS_setuid, *command.user) == 0;
  if (may) ::execve(command.program.c_str(), arguments, environment);
  ::_exit(kNotStarted);
}

// posix_spawn cannot change the user.
Result<pid_t> start(const Command& command, int input, int output) {
  std::vector<std::string> words{command.program.string()};
  words.insert(words.end(), command.arguments.begin(), command.arguments.end());
  auto variables = environment_of(command);
  const auto arguments = as_pointers(words);
  const auto environment = as_pointers(variables);
  const pid_t process = ::fork();
  if (process < 0) return failure(command, fmt::format("cannot start: {}", strerror(errno)));
  if (process == 0) exec_child(command, input, output, arguments.data(), environment.data());
  return process;
}

// Reads without blocking; false at the end of the stream.
bool read_some(int descriptor, std::string& text) {
  std::array<char, 4096> piece{};
  const ssize_t got = ::read(descriptor, piece.data(), piece.size());
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  text.append(piece.data(), std::min(static_cast<std::size_t>(got), kMostText - text.size()));
  return got > 0;
}

int milliseconds_until(std::chrono::steady_clock::time_point deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000));
}

// Reads until the process exits; false at the deadline. Does not wait for the end of the stream,
// because a daemon may keep the pipe open.
bool read_until_exit(pid_t process, int output, std::chrono::steady_clock::time_point deadline,
                     std::string& text) {
  const FileDescriptor exit = open_pidfd(process);
  bool open = true;
  while (std::chrono::steady_clock::now() < deadline) {
    std::array<pollfd, 2> watched{pollfd{exit.get(), POLLIN, 0},
                                  pollfd{open ? output : -1, POLLIN, 0}};
    if (::poll(watched.data(), watched.size(), milliseconds_until(deadline)) < 0) continue;
    if (watched[1].revents != 0) open = read_some(output, text);
    if (watched[0].revents != 0) {
      for (std::size_t before = text.size() + 1; open && text.size() != before;) {
        before = text.size();
        open = read_some(output, text);
      }
      return true;
    }
  }
  return false;
}

}  // namespace

Result<CommandOutput> run_command(const Command& command) {
  if (command.input.size() > kMostInput)
    return failure(command, fmt::format("the input is longer than {} bytes", kMostInput));
  GPULET_TRY(auto input, make_pipe());
  GPULET_TRY(auto output, make_pipe());
  auto& from_child = output.read_end;
  ::fcntl(from_child.get(), F_SETFL, O_NONBLOCK);
  // The input fits into the pipe and this process holds both ends: no blocking, no SIGPIPE.
  if (::write(input.write_end.get(), command.input.data(), command.input.size()) !=
      static_cast<ssize_t>(command.input.size())) {
    return failure(command, "cannot write its input");
  }
  GPULET_TRY(const auto process, start(command, input.read_end.get(), output.write_end.get()));
  input = {};
  output.write_end = {};

  CommandOutput result;
  const bool ended = read_until_exit(
      process, from_child.get(), std::chrono::steady_clock::now() + command.patience, result.text);
  if (!ended) {
    ::kill(-process, SIGKILL);
    ::kill(process, SIGKILL);
  }
  int status = 0;
  ::waitpid(process, &status, 0);
  if (!ended) {
    return Status(StatusCode::timeout,
                  fmt::format("{} did not finish within {:f} s", command.program.string(),
                              to_seconds(command.patience)));
  }
  if (WIFSIGNALED(status))
    return failure(command, fmt::format("ended by signal: {}", ::strsignal(WTERMSIG(status))));
  result.exit_code = WEXITSTATUS(status);
  if (result.exit_code == kNotStarted) {
    return failure(command, command.user ? fmt::format("cannot start as user {}", *command.user)
                                         : "cannot start");
  }
  return result;
}

Result<std::filesystem::path> find_program(const std::filesystem::path& name) {
  std::error_code ignored;
  const auto is_program = [&ignored](const std::filesystem::path& place) {
    return std::filesystem::is_regular_file(place, ignored) && ::access(place.c_str(), X_OK) == 0;
  };
  if (name.has_parent_path()) {
    if (is_program(name)) return name;
    return Status(StatusCode::not_found, "there is no program " + name.string());
  }
  const char* const path = ::getenv("PATH");  // NOLINT(concurrency-mt-unsafe)
  std::string_view left = path == nullptr ? "/usr/bin:/bin" : path;
  while (!left.empty()) {
    const auto end = std::min(left.find(':'), left.size());
    const auto place = std::filesystem::path(left.substr(0, end)) / name;
    if (is_program(place)) return place;
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return Status(StatusCode::not_found, "there is no program " + name.string() + " in PATH");
}

}  // namespace gpulet::partition
