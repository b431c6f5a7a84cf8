// Http2Session: the server's side of one HTTP/2 connection that carries gRPC calls, on libnghttp2.
// Bytes in, bytes out, no sockets and no clock. Private to net/grpc. One thread at a time.
//
// What a peer can make it hold is bounded: frames and header blocks (FrameGuard), the metadata of a
// call, calls in progress, messages (MessageReader, MemoryBudget), bytes of messages that wait for
// their call, and responses that the peer does not read: beyond a limit, new calls are refused and
// the peer may not send more.
#pragma once

#include <nghttp2/nghttp2.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/net/stream.h"
#include "net/grpc/call.h"
#include "net/grpc/frame_guard.h"
#include "net/grpc/message_reader.h"
#include "net/grpc/output_queue.h"

namespace gpulet::net::grpc_api {

struct SessionOptions {
  FrameLimits frames{};
  std::size_t metadata_bytes = 8U << 10U;  // of a call, by HTTP/2's count: 32 for each header
  std::size_t max_calls = 1024;            // in progress
  std::size_t max_unsent_bytes = 16U << 20U;
  // Bytes of messages that wait until their call takes them.
  std::size_t max_waiting_bytes = 4U << 20U;
  PaceLimits pace{};  // of a message that has begun, and of a call that takes one message
};

// What the sessions of a server share. Any thread.
struct SessionShared {
  const SessionOptions options;
  const MethodTable methods;
  const MemoryBudgetPointer budget;
  BufferPool& buffers;
  const std::shared_ptr<const std::atomic<std::size_t>> max_message_bytes;
};

// The connection of a session.
class SessionOwner {
 public:
  [[nodiscard]] virtual ResponderPointer responder_of(std::int32_t stream) = 0;
  // Calls Http2Session::continue_call() soon, after other connections had their turn.
  virtual void continue_later(std::int32_t stream) = 0;

 protected:
  ~SessionOwner() = default;
};

class Http2Session {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // `reserved`: serves no inferences. REQUIRES: shared and owner outlive the session.
  Http2Session(SessionShared& shared, SessionOwner& owner, std::string peer_address, bool reserved,
               TimePoint now);
  // Cancels the calls in progress.
  ~Http2Session();
  Http2Session(const Http2Session&) = delete;
  Http2Session& operator=(const Http2Session&) = delete;

  // Bytes of the peer, from the connection preface on.
  void receive(std::span<const std::byte> bytes, TimePoint now);
  // Responds to a call that may have ended.
  void respond(std::int32_t stream, std::optional<WireMessage> message, std::optional<CallEnd> end);
  void continue_call(std::int32_t stream, TimePoint now);
  // Ends calls whose deadline has passed and those that receive too slowly.
  void check_deadlines(TimePoint now);

  // Announces the end of the connection; calls that arrive before the peer knows are served.
  void start_drain();
  // Takes no more calls. over() follows the last call.
  void finish_drain();
  // Ends all calls with an error, then the connection.
  void end(const CallEnd& why);

  // Moves frames to the output while it is short. Call it after the functions above.
  void produce();
  [[nodiscard]] OutputQueue& output() { return output_; }
  // Nothing more is to be received; the connection ends with its output.
  [[nodiscard]] bool over() const;
  // The peer has sent its SETTINGS.
  [[nodiscard]] bool open() const { return open_; }
  [[nodiscard]] std::size_t calls() const { return calls_.size(); }
  [[nodiscard]] std::uint64_t calls_begun() const { return calls_begun_; }
  [[nodiscard]] std::size_t unsent_bytes() const { return unsent_bytes_; }
  [[nodiscard]] bool unread() const { return unsent_bytes_ > shared_.options.max_unsent_bytes; }

 private:
  struct Call;
  struct Callbacks;

  void begin_call(Call& call);
  void refuse_http(Call& call, std::string_view status, CallEnd why);
  void on_data(Call& call, std::span<const std::byte> bytes);
  // Gives bytes to the call as long as it takes messages. Returns how many.
  [[nodiscard]] std::size_t deliver(Call& call, std::span<const std::byte> bytes);
  [[nodiscard]] bool deliver_message(Call& call);
  void deliver_waiting(Call& call);
  void deliver_end(Call& call);
  // Ends a call from this side; its service is told.
  void fail(Call& call, const Status& why);
  void end_call(Call& call, CallEnd end);
  void on_stream_closed(std::int32_t stream);
  void consume(Call& call, std::size_t bytes);
  void return_window();
  void break_off(const Status& why);

  // ---- sending

  void submit_headers(Call& call);
  void submit_trailers(Call& call);
  [[nodiscard]] ssize_t next_data(Call& call, std::size_t most, std::uint32_t& flags);
  void send_data(Call& call, std::span<const std::byte> head, std::size_t bytes);

  [[nodiscard]] Call* find(std::int32_t stream);

  SessionShared& shared_;
  SessionOwner& owner_;
  const std::string peer_address_;
  const bool reserved_;
  FrameGuard guard_;
  std::size_t preface_left_;
  nghttp2_session* session_ = nullptr;
  std::map<std::int32_t, std::unique_ptr<Call>> calls_;
  OutputQueue output_;
  TimePoint now_;  // of the current call of a function
  std::size_t unsent_bytes_ = 0;
  std::size_t waiting_bytes_ = 0;
  std::size_t withheld_ = 0;  // of the connection's window
  std::uint64_t calls_begun_ = 0;
  bool open_ = false;
  bool broken_ = false;
};

}  // namespace gpulet::net::grpc_api
