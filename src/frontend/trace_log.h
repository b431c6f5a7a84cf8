// TraceLog: the last requests that were traced, and who waits for a stretch of them. One thread:
// the one that runs the io_context, which must not run any more when this goes.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "gpulet/core/time.h"
#include "gpulet/net/asio.h"
#include "gpulet/observe/trace.h"

namespace gpulet::frontend {

class TraceLog {
 public:
  using Records = std::vector<observe::RequestTraceRecord>;
  using OnRecords = std::function<void(Records)>;
  // About 300 bytes each.
  static constexpr std::size_t kMostRecords = 100'000;

  explicit TraceLog(net::asio::io_context& io) : io_(io) {}

  // Beyond the most, the oldest goes.
  void add(observe::RequestTraceRecord record);
  // Hands over what is added from now until `length` has passed; zero: what is here already.
  void collect(Duration length, OnRecords done);

 private:
  net::asio::io_context& io_;
  std::deque<observe::RequestTraceRecord> records_;
  std::size_t added_ = 0;  // ever
};

}  // namespace gpulet::frontend
