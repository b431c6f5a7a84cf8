// Listener: accepts TCP connections on one address, plain or under TLS. ConnectionSlots: limits how
// many there are and chooses which ones to evict for new ones. LocalListener: accepts processes of
// this machine that were invited.
//
// A Listener is a single-strand type, as Connection, but may give its connections to other
// executors. So ConnectionSlots and ConnectionSlot may be used on any thread, and they call the
// holder of a slot on any thread.
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
#include <vector>

#include "gpulet/base/files.h"
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

  // The connection in a slot. Both functions are called on any thread while the holder is set, one
  // call at a time, and must not wait for another thread.
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
    // Closes the connection soon, which returns the slot. It may have become busy since activity()
    // was called: to its peer, the request then came too late. Must not create or destroy holders.
    virtual void evict() = 0;
    Holder() = default;
    Holder(const Holder&) = delete;
    Holder& operator=(const Holder&) = delete;

   protected:
    ~Holder() = default;
  };

  [[nodiscard]] virtual bool reserved() const = 0;
  // The connection goes to another thread: until it has a holder, it counts as silent since the
  // slot was taken. Without this call, a slot without a holder is not evicted.
  virtual void start_journey() = 0;
  // Called at most once. If the slot was evicted on its way, evicts the holder at once. REQUIRES:
  // the holder lives until the slot is destroyed.
  virtual void set_holder(Holder& holder) = 0;
  virtual ~ConnectionSlot() = default;
  ConnectionSlot() = default;
  ConnectionSlot(const ConnectionSlot&) = delete;
  ConnectionSlot& operator=(const ConnectionSlot&) = delete;
};
// Destroying it returns the slot. No call to its holder is in progress from then on.
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
  // The receiver keeps the slot until the connection ends, as its holder. May destroy the listener
  // if it belongs to the listener's executor.
  using OnSocket = std::function<void(Stream, ConnectionSlotPointer)>;
  // The connections of one executor: they belong to it, and so does the callback.
  struct Receiver {
    asio::any_io_executor executor;
    OnSocket on_socket;
  };

  // Binds and listens; callbacks start later. `host` is numeric; port 0: any free port. Fails with
  // invalid (not an address) or unavailable (in use, not permitted), naming address and port.
  [[nodiscard]] static Result<std::unique_ptr<Listener>> listen(
      const asio::any_io_executor& executor, const std::string& host, std::uint16_t port,
      const ListenerOptions& options, OnSocket on_socket);
  // The same with several receivers, which take turns. REQUIRES: at least one.
  [[nodiscard]] static Result<std::unique_ptr<Listener>> listen(
      const asio::any_io_executor& executor, const std::string& host, std::uint16_t port,
      const ListenerOptions& options, std::vector<Receiver> receivers);

  [[nodiscard]] std::uint16_t port() const;
  [[nodiscard]] std::string local_address() const;  // "127.0.0.1:7000", "[::1]:7000"
  [[nodiscard]] std::size_t connections() const;    // slots that are taken
  [[nodiscard]] std::uint64_t failed_accepts() const;
  [[nodiscard]] const ConnectionSlots& slots() const;

  // Applies to connections accepted from now on.
  void use_tls(TlsContextPointer tls);

  // Stops accepting; no callback follows, except on executors of others. Existing connections stay.
  void close();

  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

 private:
  class Impl;
  explicit Listener(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;  // shared with the operation in flight
};

// ---- processes of one machine
//
// A process that has learnt the name of a LocalListener and a secret over another connection opens
// the Unix socket of that name and shows the secret. The name is random and abstract: there is no
// file, and only processes of the same network namespace find the socket. The kernel tells each
// side the user of the other one. The listener hears only its own user and root; the other process
// opens only a socket of the user that it was told.

inline constexpr std::size_t kLocalSecretBytes = 64;  // hexadecimal digits: 256 random bits
[[nodiscard]] std::string draw_local_secret();

struct LocalListenerOptions {
  // Empty: the user of this process, and root.
  std::function<bool(std::uint32_t user)> admits{};
  Duration secret_within = std::chrono::seconds(5);
  std::size_t most_silent = 16;  // that have not shown a secret; a further one closes the oldest
};

class LocalListener {
 public:
  // A peer showed the secret; the next byte of the socket is the first one after it. The receiver
  // compares it. May destroy the listener.
  using OnPeer = std::function<void(const std::string& secret, StreamSocket socket)>;

  // Fails with unavailable.
  [[nodiscard]] static Result<std::unique_ptr<LocalListener>> listen(
      const asio::any_io_executor& executor, LocalListenerOptions options, OnPeer on_peer);

  [[nodiscard]] const std::string& name() const;
  // The user of this process, which peers expect.
  [[nodiscard]] static std::uint32_t user();

  ~LocalListener();
  LocalListener(const LocalListener&) = delete;
  LocalListener& operator=(const LocalListener&) = delete;

 private:
  class Impl;
  explicit LocalListener(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;  // shared with the operations in flight
};

// Opens the socket of that name, which must belong to `user`, and shows the secret. Does not wait.
// Fails with invalid (a secret of another length), unavailable (there is no such socket here, or it
// is busy) or unauthenticated (it is another user's).
[[nodiscard]] Result<StreamSocket> open_local(const asio::any_io_executor& executor,
                                              const std::string& name, std::uint32_t user,
                                              const std::string& secret);

// Sends one byte over a socket that nothing else was sent on, and with it a copy of the descriptor;
// -1: none. False: the peer is gone.
[[nodiscard]] bool send_descriptor(StreamSocket& socket, int descriptor);
// Receives that byte, which must have arrived. Not valid: no descriptor came with it. Fails with
// unavailable (the peer is gone) or malformed.
[[nodiscard]] Result<FileDescriptor> receive_descriptor(StreamSocket& socket);

}  // namespace gpulet::net
