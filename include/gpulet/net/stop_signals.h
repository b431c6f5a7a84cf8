// StopSignals: SIGTERM and SIGINT as a request to stop, which a daemon hears once.
//
// Later ones are ignored to the end of the process, also after this is destroyed: a supervisor that
// asks twice must not turn an orderly end into a death by signal. One per process; one thread: the
// one that runs the io_context.
#pragma once

#include <csignal>
#include <optional>
#include <utility>

#include "gpulet/net/asio.h"

namespace gpulet::net {

class StopSignals {
 public:
  explicit StopSignals(asio::io_context& io) : set_(std::in_place, io, SIGTERM, SIGINT) {}
  ~StopSignals() {
    set_.reset();  // restores the default action, which ends the process
    std::signal(SIGTERM, SIG_IGN);
    std::signal(SIGINT, SIG_IGN);
  }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Calls stop(signal) at the first one.
  template <typename Stop>
  void wait(Stop stop) {
    set_->async_wait([stop = std::move(stop)](const boost::system::error_code& error, int signal) {
      if (!error) stop(signal);
    });
  }

 private:
  std::optional<asio::signal_set> set_;
};

}  // namespace gpulet::net
