// BackendDaemon: the shell around serve::BackendCore. It maps the frontend's connection, the
// proxies, the drivers, the model store and a timer to the core's events, and carries out its
// effects; it decides nothing itself.
//
// Everything happens on the thread that runs the io_context; proxies die with that thread.
// Destroying the daemon kills its proxies and releases its shares without asking anybody; stop() is
// the clean way.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <vector>

#include "gpulet/backend/setup.h"
#include "gpulet/core/ids.h"
#include "gpulet/core/time.h"
#include "gpulet/net/asio.h"
#include "gpulet/serve/backend_events.h"

namespace gpulet::backend {

// Sees every event that the core gets, when, and what it answered: to record a run. Only called
// where one is given.
using CoreObserver =
    std::function<void(const serve::BackendEvent&, Time, const serve::BackendEffects&)>;

class BackendDaemon {
 public:
  // Starts to connect to the frontend, and goes on trying for ever.
  [[nodiscard]] static std::unique_ptr<BackendDaemon> start(net::asio::io_context& io, Setup setup,
                                                            CoreObserver observer = {});
  ~BackendDaemon();
  BackendDaemon(const BackendDaemon&) = delete;
  BackendDaemon& operator=(const BackendDaemon&) = delete;

  // The processes that serve gpulets now.
  [[nodiscard]] std::vector<pid_t> proxies() const;
  // The processes that have started and wait for a gpulet.
  [[nodiscard]] std::vector<pid_t> warm_proxies() const;

  // Takes nothing new, answers what is in flight, ends the proxies (at once those that have not
  // loaded yet, killing any that takes longer than 30 s), closes the connection, then calls `done`.
  void stop(std::function<void()> done);

 private:
  class Impl;
  explicit BackendDaemon(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpulet::backend
