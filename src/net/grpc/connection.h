// Connection: the socket of an Http2Session, plain or under TLS. Its thread: IoThread. Private to
// net/grpc; only on that thread, except where noted.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "gpulet/base/time.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/listener.h"
#include "gpulet/net/stream.h"
#include "net/grpc/session.h"

namespace gpulet::net::grpc_api {

class Connection;

// The event loop of some connections. Responders may outlive the server: they hold it weakly.
struct IoThread {
  asio::io_context io{1};
  std::list<std::shared_ptr<Connection>> connections;
  std::vector<std::byte> scratch = std::vector<std::byte>(256U << 10U);  // to receive into
};
using IoThreadPointer = std::shared_ptr<IoThread>;

struct ConnectionTimes {
  Duration handshake = std::chrono::seconds(10);  // TLS's, then HTTP/2's
  Duration idle = std::chrono::minutes(10);       // without a call, or without progress of one
  Duration write = std::chrono::seconds(30);      // without progress of a write
};

// What the connection's slot is told. Any thread.
struct ConnectionActivity {
  std::atomic<ConnectionSlot::Holder::State> state = ConnectionSlot::Holder::State::silent;
  std::atomic<ConnectionSlot::TimePoint> since = std::chrono::steady_clock::now();
  std::atomic<bool> evicted = false;  // the connection then closes soon
};

class Connection final : public std::enable_shared_from_this<Connection>, public SessionOwner {
 public:
  using TimePoint = Http2Session::TimePoint;

  struct Parts {
    IoThreadPointer thread;
    std::shared_ptr<SessionShared> shared;
    ConnectionTimes times;
    std::shared_ptr<ConnectionActivity> activity;
    bool reserved = false;
    std::function<void()> on_closed;  // last call
  };
  // `stream` runs on the thread's io_context.
  Connection(Stream stream, Parts parts);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void start();
  void check_deadlines(TimePoint now);
  void respond(std::int32_t stream, std::optional<WireMessage> message, std::optional<CallEnd> end);
  void start_drain();
  void finish_drain();
  // Ends all calls with `why`, then the connection.
  void end(const CallEnd& why);

 private:
  enum class Phase : std::uint8_t {
    greeting,  // the preface has not arrived
    open,
    ending,     // sends what is queued
    lingering,  // has sent all; discards what arrives until the peer closes
    closed,
  };

  [[nodiscard]] ResponderPointer responder_of(std::int32_t stream) override;
  void continue_later(std::int32_t stream) override;

  void wait_to_read();
  void on_readable();
  void on_received(std::span<const std::byte> bytes);
  void on_read_failed(const Stream::Error& error);
  void greet(std::span<const std::byte> bytes);
  void answer_other_protocol();
  // Sends what there is, and ends the connection where it is over.
  void flush();
  void write();
  void end_after_output();
  void linger();
  void close();
  void note_activity();

  Stream stream_;
  Parts parts_;
  const std::string peer_address_;
  Phase phase_ = Phase::greeting;
  std::string greeting_;
  std::unique_ptr<Http2Session> session_;  // null before the preface
  OutputQueue farewell_;                   // without a session
  bool writing_ = false;                   // waits for the socket
  bool draining_ = false;
  bool lingers_ = true;  // the peer waits for what is sent last
  std::size_t discarded_ = 0;
  TimePoint opened_;
  TimePoint last_call_;   // when there was a call in progress
  TimePoint last_write_;  // when bytes were written, or there were none
  TimePoint last_sent_;   // when unsent bytes became fewer, or there were none
  std::size_t unsent_ = 0;
  TimePoint end_by_;  // where the connection ends
};

}  // namespace gpulet::net::grpc_api
