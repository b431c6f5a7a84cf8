// MeasuredLoop: runs an io_context on a thread of its own and measures every handler by itself.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "gpulet/base/time.h"
#include "gpulet/net/asio.h"

namespace gpulet::bench {

class MeasuredLoop {
 public:
  struct Pause {
    Duration longest{};   // of one handler
    Duration together{};  // of all handlers
    std::uint64_t handlers = 0;
  };

  explicit MeasuredLoop(net::asio::io_context& io);
  ~MeasuredLoop();
  MeasuredLoop(const MeasuredLoop&) = delete;
  MeasuredLoop& operator=(const MeasuredLoop&) = delete;

  // Since the last call. A handler from which the kernel took the core counts with the time that it
  // computed: what others run on this machine is not its doing.
  Pause take();

 private:
  void run();

  net::asio::io_context& io_;
  std::atomic<bool> stopped_ = false;
  std::mutex mutex_;
  Pause pause_;
  std::jthread thread_;
};

}  // namespace gpulet::bench
