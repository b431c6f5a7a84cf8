// HeapTrimmer: returns the memory of a load to the system once the load is over. The C library
// keeps freed memory for later use unless it is at the end of a heap, and buffer pools keep idle
// buffers: right while requests come, but a peak would stay resident for ever. Buffers that the
// load still takes are left to it.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "frontend/loop/event_loop.h"
#include "gpulet/base/time.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/buffer_pool.h"
#include "gpulet/net/event_loop.h"

namespace gpulet::frontend {

// When a trim pays: the event loop is calm, and since the last trim much memory was freed, or free
// memory has come to stay resident, or pools hold what no load takes. Pure.
class TrimDecision {
 public:
  static constexpr double kCalm = 0.2;                         // of the event loop's time
  static constexpr std::size_t kWorthwhile = 3U << 20U;        // bytes
  static constexpr Duration kPause = std::chrono::seconds(3);  // between two trims, at least

  struct Memory {
    std::size_t used = 0;      // bytes of the heaps in use, without stale buffers
    std::size_t resident = 0;  // of the process, without files
    std::size_t stale = 0;     // in pools
  };
  // `busy`: part of the time since the last call that the event loop computed.
  [[nodiscard]] bool trim_now(double busy, Memory memory, Time now);

 private:
  bool was_calm_ = false;
  std::size_t most_ = 0;                   // used since the last trim
  std::optional<std::size_t> least_free_;  // resident and not used, since the last trim
  Time last_{};
};

class HeapTrimmer {
 public:
  // REQUIRES: `background` waits for its work before the pools are destroyed. `reserve` is renewed
  // after a trim; may be null.
  HeapTrimmer(net::asio::io_context& io, BackgroundThread& background,
              std::vector<net::BufferPool*> pools, std::shared_ptr<net::MemoryReserve> reserve)
      : background_(background),
        pools_(std::move(pools)),
        reserve_(std::move(reserve)),
        timer_(io) {}

  void start();
  void stop();

 private:
  void wait();
  void check();
  void trim();
  void renew_reserve();

  BackgroundThread& background_;
  const std::vector<net::BufferPool*> pools_;
  const std::shared_ptr<net::MemoryReserve> reserve_;
  Time next_window_{};
  Time next_warning_{};
  net::Alarm timer_;
  TrimDecision decision_;
  Time checked_{};
  Duration computed_{};  // by the event loop's thread, until then
  bool stopped_ = false;
};

}  // namespace gpulet::frontend
