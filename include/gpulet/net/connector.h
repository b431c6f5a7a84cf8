// Connector: a TCP connection to one place, plain or under TLS, once or again and again.
//
// Single-strand type, as Connection. One attempt at a time; callbacks are never made from within a
// call. Destroying or closing it ends the attempt without a callback; a callback may do so.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/connection.h"

namespace gpulet::net {

struct ConnectorOptions {
  Duration timeout = std::chrono::seconds(5);  // of one attempt, finding the address included
  Duration first_pause =
      std::chrono::milliseconds(100);  // between attempts; doubles up to longest_pause
  Duration longest_pause = std::chrono::seconds(5);
  TlsContextPointer tls{};  // a client's; null: plain
};

class Connector {
 public:
  // Fails with timeout, or unavailable (not found, refused, unreachable), naming host and port.
  using OnDone = std::function<void(Result<Stream>)>;
  using OnConnected = std::function<void(Stream)>;
  // An attempt failed; the next one comes after the pause.
  using OnAttemptFailed = std::function<void(const Status&, Duration pause)>;

  // The host is an address or a name.
  Connector(const asio::any_io_executor& executor, std::string host, std::uint16_t port,
            const ConnectorOptions& options);

  // One attempt. REQUIRES: none is under way.
  void connect(OnDone on_done);
  // Until it succeeds. After a first success the next call pauses before its first attempt, the
  // longer the sooner it follows: a peer which accepts and closes at once, or refuses what it is
  // shown under TLS, is not asked in a tight loop. The first attempt comes after `at_least` or
  // later.
  void connect_with_retry(OnConnected on_connected, OnAttemptFailed on_failed,
                          Duration at_least = {});
  void close();

  ~Connector();
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;  // shared with the operation in flight
};

}  // namespace gpulet::net
