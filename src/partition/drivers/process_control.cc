#include "partition/drivers/process_control.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
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
      return {StatusCode::unavailable, "cannot bind process " + std::to_string(process) +
                                           " to its device's cores: " + std::strerror(errno)};
    }
  }
  // The process has ended, or hidepid hides it.
  if (error && ::kill(process, 0) == 0) {
    return {StatusCode::unavailable,
            "cannot see the threads of process " + std::to_string(process) + " in " +
                tasks.string() +
                "; mount /proc without hidepid (in a systemd unit: ProtectProc=default)"};
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

Pacer::Pacer() : thread_([this] { run(); }) {}

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
                  "cannot pace process " + std::to_string(process) + ": " + std::strerror(error));
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

}  // namespace gpulet::partition
