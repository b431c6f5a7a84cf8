#include "partition/drivers/pacing.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>

namespace gpulet::partition {
namespace {

// A turn of a process that is never idle: 2 ms on, 8 ms off for a share of 20 % of a core.
constexpr double kPeriodSeconds = 0.010;
constexpr double kLeastTurnSeconds =
    0.001;  // below it the pacing thread would cost more than it holds back

std::optional<double> cpu_seconds(clockid_t clock) {
  timespec time{};
  if (clock_gettime(clock, &time) != 0) return std::nullopt;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

bool signal_process(int pidfd, int signal) {
  return ::syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0) == 0;
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
    ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
  for (auto& [gpulet, paced] : paced_) let_run(paced);
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
  paced.pidfd = static_cast<int>(::syscall(SYS_pidfd_open, process, 0));
  if (paced.pidfd < 0) return failed(errno);
  paced.cores = cores;
  paced.used = *used;
  paced.looked = Clock::now();
  paced.next_look = paced.looked;
  {
    const std::lock_guard lock(mutex_);
    paced_.emplace(gpulet, paced);
  }
  changed_.notify_one();
  return {};
}

void Pacer::set(GpuletId gpulet, double cores) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = paced_.find(gpulet);
    if (found == paced_.end()) return;
    look(found->second, Clock::now());
    found->second.cores = cores;
    found->second.tokens = std::min(found->second.tokens, cores * kPeriodSeconds);
    found->second.next_look = Clock::now();
  }
  changed_.notify_one();
}

void Pacer::remove(GpuletId gpulet) {
  const std::lock_guard lock(mutex_);
  const auto found = paced_.find(gpulet);
  if (found == paced_.end()) return;
  let_run(found->second);
  paced_.erase(found);
}

void Pacer::let_run(Paced& paced) {
  if (paced.stopped) signal_process(paced.pidfd, SIGCONT);
  ::close(paced.pidfd);
}

void Pacer::look(Paced& paced, Clock::time_point now) {
  if (paced.ended) return;
  const auto used = cpu_seconds(paced.cpu_clock);
  if (!used) {
    paced.ended = true;
    paced.next_look = Clock::time_point::max();
    return;
  }
  const double full = paced.cores * kPeriodSeconds;
  const double filled = paced.cores * std::chrono::duration<double>(now - paced.looked).count();
  paced.tokens = std::min(paced.tokens + filled - (*used - paced.used), full);
  paced.used = *used;
  paced.looked = now;

  const bool stop = paced.stopped ? paced.tokens < full : paced.tokens <= 0;
  if (stop != paced.stopped && signal_process(paced.pidfd, stop ? SIGSTOP : SIGCONT)) {
    paced.stopped = stop;
  }
  // Stopped: until the bucket is full. Running: until it could be empty, were one core used without
  // a pause.
  const double turn = paced.stopped ? (full - paced.tokens) / paced.cores : paced.tokens;
  paced.next_look = now + seconds(std::max(turn, kLeastTurnSeconds));
}

void Pacer::run() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    const auto now = Clock::now();
    auto next = Clock::time_point::max();
    for (auto& [gpulet, paced] : paced_) {
      if (paced.next_look <= now) look(paced, now);
      next = std::min(next, paced.next_look);
    }
    if (next == Clock::time_point::max()) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock, next);
    }
  }
}

}  // namespace gpulet::partition
