// FrontendDaemon: runs serve::FrontendCore on sockets and timers. It turns what arrives on sockets
// into events of the core, and carries out the core's effects. It makes no decisions.
//
// Connections of clients run on I/O threads (FrontendConfig::io_threads), calls over gRPC on
// threads of their own. Everything else runs on the thread of the io_context, except work that
// would block it: planning, application steps, reading model files, and writing traces, metrics and
// status documents. These run on other threads, which post their results back. All functions belong
// to the thread of the io_context, which must have stopped before the daemon is destroyed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "frontend/setup.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/net/asio.h"
#include "gpulet/serve/frontend_core.h"

namespace gpulet::frontend {

// Receives each event of the core with its time and effects, to record a run for a replay.
using CoreObserver =
    std::function<void(const serve::FrontendEvent&, Time, const serve::FrontendEffects&)>;

class FrontendDaemon {
 public:
  // Binds the ports and starts. Fails with unavailable or invalid; the error names the address.
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
  // 0 if the configuration switches the port off.
  [[nodiscard]] std::uint16_t http_port() const;
  [[nodiscard]] std::uint16_t grpc_port() const;
  [[nodiscard]] std::uint16_t metrics_port() const;
  [[nodiscard]] serve::FrontendStatus status() const;
  // The time at which the core was created. A replay starts its core at this time.
  [[nodiscard]] Time started_at() const;

  // Becomes not ready. If anybody is connected, serves on for drain_grace; in a cluster, until the
  // others have taken over and clients have left. Then accepts nothing new, answers the requests in
  // flight (for at most drain_timeout), closes all connections, and calls `done`.
  void stop(std::function<void()> done);
  // Ends the waits of stop(): requests in flight are not answered.
  void hurry();
  // Reads the models file, the files that it names, tokens and certificates again, and opens the
  // audit log's file again.
  void reload();

 private:
  class Impl;
  explicit FrontendDaemon(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpulet::frontend
