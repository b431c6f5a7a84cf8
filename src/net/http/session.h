// Session: one connection of an HttpServer. Private to net/http. Single-strand type: that of its
// stream.
//
// Handles one request at a time. Meanwhile it keeps reading into the same small buffer until that
// is full, so that pipelined requests arrive early and a disconnect is noticed without an extra
// system call. An idle session frees its buffers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "gpulet/net/buffer_pool.h"
#include "gpulet/net/http/server.h"
#include "gpulet/net/listener.h"
#include "net/http/acceptance.h"
#include "net/http/coding.h"
#include "net/http/http1.h"
#include "net/http/inbox.h"
#include "net/http/notice.h"
#include "net/http/session_clock.h"
#include "net/stream_pump.h"

namespace gpulet::net::http {

// Shared by all sessions of a server.
struct SessionContext {
  const HttpServerOptions options;
  BufferPool& buffers;
  RequestHandler& handler;
  DateText date{};
  bool leaving = false;  // every response is the last of its connection
  bool draining = false;
};

class Session final : public std::enable_shared_from_this<Session>,
                      public StreamPump::Owner,
                      private ConnectionSlot::Holder {
 public:
  using Clock = SessionClock::Clock;

  // `on_closed` is called once when the session closes; not after abandon().
  Session(Stream stream, ConnectionSlotPointer slot, std::shared_ptr<SessionContext> context,
          std::function<void()> on_closed);

  void start();
  // REQUIRES: the context is draining.
  void drain();
  void check_deadlines(Clock::time_point now);
  // Closes without a callback.
  void abandon();
  // Closes at once.
  void close();
  [[nodiscard]] const access::PeerIdentity& peer() const { return *peer_; }

  // ---- for its exchange
  void answer(HttpResponse response);
  void drop();  // the handler will not respond
  void on_gone(std::function<void()> gone);
  void begin_stream(const HttpResponse& head);
  bool send_part(std::string part);
  void end_stream();
  void on_drained(std::function<void()> drained);
  void abort_stream();

 private:
  [[nodiscard]] Activity activity() const override;
  void evict() override;
  [[nodiscard]] std::shared_ptr<StreamPump::Owner> shared() override { return shared_from_this(); }
  void on_all_written() override;
  void on_blocked() override {}
  void on_write_failed(const boost::system::error_code& /*error*/) override { close(); }

  enum class Phase : std::uint8_t {
    idle,       // between requests, no byte of the next one has arrived
    receiving,  // a request
    decoding,   // the request's Content-Encoding
    waiting,    // for the handler
    encoding,   // the response
    streaming,  // a response without an end yet
    leaving,    // sending the last response; received bytes are discarded
    lingering,  // waits for the peer to close: closing with unread bytes would lose the response
    closed,
  };

  // ---- receiving
  void wait_for_bytes();
  void read();
  void on_read(const boost::system::error_code& error, std::size_t bytes, bool into_body);
  void on_peer_left();
  void turn();
  [[nodiscard]] bool take_step();
  void on_head();
  void refuse(HttpResponse response);
  void on_whole();
  void decode();
  void hand_over(HttpRequest request);
  void fail(unsigned status, const std::string& message);
  void fail(const RequestReader::Failure& failure);

  // ---- answering
  void encode();
  void push_response(HttpResponse response, Coding coding = Coding::identity);
  void all_sent();

  // ---- the end
  void become_idle();
  void leave();
  void shut();

  [[nodiscard]] bool closed() const { return phase_ == Phase::closed; }
  [[nodiscard]] bool takes_requests() const {
    const Phase phase = phase_;
    return phase == Phase::idle || phase == Phase::receiving;
  }
  [[nodiscard]] bool discards() const {
    return phase_ == Phase::leaving || phase_ == Phase::lingering;
  }
  [[nodiscard]] std::size_t inbox_capacity() const;
  void later(void (*act)(Session&));

  StreamPump pump_;
  ConnectionSlotPointer slot_;
  const std::shared_ptr<SessionContext> context_;
  SessionClock clock_;
  Acceptance acceptance_;
  std::function<void()> on_closed_;
  RequestReader reader_;
  const std::shared_ptr<access::PeerIdentity> peer_;
  Inbox inbox_;
  Notice gone_;
  Notice drained_;
  HttpRequest request_;    // while decoding
  HttpResponse response_;  // while encoding
  std::unique_ptr<Inflation> inflation_;
  std::unique_ptr<Deflation> deflation_;

  std::atomic<Phase> phase_ = Phase::idle;  // activity() reads it on any thread
  Coding accepted_ = Coding::identity;      // for the response to the current request
  bool keep_alive_ = true;                  // requested by the current request
  bool http_1_1_ = true;                    // version of the current request
  bool without_body_ = false;               // the current request is a HEAD
  bool refused_ = false;                    // rejected before its body arrived
  bool in_turn_ = false;                    // responses are gathered until its end
  bool turn_due_ = false;                   // the turn ended early; resume once all is sent
  bool reading_ = false;
  bool parking_ = false;  // cancelling the pending read to free its buffer
  bool peer_left_ = false;
  bool abandoned_ = false;
  bool handshaking_;  // as last polled
};

}  // namespace gpulet::net::http
