// PeerLog: log lines that a peer can cause, so that none of them fills the log. Belongs to the
// thread of the io_context.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "gpulet/net/asio.h"
#include "gpulet/net/event_loop.h"
#include "gpulet/observe/log_limiter.h"

namespace gpulet::frontend {

// Of each kind and address, only some are logged and counted.
class PeerLog {
 public:
  explicit PeerLog(net::asio::io_context& io) : timer_(io) {}

  void warn(std::string_view address, std::string_view kind, const std::string& text);
  void info(std::string_view address, std::string_view kind, const std::string& text);
  void stop();

 private:
  [[nodiscard]] bool admit(std::string_view address, std::string_view kind);
  void schedule_flush();

  observe::LogRateLimiter limiter_{{20, std::chrono::seconds(2), 4096}};
  net::Alarm timer_;
  bool flush_scheduled_ = false;
  bool stopped_ = false;
};

}  // namespace gpulet::frontend
