// BackendDaemon: the shell around serve::BackendCore. It turns the frontend's connection, the
// proxies, the drivers, the model store, the GPU monitor and a timer into events of the core, and
// carries out the core's effects. It makes no decisions itself.
//
// Everything runs on the thread of the io_context; proxies die with that thread. Destroying the
// daemon kills its proxies and releases its shares at once; stop() shuts down cleanly.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "backend/setup.h"
#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "gpulet/net/asio.h"
#include "gpulet/observe/log_limiter.h"
#include "gpulet/serve/backend_core.h"

namespace gpulet::backend {

// Receives every event of the core with its time and effects, to record a run. May be empty.
using CoreObserver =
    std::function<void(const serve::BackendEvent&, Time, const serve::BackendEffects&)>;

// When a backend connects to its frontend again, and which attempts to log. Pure; one thread.
//
// A frontend that cannot be reached may be starting: the connector retries within seconds, and the
// log gets one line, then reminders. A frontend that closes the connection without a welcome, or
// refuses this backend, would do so again: the delay doubles up to a minute. The backend never
// gives up, because the frontend's side may be fixed: a name becomes free, a certificate is
// renewed.
class ReconnectBackoff {
 public:
  static constexpr Duration kFirstReminder = std::chrono::seconds(10);
  static constexpr Duration kLongestReminder = std::chrono::minutes(10);
  static constexpr Duration kFirstDelay = std::chrono::seconds(2);
  static constexpr Duration kLongestDelay = std::chrono::minutes(1);

  // The frontend could not be reached. Returns whether to log it.
  [[nodiscard]] bool on_unreachable(Time now) {
    if (!unreachable_since_) {
      unreachable_since_ = now;
      reminder_.reset();
    }
    return reminder_.due(now);
  }

  // A connection ended. `refused`: without a welcome, or with a refusal. Returns the minimum delay
  // before the next attempt.
  [[nodiscard]] Duration on_closed(bool refused) {
    delay_ = refused ? std::clamp(2 * delay_, kFirstDelay, kLongestDelay) : Duration{};
    return delay_;
  }

  // The frontend welcomed this backend. Returns for how long it was unreachable; zero: it was not.
  [[nodiscard]] Duration on_welcome(Time now) {
    delay_ = {};
    const std::optional<Time> since = std::exchange(unreachable_since_, std::nullopt);
    return since ? now - *since : Duration{};
  }

 private:
  std::optional<Time> unreachable_since_;
  observe::LogBackoff reminder_{kFirstReminder, kLongestReminder};
  Duration delay_{};  // after the last refusal; zero: none
};

class BackendDaemon {
 public:
  // Starts to connect to the frontend, and retries for ever.
  [[nodiscard]] static std::unique_ptr<BackendDaemon> start(net::asio::io_context& io, Setup setup,
                                                            CoreObserver observer = {});
  ~BackendDaemon();
  BackendDaemon(const BackendDaemon&) = delete;
  BackendDaemon& operator=(const BackendDaemon&) = delete;

  // The processes that serve gpulets.
  [[nodiscard]] std::vector<pid_t> proxies() const;
  // The processes that have started and wait for a gpulet.
  [[nodiscard]] std::vector<pid_t> warm_proxies() const;

  // Accepts no new work, answers the batches in flight, ends the proxies (at once those that have
  // not loaded yet; kills any that takes longer than 30 s), closes the connection, then calls
  // `done`.
  void stop(std::function<void()> done);

 private:
  class Impl;
  explicit BackendDaemon(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpulet::backend
