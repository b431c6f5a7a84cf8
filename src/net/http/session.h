// Session: one connection of an HttpServer. Private to net/http; single-strand, as the server.
//
// One request is under way at a time. While the handler has it, reading goes on into the same small
// buffer until that is full: so the next request may already come, and a peer that left is noticed
// without a system call for it. A connection that idles gives its buffers back.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gpulet/net/buffer_pool.h"
#include "gpulet/net/http/server.h"
#include "gpulet/net/listener.h"
#include "net/http/answer_head.h"
#include "net/http/coding.h"
#include "net/http/request_reader.h"
#include "net/write_queue.h"

namespace gpulet::net::http {

// What all sessions of a server share.
struct SessionContext {
  const HttpServerOptions options;
  BufferPool& buffers;
  RequestHandler& handler;
  DateText date{};
  bool draining = false;
};

class Session final : public std::enable_shared_from_this<Session>, private Place::Holder {
 public:
  using Clock = std::chrono::steady_clock;

  // `on_closed` is called once, when it has closed by itself; not after abandon().
  Session(Stream stream, ConnectionSlot slot, std::shared_ptr<SessionContext> context,
          std::function<void()> on_closed);

  void start();
  // The context is draining now.
  void drain();
  void check_deadlines(Clock::time_point now);
  // Closes without a callback.
  void abandon();
  // Closes at once.
  void close();
  [[nodiscard]] const PeerIdentity& peer() const { return *peer_; }

  // ---- of its exchange
  void answer(HttpResponse response);
  void drop();  // it will not be answered
  void on_gone(std::function<void()> gone);
  void begin_stream(const HttpResponse& head);
  bool send_part(std::string part);
  void end_stream();
  void on_drained(std::function<void()> drained);
  void abort_stream();

 private:
  [[nodiscard]] Standing standing() const override;
  void give_way() override;

  enum class Phase : std::uint8_t {
    idle,       // between requests: nothing of the next one is here
    receiving,  // a request
    decoding,   // taking off its Content-Encoding
    waiting,    // the handler has it
    encoding,   // putting a Content-Encoding on its answer
    streaming,  // its answer has no end yet
    leaving,    // the last answer goes out; what comes in is discarded
    lingering,  // all is out; closing with unread bytes would take the answer from the peer
    closed,
  };

  // Bytes that were received and not taken yet.
  class Inbox {
   public:
    [[nodiscard]] std::span<const std::byte> view() const {
      return {bytes_.data() + begin_, end_ - begin_};
    }
    [[nodiscard]] bool empty() const { return begin_ == end_; }
    [[nodiscard]] std::size_t capacity() const { return bytes_.size(); }
    void take(std::size_t bytes) { begin_ += bytes; }

    // Room behind what is there, of a buffer of that size at least; empty where that is full.
    // It stays where it is until the next of these calls: a pending read may fill it meanwhile.
    [[nodiscard]] std::span<std::byte> space(std::size_t capacity);
    void received(std::size_t bytes) { end_ += bytes; }
    void clear() { begin_ = end_ = 0; }
    void release();

   private:
    std::vector<std::byte> bytes_;
    std::size_t begin_ = 0;
    std::size_t end_ = 0;
  };

  // ---- receiving
  void wait_for_bytes();
  void read();
  void on_read(const boost::system::error_code& error, std::size_t bytes, bool into_body);
  void on_peer_left();
  void turn();
  [[nodiscard]] bool take_step();
  [[nodiscard]] bool on_need_more();
  void on_head();
  [[nodiscard]] std::optional<HttpResponse> refusal();
  [[nodiscard]] std::optional<HttpResponse> bound_body();
  void begin_body();
  [[nodiscard]] Duration idle_timeout() const;
  [[nodiscard]] std::optional<HttpResponse> turn_away();
  void refuse(HttpResponse response);
  void on_whole();
  void decode();
  void hand_over(HttpRequest request);
  void fail(unsigned status, const std::string& message);

  // ---- answering
  void encode();
  void push_answer(HttpResponse response, Coding coding = Coding::identity);
  void flush();
  void wait_until_writable();
  void all_sent();

  // ---- the end
  void become_idle();
  void leave();
  void on_hands_shaken(Clock::time_point now);
  void shut();
  void tell_gone();
  void tell_drained();

  [[nodiscard]] bool closed() const { return phase_ == Phase::closed; }
  [[nodiscard]] bool discards() const {
    return phase_ == Phase::leaving || phase_ == Phase::lingering;
  }
  [[nodiscard]] std::size_t inbox_capacity() const;
  void later(void (*act)(Session&));

  Stream stream_;
  ConnectionSlot slot_;
  const std::shared_ptr<SessionContext> context_;
  std::function<void()> on_closed_;
  RequestReader reader_;
  const std::shared_ptr<PeerIdentity> peer_;
  Inbox inbox_;
  WriteQueue queue_;
  std::function<void()> gone_;
  std::function<void()> drained_;
  HttpRequest request_;    // while decoding
  HttpResponse response_;  // while encoding
  std::unique_ptr<Inflation> inflation_;
  std::unique_ptr<Deflation> deflation_;

  Phase phase_ = Phase::idle;
  Coding accepted_ = Coding::identity;  // by the request under way, for its answer
  bool keep_alive_ = true;              // asked for by it
  bool http_1_1_ = true;                // spoken by it
  bool without_body_ = false;           // its answer: it was a HEAD
  bool refused_ = false;                // answered before its body was here
  bool in_turn_ = false;                // answers gather until the end of it
  bool turn_due_ = false;               // it ended early: goes on once everything is sent
  bool reading_ = false;
  bool parking_ = false;         // its pending read is being cancelled to give its buffer back
  bool waits_to_write_ = false;  // the kernel takes no more for now
  bool peer_left_ = false;
  bool abandoned_ = false;
  bool shaking_hands_;              // when it was looked at last
  std::size_t max_body_bytes_ = 0;  // of the request under way, sent and decompressed
  Pace pace_;                       // of its body
  Clock::time_point read_deadline_;
  Clock::time_point write_deadline_ = Clock::time_point::max();
  bool silent_ = true;            // no request's head has come
  Clock::time_point idle_since_;  // where it is
  Clock::time_point park_at_ = Clock::time_point::max();
};

}  // namespace gpulet::net::http
