// BackendDaemon: the shell around node::BackendCore. It turns the connections to frontends, the
// proxies, the drivers, the model store, the GPU monitor and a timer into events of the core, and
// carries out the core's effects. It makes no decisions itself.
//
// Everything runs on the thread of the io_context; proxies die with that thread. Destroying the
// daemon kills its proxies and releases its shares at once; stop() shuts down cleanly.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <vector>

#include "backend/setup.h"
#include "gpulet/base/time.h"
#include "gpulet/net/asio.h"
#include "gpulet/node/backend_core.h"

namespace gpulet::backend {

// Receives every event of the core with its time and effects, to record a run. May be empty.
using CoreObserver =
    std::function<void(const node::BackendEvent&, Time, const node::BackendEffects&)>;

class BackendDaemon {
 public:
  // Starts to connect to every frontend of the configuration, and retries for ever.
  [[nodiscard]] static std::unique_ptr<BackendDaemon> start(net::asio::io_context& io, Setup setup,
                                                            CoreObserver observer = {});
  ~BackendDaemon();
  BackendDaemon(const BackendDaemon&) = delete;
  BackendDaemon& operator=(const BackendDaemon&) = delete;

  // The processes that serve gpulets.
  [[nodiscard]] std::vector<pid_t> proxies() const;
  // The processes that have started and wait for a gpulet.
  [[nodiscard]] std::vector<pid_t> warm_proxies() const;
  // The processes that have loaded models and serve no gpulet (parking.h).
  [[nodiscard]] std::vector<pid_t> parked_proxies() const;

  // Accepts no new work, answers the batches in flight, ends the proxies (at once those that have
  // not loaded yet; kills any that takes longer than 30 s), closes the connections, then calls
  // `done`.
  void stop(std::function<void()> done);

  // Reads the certificate and the authorities again, on a separate thread, for the next connections
  // to frontends. Files that cannot be used are reported, and the previous content stays.
  void reload();

 private:
  class Impl;
  explicit BackendDaemon(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpulet::backend
