#include "frontend/loop/heap_trimmer.h"

#include <malloc.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace gpulet::frontend {
namespace {

constexpr Duration kInterval = std::chrono::seconds(1);
constexpr Duration kWindow = std::chrono::seconds(3);
constexpr Duration kBetweenWarnings = std::chrono::minutes(1);

Duration duration_of(const timeval& time) {
  return std::chrono::seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec);
}

// By this thread, the event loop's. Plans that are made meanwhile do not count: a trim delays none.
Duration computed() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return duration_of(usage.ru_utime) + duration_of(usage.ru_stime);
}

// Zero where the system does not tell.
std::size_t resident_bytes() {
  std::size_t all = 0;
  std::size_t resident = 0;
  std::size_t of_files = 0;
  std::ifstream("/proc/self/statm") >> all >> resident >> of_files;
  return (resident - std::min(resident, of_files)) * static_cast<std::size_t>(::getpagesize());
}

std::size_t used_bytes() {
  const auto heap = ::mallinfo2();
  return heap.uordblks + heap.hblkhd;  // large blocks have mappings of their own
}

}  // namespace

bool TrimDecision::trim_now(double busy, Memory memory, Time now) {
  most_ = std::max(most_, memory.used);
  const std::size_t free = memory.resident - std::min(memory.resident, memory.used);
  least_free_ = std::min(least_free_.value_or(free), free);
  const bool calm = busy < kCalm;
  const bool stays_calm = std::exchange(was_calm_, calm) && calm;
  const bool pays = memory.stale >= kWorthwhile || most_ >= memory.used + kWorthwhile ||
                    free >= *least_free_ + kWorthwhile;
  if (!stays_calm || !pays || now < last_ + kPause) return false;
  last_ = now;
  most_ = memory.used;
  least_free_.reset();
  return true;
}

void HeapTrimmer::start() {
  checked_ = net::now();
  computed_ = computed();
  wait();
}

void HeapTrimmer::stop() {
  stopped_ = true;
  timer_.cancel();
}

void HeapTrimmer::wait() {
  if (stopped_) return;
  timer_.set_after(kInterval, [this] { check(); });
}

void HeapTrimmer::check() {
  const Time now = net::now();
  const Duration until_now = computed();
  const double busy = to_seconds(until_now - computed_) / to_seconds(now - checked_);
  checked_ = now;
  computed_ = until_now;
  if (now >= next_window_) {
    next_window_ = now + kWindow;
    for (net::BufferPool* pool : pools_) pool->begin_window();
  }
  std::size_t stale = 0;
  for (const net::BufferPool* pool : pools_) stale += pool->stale_bytes();
  const std::size_t used = used_bytes();
  const bool pays =
      decision_.trim_now(busy, {used - std::min(used, stale), resident_bytes(), stale}, now);
  if (pays || (reserve_ && reserve_->spent())) return trim();
  wait();
}

void HeapTrimmer::trim() {
  background_.run(
      [pools = pools_] {
        for (net::BufferPool* pool : pools) pool->release_stale();
        return ::malloc_trim(0);
      },
      [this](int /*released*/) {
        renew_reserve();
        wait();
      });
}

void HeapTrimmer::renew_reserve() {
  if (!reserve_ || !reserve_->spent()) return;
  const Time now = net::now();
  if (now >= next_warning_) {
    next_warning_ = now + kBetweenWarnings;
    spdlog::warn(
        "the system gives this process no more memory: large requests are refused until it does; "
        "lower \"max_buffered_mb\", or raise the limit (ulimit -v, the container's memory)");
  }
  reserve_->renew();
}

}  // namespace gpulet::frontend
