// Listener: accepts TCP connections on one address, plain or under TLS. ConnectionSlots: limits how
// many there are and chooses which ones to evict for new ones. Single-strand types, as Connection.
//
// Accept errors (no descriptors left, a peer that disconnected early) never end a listener: it
// retries after a backoff. A peer without a slot is accepted and closed at once; so is one whose
// descriptor is among the last of the process, unless a connection is evicted for it.
//
// Besides the general slots a few are reserved for requests that observe or administer the server.
// A new connection without a free general slot evicts others: first those that have not sent
// anything yet, oldest first, then those idle for a while. If none can be evicted it gets a
// reserved slot, over which no ordinary request is served. Each address has a limit of its own,
// under the same rules.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/stream.h"

namespace gpulet::net {

struct ConnectionLimits {
  std::size_t general = 4096;
  std::size_t reserve = 0;      // reserved slots, beyond the general ones
  std::size_t per_address = 0;  // general slots of one address; 0: no limit
  // One of this many connections is evicted at a time, because choosing them inspects all.
  std::size_t eviction_divisor = 64;
  Duration least_idle = std::chrono::seconds(5);  // before a connection counts as idle
};

// The key that per_address counts by: the address; for IPv6 the /64 network, which one host owns.
[[nodiscard]] std::string address_key(const asio::ip::address& address);

// One of a listener's connection slots. May outlive the ConnectionSlots.
class ConnectionSlot {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // The connection in a slot.
  class Holder {
   public:
    enum class State : std::uint8_t {
      silent,  // has not sent a whole frame or request yet
      idle,    // no work in progress
      busy,
    };
    struct Activity {
      State state = State::busy;
      TimePoint since;  // when the state began
    };
    [[nodiscard]] virtual Activity activity() const = 0;
    // Closes the connection, which returns the slot soon. Must not create or destroy holders.
    virtual void evict() = 0;
    Holder() = default;
    Holder(const Holder&) = delete;
    Holder& operator=(const Holder&) = delete;

   protected:
    ~Holder() = default;
  };

  [[nodiscard]] virtual bool reserved() const = 0;
  // A slot without a holder (null) is not evicted. REQUIRES: the holder lives until it is replaced.
  virtual void set_holder(Holder* holder) = 0;
  virtual ~ConnectionSlot() = default;
  ConnectionSlot() = default;
  ConnectionSlot(const ConnectionSlot&) = delete;
  ConnectionSlot& operator=(const ConnectionSlot&) = delete;
};
// Destroying it returns the slot.
using ConnectionSlotPointer = std::unique_ptr<ConnectionSlot>;

class ConnectionSlots {
 public:
  explicit ConnectionSlots(const ConnectionLimits& limits);
  ~ConnectionSlots();
  ConnectionSlots(const ConnectionSlots&) = delete;
  ConnectionSlots& operator=(const ConnectionSlots&) = delete;

  // Null where there is no slot for that address.
  [[nodiscard]] ConnectionSlotPointer take(const std::string& address,
                                           ConnectionSlot::TimePoint now);
  // Evicts some connections although slots are free. Returns how many.
  std::size_t evict_some(ConnectionSlot::TimePoint now);

  [[nodiscard]] std::size_t taken() const;
  [[nodiscard]] std::uint64_t evicted() const;   // since the start
  [[nodiscard]] std::uint64_t rejected() const;  // since the start

 private:
  class Table;
  std::shared_ptr<Table> table_;  // with the slots that are taken
};

struct ListenerOptions {
  ConnectionLimits connections{};
  int last_descriptor = std::numeric_limits<int>::max();  // highest descriptor for a connection
  // Backoff after a failed accept; doubles up to longest_pause.
  Duration first_pause = std::chrono::milliseconds(10);
  Duration longest_pause = std::chrono::seconds(1);
  TlsContextPointer tls{};  // a server's; null: plain
};

class Listener {
 public:
  // The receiver keeps the slot until the connection ends, as its holder. May destroy the listener.
  using OnSocket = std::function<void(Stream, ConnectionSlotPointer)>;

  // Binds and listens; callbacks start later. `host` is numeric; port 0: any free port. Fails with
  // invalid (not an address) or unavailable (in use, not permitted), naming address and port.
  [[nodiscard]] static Result<std::unique_ptr<Listener>> listen(
      const asio::any_io_executor& executor, const std::string& host, std::uint16_t port,
      const ListenerOptions& options, OnSocket on_socket);

  [[nodiscard]] std::uint16_t port() const;
  [[nodiscard]] std::string local_address() const;  // "127.0.0.1:7000", "[::1]:7000"
  [[nodiscard]] std::size_t connections() const;    // slots that are taken
  [[nodiscard]] std::uint64_t failed_accepts() const;
  [[nodiscard]] const ConnectionSlots& slots() const;

  // Applies to connections accepted from now on.
  void use_tls(TlsContextPointer tls);

  // Stops accepting; no callback follows. Existing connections stay.
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
