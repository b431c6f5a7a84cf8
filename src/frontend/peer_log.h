// PeerLog: warnings that a peer can cause as often as it likes. Of each kind about each address
// some are logged, then one in a while, with how many were not. One thread: the one that runs the
// io_context, which must not run any more when this goes.
#pragma once

#include <string>
#include <string_view>

#include "gpulet/net/alarm.h"
#include "gpulet/net/asio.h"
#include "gpulet/observe/warning_limiter.h"

namespace gpulet::frontend {

class PeerLog {
 public:
  explicit PeerLog(net::asio::io_context& io) : timer_(io) {}

  void warn(std::string_view address, std::string_view kind, const std::string& text);
  // The same at the level of information.
  void info(std::string_view address, std::string_view kind, const std::string& text);
  void stop();

 private:
  [[nodiscard]] bool tell(std::string_view address, std::string_view kind);
  void settle_later();

  observe::WarningLimiter limiter_{{20, std::chrono::seconds(2), 4096}};
  net::Alarm timer_;
  bool waits_ = false;
  bool stopped_ = false;
};

}  // namespace gpulet::frontend
