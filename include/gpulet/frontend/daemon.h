// FrontendDaemon: the shell around serve::FrontendCore. It maps sockets and timers to the core's
// events and the core's effects to sockets; it decides nothing itself.
//
// Everything happens on the thread that runs the io_context, except what would hold it up:
// planning, the steps of applications, reading models' files, and writing traces and what is told
// of the status. These have threads of their own and post their results back. The daemon must
// outlive every handler of the io_context: stop running it before destroying the daemon.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/frontend/setup.h"
#include "gpulet/net/asio.h"
#include "gpulet/serve/frontend_core.h"

namespace gpulet::frontend {

// Sees every event that the core gets, when, and what it answered: to record a run and replay it
// through another core. Only called where one is given.
using CoreObserver =
    std::function<void(const serve::FrontendEvent&, Time, const serve::FrontendEffects&)>;

class FrontendDaemon {
 public:
  // Binds its ports and starts. Fails with unavailable or invalid, naming the address.
  [[nodiscard]] static Result<std::unique_ptr<FrontendDaemon>> start(net::asio::io_context& io,
                                                                     Setup setup,
                                                                     CoreObserver observer = {});
  ~FrontendDaemon();
  FrontendDaemon(const FrontendDaemon&) = delete;
  FrontendDaemon& operator=(const FrontendDaemon&) = delete;

  [[nodiscard]] std::string client_address() const;
  [[nodiscard]] std::string backend_address() const;
  [[nodiscard]] std::uint16_t client_port() const;
  [[nodiscard]] std::uint16_t backend_port() const;
  // The Open Inference Protocol and metrics; 0: off.
  [[nodiscard]] std::uint16_t http_port() const;
  [[nodiscard]] std::uint16_t grpc_port() const;
  [[nodiscard]] std::uint16_t metrics_port() const;
  [[nodiscard]] serve::FrontendStatus status() const;
  // The time the core was made with; a replay starts with it.
  [[nodiscard]] Time started_at() const;

  // Takes nothing new, answers what is here (bounded by the configuration's drain_timeout), closes
  // every connection, then calls `done`.
  void stop(std::function<void()> done);

 private:
  class Impl;
  explicit FrontendDaemon(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// What the core is made with; a replay makes its core with the same.
[[nodiscard]] serve::FrontendOptions core_options(const Setup& setup);

}  // namespace gpulet::frontend
