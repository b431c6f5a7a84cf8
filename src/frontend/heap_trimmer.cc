#include "frontend/heap_trimmer.h"

#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <utility>

namespace gpulet::frontend {
namespace {

constexpr Duration kInterval = std::chrono::seconds(1);

Duration duration_of(const timeval& time) {
  return std::chrono::seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec);
}

// By this thread, the event loop's. Plans that are made meanwhile do not count: a trim delays none.
Duration computed() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return duration_of(usage.ru_utime) + duration_of(usage.ru_stime);
}

// Without the pages of files and shared memory. 0 where /proc is not there.
std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t total = 0;
  std::size_t resident = 0;
  std::size_t shared = 0;
  if (!(statm >> total >> resident >> shared)) return 0;
  return (resident - std::min(resident, shared)) *
         static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

bool TrimDecision::trim_now(double busy, std::size_t resident, Time now) {
  least_ = std::min(least_, resident);
  const bool calm = busy < kCalm;
  const bool stays_calm = std::exchange(was_calm_, calm) && calm;
  if (!stays_calm || resident < least_ + kWorthwhile || now < last_ + kPause) return false;
  last_ = now;
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
  if (!decision_.trim_now(busy, resident_bytes(), now)) return wait();
  background_.run(
      [release = release_] {
        release();
        ::malloc_trim(0);
        return resident_bytes();
      },
      [this](std::size_t resident) {
        decision_.trimmed(resident);
        wait();
      });
}

}  // namespace gpulet::frontend
