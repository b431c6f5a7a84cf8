#include "bench/serve/pauses_loop.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <utility>

namespace gpulet::bench {
namespace {

struct Moment {
  Duration wall{};
  Duration computed{};
  long taken = 0;  // how often the kernel preempted the thread

  static Moment now() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    rusage usage{};
    ::getrusage(RUSAGE_THREAD, &usage);
    return {std::chrono::steady_clock::now().time_since_epoch(),
            std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec),
            usage.ru_nivcsw};
  }
};

constexpr Duration kIdle = std::chrono::microseconds(100);

}  // namespace

MeasuredLoop::MeasuredLoop(net::asio::io_context& io) : io_(io), thread_([this] { run(); }) {}

MeasuredLoop::~MeasuredLoop() {
  stopped_ = true;
  thread_.join();
}

void MeasuredLoop::run() {
  while (!stopped_) {
    const Moment before = Moment::now();
    io_.restart();
    if (io_.poll_one() == 0) {
      std::this_thread::sleep_for(kIdle);
      continue;
    }
    const Moment after = Moment::now();
    const Duration took =
        after.taken == before.taken ? after.wall - before.wall : after.computed - before.computed;
    const std::lock_guard lock(mutex_);
    pause_.longest = std::max(pause_.longest, took);
    pause_.together += took;
    ++pause_.handlers;
  }
}

MeasuredLoop::Pause MeasuredLoop::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(pause_, {});
}

}  // namespace gpulet::bench
