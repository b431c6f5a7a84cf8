#include "net/grpc/connection.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "gpulet/base/text.h"
#include "gpulet/net/http/message.h"
#include "gpulet/protocol/frame.h"

namespace gpulet::net::grpc_api {
namespace {

using Clock = std::chrono::steady_clock;
using State = ConnectionSlot::Holder::State;

constexpr std::string_view kPreface(NGHTTP2_CLIENT_MAGIC, NGHTTP2_CLIENT_MAGIC_LEN);
constexpr Duration kLingerFor = std::chrono::seconds(1);
constexpr std::size_t kMostDiscarded = 256U << 10U;
constexpr Duration kReservedFor = std::chrono::seconds(5);  // without a call, in a reserved slot

// An empty SETTINGS frame and GOAWAY: what peers of other protocols recognise HTTP/2 by.
constexpr std::array<unsigned char, 26> kHttp2Farewell{0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 8, 7,
                                                       0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};

std::string http_answer(std::string_view error) {
  const std::string body = json_error(error) + '\n';
  return "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n"
         "Content-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

// Reaches the connection from any thread.
class StreamResponder final : public Responder {
 public:
  StreamResponder(const IoThreadPointer& thread, std::weak_ptr<Connection> connection,
                  std::int32_t stream)
      : thread_(thread), connection_(std::move(connection)), stream_(stream) {}

  void respond(std::optional<WireMessage> message, std::optional<CallEnd> end) override {
    const IoThreadPointer thread = thread_.lock();
    if (!thread) return;
    asio::post(thread->io, [connection = connection_, stream = stream_,
                            message = std::move(message), end = std::move(end)]() mutable {
      if (const auto there = connection.lock())
        there->respond(stream, std::move(message), std::move(end));
    });
  }

 private:
  const std::weak_ptr<IoThread> thread_;
  const std::weak_ptr<Connection> connection_;
  const std::int32_t stream_;
};

}  // namespace

Connection::Connection(Stream stream, Parts parts)
    : stream_(std::move(stream)),
      parts_(std::move(parts)),
      peer_address_(stream_.peer_address()),
      opened_(Clock::now()),
      last_call_(opened_),
      last_write_(opened_),
      last_sent_(opened_),
      end_by_(TimePoint::max()) {}
Connection::~Connection() = default;

void Connection::start() {
  stream_.prepare();
  wait_to_read();
}

ResponderPointer Connection::responder_of(std::int32_t stream) {
  return std::make_shared<StreamResponder>(parts_.thread, weak_from_this(), stream);
}

void Connection::continue_later(std::int32_t stream) {
  asio::post(parts_.thread->io, [self = shared_from_this(), stream] {
    if (!self->session_ || self->phase_ != Phase::open) return;
    self->session_->continue_call(stream, Clock::now());
    self->flush();
  });
}

// ---- receiving

void Connection::wait_to_read() {
  stream_.async_wait_readable([self = shared_from_this()](const Stream::Error& error) {
    if (self->phase_ == Phase::closed) return;
    if (error) return self->close();
    self->on_readable();
  });
}

void Connection::on_readable() {
  std::vector<std::byte>& scratch = parts_.thread->scratch;
  Stream::Error error;
  const std::size_t bytes =
      stream_.read_some(asio::mutable_buffer(scratch.data(), scratch.size()), error);
  if (error && error != asio::error::would_block) return on_read_failed(error);
  if (bytes > 0) on_received(std::span(scratch).first(bytes));
  if (phase_ != Phase::closed) wait_to_read();
}

void Connection::on_read_failed(const Stream::Error& /*error*/) {
  if (phase_ != Phase::greeting || !stream_.broken()) return close();
  if (stream_.peer_is_plain()) {
    stream_.drop_tls();
    const std::string answer =
        http_answer("this gRPC port requires TLS; connect with TLS (docs/security.md)");
    farewell_.add(std::as_bytes(std::span(answer)));
  }
  end_after_output();
  if (phase_ != Phase::closed) wait_to_read();
}

void Connection::on_received(std::span<const std::byte> bytes) {
  switch (phase_) {
    case Phase::greeting:
      return greet(bytes);
    case Phase::open:
      session_->receive(bytes, Clock::now());
      return flush();
    case Phase::ending:
    case Phase::lingering:
      discarded_ += bytes.size();
      if (discarded_ > kMostDiscarded) close();
      return;
    case Phase::closed:
      return;
  }
}

// Nothing is sent before the first bytes tell which protocol the peer speaks.
void Connection::greet(std::span<const std::byte> bytes) {
  greeting_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::size_t known = std::min(greeting_.size(), kPreface.size());
  if (kPreface.substr(0, known) != greeting_.substr(0, known)) return answer_other_protocol();
  if (known < kPreface.size()) return;
  phase_ = Phase::open;
  const TimePoint now = Clock::now();
  session_ =
      std::make_unique<Http2Session>(*parts_.shared, *this, peer_address_, parts_.reserved, now);
  const std::string greeting = std::exchange(greeting_, {});
  session_->receive(std::as_bytes(std::span(greeting)), now);
  if (draining_) session_->start_drain();
  flush();
}

void Connection::answer_other_protocol() {
  const auto first = std::as_bytes(std::span(greeting_));
  if (protocol::dialect_of(first) == protocol::Dialect::http) {
    const std::string answer = http_answer(
        "this is a gRPC port (HTTP/2) and the peer speaks HTTP/1.1; HTTP has a port of its own, "
        "8000 by default");
    farewell_.add(std::as_bytes(std::span(answer)));
  } else {
    farewell_.add(std::as_bytes(std::span(kHttp2Farewell)));
  }
  end_after_output();
}

// ---- sending

void Connection::respond(std::int32_t stream, std::optional<WireMessage> message,
                         std::optional<CallEnd> end) {
  if (phase_ != Phase::open) return;
  session_->respond(stream, std::move(message), std::move(end));
  flush();
}

void Connection::flush() {
  if (phase_ != Phase::open) return;
  if (!writing_) write();
  if (phase_ != Phase::open) return;
  note_activity();
  if (session_->over()) end_after_output();
}

void Connection::write() {
  while (phase_ != Phase::closed) {
    if (session_) session_->produce();
    OutputQueue& output = session_ ? session_->output() : farewell_;
    const TimePoint now = Clock::now();
    if (output.empty()) {
      last_write_ = now;
      if (phase_ == Phase::ending) linger();
      return;
    }
    Stream::Error error;
    const std::size_t bytes = stream_.write_some(output.front(), error);
    if (error && error != asio::error::would_block) return close();
    output.written(bytes);
    if (bytes > 0) last_write_ = now;
    if (!error && (bytes > 0)) continue;
    writing_ = true;
    stream_.async_wait_writable([self = shared_from_this()](const Stream::Error& failure) {
      self->writing_ = false;
      if (self->phase_ == Phase::closed) return;
      if (failure) return self->close();
      self->write();
      self->flush();
    });
    return;
  }
}

void Connection::end_after_output() {
  if (phase_ >= Phase::ending) return;
  phase_ = Phase::ending;
  end_by_ = Clock::now() + kLingerFor;
  if (!writing_) write();
}

// Closing with unread bytes would discard what the peer has not received yet.
void Connection::linger() {
  if (!lingers_) return close();
  phase_ = Phase::lingering;
  stream_.shutdown_send();
}

void Connection::close() {
  if (std::exchange(phase_, Phase::closed) == Phase::closed) return;
  const std::shared_ptr<Connection> self = shared_from_this();
  session_.reset();
  stream_.close();
  auto& connections = parts_.thread->connections;
  connections.remove(self);
  if (const auto on_closed = std::exchange(parts_.on_closed, nullptr)) on_closed();
}

// ---- its end

void Connection::start_drain() {
  draining_ = true;
  if (phase_ == Phase::greeting) return close();
  if (phase_ != Phase::open) return;
  session_->start_drain();
  flush();
}

void Connection::finish_drain() {
  if (phase_ != Phase::open) return;
  session_->finish_drain();
  flush();
}

void Connection::end(const CallEnd& why) {
  if (phase_ == Phase::greeting) return close();
  if (phase_ != Phase::open) return;
  lingers_ = session_->calls() > 0;
  session_->end(why);
  // Responses that are complete may need the client to extend their windows first.
  end_by_ = Clock::now() + kLingerFor;
  flush();
}

void Connection::note_activity() {
  const TimePoint now = Clock::now();
  const bool busy = session_->calls() > 0;
  const State state = busy                          ? State::busy
                      : session_->calls_begun() > 0 ? State::idle
                                                    : State::silent;
  if (busy || parts_.activity->state != state) last_call_ = now;
  if (parts_.activity->state.exchange(state) != state && state != State::silent)
    parts_.activity->since = now;
  if (session_->unsent_bytes() < unsent_ || session_->unsent_bytes() == 0) last_sent_ = now;
  unsent_ = session_->unsent_bytes();
}

void Connection::check_deadlines(TimePoint now) {
  const ConnectionTimes& times = parts_.times;
  if (parts_.activity->evicted && phase_ <= Phase::open && end_by_ == TimePoint::max()) {
    if (phase_ == Phase::greeting) return close();
    return end({GrpcCode::unavailable, "the server needs the connection for others; retry"});
  }
  if (end_by_ <= now) return close();
  if (phase_ >= Phase::ending) return;
  const bool handshaking = phase_ == Phase::greeting || !session_->open();
  if (handshaking) {
    if (opened_ + times.handshake <= now) close();
    return;
  }
  session_->check_deadlines(now);
  flush();
  if (phase_ != Phase::open) return;
  if (writing_ && last_write_ + times.write <= now) return close();
  if (session_->unread() && last_sent_ + times.write <= now) return close();
  if (unsent_ > 0 && last_sent_ + times.idle <= now) return close();
  const Duration idle = parts_.reserved ? std::min(kReservedFor, times.idle) : times.idle;
  if (session_->calls() == 0 && last_call_ + idle <= now) {
    finish_drain();
    end_after_output();
  }
}

}  // namespace gpulet::net::grpc_api
