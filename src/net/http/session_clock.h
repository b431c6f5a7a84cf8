// SessionClock: how long an HTTP connection waits for its peer's bytes. Private to net/http.
// Single-strand type, as the server.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>

#include "gpulet/net/http/server.h"
#include "gpulet/net/stream.h"

namespace gpulet::net::http {

class SessionClock {
 public:
  using Clock = std::chrono::steady_clock;
  using TimePoint = Clock::time_point;

  // For a connection that begins now, maybe with a TLS handshake. `options` must outlive it.
  SessionClock(const HttpServerOptions& options, bool handshaking, bool reserved);

  // A connection that waits for its first request has finished its handshake.
  void handshake_done(TimePoint now);
  void request_began();
  void head_arrived() { silent_ = false; }
  void body_began();
  void body_received(std::size_t bytes);
  // Nothing is expected of the peer.
  void pause() { deadline_ = TimePoint::max(); }
  // A request was answered; the next one may come.
  void became_idle();
  // The last response was sent; the peer should close.
  void linger();

  [[nodiscard]] bool over(TimePoint now) const { return deadline_ <= now; }
  [[nodiscard]] bool body_is_slow(TimePoint now) const { return pace_.deadline() <= now; }
  // The required rate in words, for an error message.
  [[nodiscard]] std::string demand() const { return pace_.demand(); }
  // An idle connection may free its buffers.
  [[nodiscard]] bool may_park(TimePoint now) const { return park_at_ <= now; }
  // The start of the connection, or the end of its last request. Any thread.
  [[nodiscard]] TimePoint idle_since() const { return idle_since_; }
  // No request head has arrived. Any thread.
  [[nodiscard]] bool silent() const { return silent_; }

 private:
  [[nodiscard]] Duration idle_timeout() const;

  const HttpServerOptions& options_;
  Pace pace_;  // of the current body
  std::atomic<bool> silent_ = true;
  std::atomic<TimePoint> idle_since_ = Clock::now();
  TimePoint deadline_;
  TimePoint park_at_ = TimePoint::max();
};

}  // namespace gpulet::net::http
