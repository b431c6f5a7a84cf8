#include "gpulet/net/connection.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/net/codec/frame_reader.h"
#include "net/write_queue.h"

namespace gpulet::net {
namespace {

using Clock = std::chrono::steady_clock;
using boost::system::error_code;

constexpr int kMaxFramesPerTurn = 64;
constexpr Duration kLongestTurn = std::chrono::milliseconds(1);  // until others get theirs
constexpr int kMaxWritesPerFlush = 16;
constexpr Duration kLinger = std::chrono::seconds(1);

std::string milliseconds(Duration duration) {
  return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count()) +
         " ms";
}

}  // namespace

std::optional<OutgoingFrame> ConnectionHandler::goodbye(const Status&, Dialect) {
  return std::nullopt;
}
Status ConnectionHandler::payload_received(std::size_t) { return {}; }

// Operations in flight share the Impl, so the memory that they use outlives them; after closing
// they find state_ == closed and do nothing.
class Connection::Impl : public std::enable_shared_from_this<Connection::Impl> {
 public:
  Impl(Stream stream, const ConnectionOptions& options, ConnectionHandler& handler)
      : stream_(std::move(stream)),
        watchdog_(stream_.get_executor()),
        options_(options),
        handler_(&handler),
        reader_(options.limits),
        pace_(options.pace),
        last_read_(Clock::now()),
        last_frame_(last_read_),
        first_deadline_(options.first_timeout > Duration::zero()
                            ? last_read_ + options.first_timeout
                            : Clock::time_point::max()) {}

  void start();
  void send(OutgoingFrame frame);
  void close_after_sending(const Status& reason);
  void close(const Status& reason);
  void abandon();
  [[nodiscard]] std::size_t queued_bytes() const { return queue_.cost(); }
  [[nodiscard]] const Stream& stream() const { return stream_; }
  [[nodiscard]] bool silent() const { return silent_; }
  [[nodiscard]] Clock::time_point last_frame() const { return last_frame_; }

 private:
  // sending_last: what is queued goes out, what comes in is discarded. lingering: all is out; waits
  // for the peer to close, because closing with unread bytes would make the kernel reset the
  // connection and the last bytes be lost.
  enum class State { open, sending_last, lingering, closed };

  void receive();
  void on_received(const error_code& error, std::size_t bytes);
  void on_peer_closed();
  void take_frames();
  [[nodiscard]] bool take_frame();
  [[nodiscard]] Result<FrameReader::Event> receive_payload(const FrameReader::Event& wanted);
  void keep_pace(bool new_frame);
  void break_off(const Status& failure);
  void fail(const std::string& doing, const error_code& error);

  void flush();
  void flush_later();
  void write();
  void wait_until_writable();
  void all_sent();

  void end(const Status& failure);
  void shut();
  void watch();
  void on_watchdog();
  [[nodiscard]] Clock::time_point next_deadline() const;
  [[nodiscard]] Clock::time_point read_deadline() const;

  Stream stream_;
  asio::steady_timer watchdog_;
  const ConnectionOptions options_;
  ConnectionHandler* handler_;  // null once the Connection was dropped
  FrameReader reader_;
  Pace pace_;
  bool inside_payload_ = false;  // its memory was given
  // The last frame had no payload: it may have asked for long work. Others are too many to look at
  // the clock after each.
  bool asks_only_ = false;
  WriteQueue queue_;
  std::vector<std::byte> discarded_;
  State state_ = State::open;
  Status reason_;         // why it closes after sending
  bool in_turn_ = false;  // frames are being handled: flush comes at the end of it
  bool flush_posted_ = false;
  bool waits_to_write_ = false;  // the kernel takes no more for now
  bool peer_sends_no_more_ = false;
  bool silent_ = true;  // no whole frame has come
  Clock::time_point last_read_;
  Clock::time_point last_frame_;
  Clock::time_point first_deadline_;  // of the first byte; max once it is here
  Clock::time_point last_write_;      // progress, while waits_to_write_
  Clock::time_point linger_until_;
  Clock::time_point watched_ = Clock::time_point::max();  // when the watchdog wakes; max: it sleeps
};

void Connection::Impl::start() {
  stream_.prepare();
  receive();
  watch();
}

// ---- reading

void Connection::Impl::receive() {
  auto done = [self = shared_from_this()](const error_code& error, std::size_t bytes) {
    self->on_received(error, bytes);
  };
  if (state_ != State::open) {
    discarded_.resize(FrameReader::kBufferBytes);
    stream_.async_read_some(asio::buffer(discarded_), std::move(done));
    return;
  }
  const std::array<std::span<std::byte>, 2> space = reader_.space();
  const asio::mutable_buffer buffer(space[1].data(), space[1].size());
  if (space[0].empty()) {
    stream_.async_read_some(buffer, std::move(done));
  } else {
    const asio::mutable_buffer payload(space[0].data(), space[0].size());
    stream_.async_read_some(std::array<asio::mutable_buffer, 2>{payload, buffer}, std::move(done));
  }
}

void Connection::Impl::on_received(const error_code& error, std::size_t bytes) {
  if (state_ == State::closed) return;
  if (error == asio::error::eof) return on_peer_closed();
  if (error) {
    if (state_ != State::open || !stream_.peer_is_plain()) {
      fail("receiving", error);
    } else {  // nothing is read without TLS, but the peer is told that it is needed
      const Status failure(StatusCode::unavailable, "receiving failed: " + stream_.describe(error));
      stream_.speak_plain();
      break_off(failure);
    }
    if (state_ != State::closed) receive();
    return;
  }
  last_read_ = Clock::now();
  first_deadline_ = Clock::time_point::max();
  if (state_ != State::open) return receive();
  reader_.received(bytes);
  if (pace_.active()) pace_.received(bytes, last_read_);
  if (inside_payload_) {
    const Status status = handler_->payload_received(reader_.payload_received());
    if (state_ != State::open) return;
    if (!status.ok()) {
      break_off(status);
      if (state_ != State::closed) receive();
      return;
    }
  }
  take_frames();
}

void Connection::Impl::on_peer_closed() {
  peer_sends_no_more_ = true;
  if (state_ == State::sending_last) return;  // it may still read
  if (state_ == State::lingering) return close(reason_);
  if (stream_.shaking_hands()) {
    return end({StatusCode::unavailable,
                "the peer closed the connection in the middle of the TLS handshake"});
  }
  if (dialect_of(reader_.unread()) == Dialect::tls) return end(not_frames(reader_.unread()));
  end({StatusCode::cancelled, reader_.inside_frame()
                                  ? "the peer closed the connection in the middle of a frame"
                                  : "the peer closed the connection"});
}

void Connection::Impl::take_frames() {
  if (state_ == State::closed) return;
  in_turn_ = true;
  int frames = 0;
  bool more = true;
  const Clock::time_point until = Clock::now() + kLongestTurn;
  while (more && state_ == State::open && frames < kMaxFramesPerTurn) {
    more = take_frame() && ++frames > 0;
    if (more && asks_only_ && Clock::now() >= until) break;
  }
  in_turn_ = false;
  keep_pace(frames > 0);
  flush();
  if (state_ == State::closed) return;
  if (state_ == State::open && more) {
    asio::post(stream_.get_executor(), [self = shared_from_this()] { self->take_frames(); });
    return;
  }
  receive();
  watch();
}

// False where there is no further frame, or no further use for one.
bool Connection::Impl::take_frame() {
  Result<FrameReader::Event> next = reader_.next();
  if (next.ok() && next.value().kind == FrameReader::Event::Kind::payload_wanted) {
    next = receive_payload(next.value());
    if (state_ != State::open) return false;
  }
  if (!next.ok()) {
    break_off(next.status());
    return false;
  }
  FrameReader::Event& event = next.value();
  if (event.kind != FrameReader::Event::Kind::frame) return false;
  inside_payload_ = false;
  asks_only_ = event.header.payload_bytes == 0;
  handler_->on_frame(event.header, event.message, std::move(event.payload));
  return true;
}

Result<FrameReader::Event> Connection::Impl::receive_payload(const FrameReader::Event& wanted) {
  Result<MutableBytes> memory = handler_->payload_memory(wanted.header, wanted.message);
  if (state_ != State::open) return FrameReader::Event{};
  if (!memory.ok()) return memory.status();
  inside_payload_ = memory.value().size() > 0;
  if (Status given = reader_.give_payload(std::move(memory).value()); !given.ok()) return given;
  if (inside_payload_) {
    if (Status room = handler_->payload_received(reader_.payload_received()); !room.ok())
      return room;
    if (state_ != State::open) return FrameReader::Event{};
  }
  return reader_.next();
}

void Connection::Impl::keep_pace(bool new_frame) {
  if (new_frame) {
    pace_.end();
    silent_ = false;
    last_frame_ = last_read_;
  }
  if (!pace_.active() && reader_.inside_frame()) pace_.begin(last_read_);
}

void Connection::Impl::break_off(const Status& failure) {
  // After a whole frame it is known what the peer speaks, however strange the next one begins.
  const Dialect spoken = silent_ ? dialect_of(reader_.unread()) : Dialect::frames;
  std::optional<OutgoingFrame> goodbye = handler_->goodbye(failure, spoken);
  if (state_ != State::open) return;
  if (!goodbye) return close(failure);
  send(std::move(*goodbye));
  close_after_sending(failure);
}

// ---- writing

void Connection::Impl::send(OutgoingFrame frame) {
  if (state_ != State::open) return;
  queue_.push(std::move(frame));
  if (queue_.cost() > options_.max_queued_bytes) {
    return close(
        {StatusCode::overloaded, "the peer does not read: " + std::to_string(queue_.cost()) +
                                     " bytes wait for it; at most " +
                                     std::to_string(options_.max_queued_bytes) + " may"});
  }
  if (!in_turn_) flush_later();
}

// Whoever sends in a turn of another connection may send more in it.
void Connection::Impl::flush_later() {
  if (flush_posted_ || waits_to_write_) return;
  flush_posted_ = true;
  asio::post(stream_.get_executor(), [self = shared_from_this()] {
    self->flush_posted_ = false;
    self->flush();
  });
}

void Connection::Impl::flush() {
  if (state_ == State::closed || state_ == State::lingering || waits_to_write_) return;
  if (!queue_.empty()) write();
  if (queue_.empty() && state_ == State::sending_last) all_sent();
}

// Tries at once, without a trip through the reactor: the kernel nearly always has room.
void Connection::Impl::write() {
  for (int i = 0; i < kMaxWritesPerFlush && !queue_.empty(); ++i) {
    const WriteQueue::Pieces pieces = queue_.front();
    error_code error;
    const std::size_t bytes = stream_.write_some(pieces, error);
    if (error == asio::error::would_block || error == asio::error::try_again)
      return wait_until_writable();
    if (error) return fail("sending", error);
    queue_.written(bytes);
    if (bytes > 0) last_write_ = Clock::time_point{};
    if (bytes < pieces.byte_size()) return wait_until_writable();
  }
  if (!queue_.empty()) flush_later();
}

void Connection::Impl::wait_until_writable() {
  waits_to_write_ = true;
  if (last_write_ == Clock::time_point{}) last_write_ = Clock::now();
  stream_.async_wait_writable([self = shared_from_this()](const error_code& error) {
    self->waits_to_write_ = false;
    if (self->state_ == State::closed) return;
    if (error) return self->fail("sending", error);
    self->flush();
  });
  watch();
}

void Connection::Impl::close_after_sending(const Status& reason) {
  if (state_ != State::open) return;
  state_ = State::sending_last;
  reason_ = reason;
  if (!in_turn_) flush_later();
}

void Connection::Impl::all_sent() {
  if (peer_sends_no_more_) return close(reason_);
  state_ = State::lingering;
  stream_.shutdown_send();
  linger_until_ = Clock::now() + std::min(kLinger, options_.write_timeout);
  watch();
}

// ---- time

Clock::time_point Connection::Impl::read_deadline() const {
  Clock::time_point deadline = Clock::time_point::max();
  if (state_ != State::open) return deadline;
  const bool begun = reader_.inside_frame() || stream_.shaking_hands();
  if (begun && options_.frame_timeout > Duration::zero())
    deadline = last_read_ + options_.frame_timeout;
  if (options_.read_timeout > Duration::zero())
    deadline = std::min(deadline, last_read_ + options_.read_timeout);
  return std::min({deadline, pace_.deadline(), first_deadline_});
}

Clock::time_point Connection::Impl::next_deadline() const {
  if (state_ == State::lingering) return linger_until_;
  Clock::time_point deadline = read_deadline();
  if (waits_to_write_) deadline = std::min(deadline, last_write_ + options_.write_timeout);
  return deadline;
}

// Deadlines move with every read and write; the timer does not. It wakes at the one that was next
// when it was set, and sleeps on where there was progress.
void Connection::Impl::watch() {
  const Clock::time_point deadline = next_deadline();
  if (state_ == State::closed || deadline >= watched_) return;
  watched_ = deadline;
  watchdog_.expires_at(deadline);
  watchdog_.async_wait([self = shared_from_this()](const error_code& error) {
    if (!error) self->on_watchdog();
  });
}

void Connection::Impl::on_watchdog() {
  watched_ = Clock::time_point::max();
  if (state_ == State::closed) return;
  const Clock::time_point now = Clock::now();
  if (next_deadline() > now) return watch();
  if (state_ == State::lingering) return close(reason_);
  if (state_ == State::open && pace_.deadline() <= now) {
    return break_off(
        {StatusCode::timeout,
         "a frame comes too slowly; once it has begun, send at least " + pace_.demand()});
  }
  if (read_deadline() <= now) {
    return end(
        {StatusCode::timeout, "nothing came from the peer for " + milliseconds(now - last_read_)});
  }
  end({StatusCode::timeout, "the peer did not read for " + milliseconds(now - last_write_)});
}

// ---- the end

void Connection::Impl::close(const Status& reason) {
  if (state_ == State::closed) return;
  shut();
  asio::post(stream_.get_executor(), [self = shared_from_this(), reason] {
    if (ConnectionHandler* const handler = std::exchange(self->handler_, nullptr))
      handler->on_closed(reason);
  });
}

// What goes wrong while the last bytes are sent does not change why it closes.
void Connection::Impl::end(const Status& failure) {
  close(state_ == State::open ? failure : reason_);
}

// Where TLS failed, the peer is to read why: its alert must not be lost with bytes that are unread.
void Connection::Impl::fail(const std::string& doing, const error_code& error) {
  const Status failure(StatusCode::unavailable, doing + " failed: " + stream_.describe(error));
  if (state_ != State::open || !stream_.broken()) return end(failure);
  reason_ = failure;
  queue_.clear();
  all_sent();
}

void Connection::Impl::shut() {
  state_ = State::closed;
  stream_.close();
  watchdog_.cancel();
  queue_.clear();
}

void Connection::Impl::abandon() {
  handler_ = nullptr;
  if (state_ != State::closed) shut();
}

std::shared_ptr<Connection> Connection::start(Stream stream, const ConnectionOptions& options,
                                              ConnectionHandler& handler) {
  auto impl = std::make_shared<Impl>(std::move(stream), options, handler);
  impl->start();
  return std::shared_ptr<Connection>(new Connection(std::move(impl)));
}

Connection::Connection(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Connection::~Connection() { impl_->abandon(); }

void Connection::send(OutgoingFrame frame) { impl_->send(std::move(frame)); }
void Connection::close_after_sending() {
  impl_->close_after_sending({StatusCode::cancelled, "closed here, after sending what was queued"});
}
void Connection::close(const Status& reason) { impl_->close(reason); }
bool Connection::silent() const { return impl_->silent(); }
std::chrono::steady_clock::time_point Connection::last_frame() const { return impl_->last_frame(); }
std::size_t Connection::queued_bytes() const { return impl_->queued_bytes(); }
bool Connection::peer_certifies(const std::string& name) const {
  return impl_->stream().peer_certifies(name);
}
std::string Connection::peer_address() const { return impl_->stream().peer_address(); }
std::vector<std::string> Connection::peer_names() const { return impl_->stream().peer_names(); }

}  // namespace gpulet::net
