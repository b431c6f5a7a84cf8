// Listener: accepts TCP connections on one address, plain or under TLS, for as long as it lives.
//
// Errors of accepting (no descriptors left, a peer that left before it was accepted) never end it:
// it pauses and goes on. A peer for whom there is no place (places.h) is accepted and closed at
// once. So is one whose descriptor is among the last that the process may have, unless another
// connection gave way to it. Single-strand type, as Connection; the callback may destroy the
// listener.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/connection.h"
#include "gpulet/net/places.h"

namespace gpulet::net {

struct ListenerOptions {
  PlaceLimits places{};
  int last_descriptor = std::numeric_limits<int>::max();  // that connections may have
  Duration first_pause =
      std::chrono::milliseconds(10);  // after a failed accept; doubles up to longest_pause
  Duration longest_pause = std::chrono::seconds(1);
  TlsContextPointer tls{};  // a server's; null: plain
};

// A place among the listener's connections. Whoever has the socket keeps it until the connection
// has ended, and sets itself as its holder.
using ConnectionSlot = std::unique_ptr<Place>;

class Listener {
 public:
  using OnSocket = std::function<void(Stream, ConnectionSlot)>;

  // Binds and listens; the first callback comes later. Port 0: any free one. The host is a numeric
  // address. Fails with invalid (not an address) or unavailable (in use, not permitted), naming
  // address and port.
  [[nodiscard]] static Result<std::unique_ptr<Listener>> listen(
      const asio::any_io_executor& executor, const std::string& host, std::uint16_t port,
      const ListenerOptions& options, OnSocket on_socket);

  [[nodiscard]] std::uint16_t port() const;
  [[nodiscard]] std::string local_address() const;  // "127.0.0.1:7000", "[::1]:7000"
  [[nodiscard]] std::size_t connections() const;    // slots that are out
  [[nodiscard]] std::uint64_t failed_accepts() const;
  [[nodiscard]] const Places& places() const;

  // Of connections that are accepted from now on.
  void use_tls(TlsContextPointer tls);

  // Accepts no more; no callback follows. Connections that were accepted stay.
  void close();

  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

 private:
  class Impl;
  explicit Listener(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;  // shared with the operation in flight
};

}  // namespace gpulet::net
