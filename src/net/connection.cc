#include "gpulet/net/connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "net/stream_pump.h"

namespace gpulet::net {
namespace {

using Clock = std::chrono::steady_clock;
using asio::ip::tcp;
using boost::system::error_code;

constexpr int kMaxFramesPerTurn = 64;
constexpr Duration kLongestTurn = std::chrono::milliseconds(1);
constexpr Duration kLinger = std::chrono::seconds(1);

std::string milliseconds(Duration duration) {
  return fmt::format("{} ms", duration / std::chrono::milliseconds(1));
}

}  // namespace

// Operations in flight share the Impl, which keeps their memory alive. After closing they find
// state_ == closed and do nothing.
class Connection::Impl final : public std::enable_shared_from_this<Connection::Impl>,
                               public StreamPump::Owner {
 public:
  Impl(Stream stream, const ConnectionOptions& options, ConnectionHandler& handler)
      : pump_(std::move(stream), *this),
        watchdog_(pump_.stream().get_executor()),
        options_(options),
        handler_(&handler),
        reader_(options.limits),
        pace_(options.pace),
        last_read_(Clock::now()),
        last_frame_(last_read_),
        first_deadline_(options.first_timeout > Duration::zero()
                            ? last_read_ + options.first_timeout
                            : Clock::time_point::max()) {}

  void start() {
    pump_.stream().prepare();
    receive();
    watch();
  }

  // Sends at once, reads from take_over() on.
  void start_sending() {
    pump_.stream().prepare();
    held_ = true;
    watch();
  }

  // Two streams of one Connection: if one ends, the other one does so without a word.
  static void pair(const std::shared_ptr<Impl>& former, const std::shared_ptr<Impl>& next) {
    former->twin_ = next;
    next->twin_ = former;
    next->silent_ = former->silent();
    next->last_frame_ = former->last_frame();
  }

  // `former` has sent its last frame and read that of the peer.
  void take_over(Impl& former) {
    former.twin_.reset();
    twin_.reset();
    former.handler_ = nullptr;
    former.close_after_sending({StatusCode::cancelled, "went on over another stream"});
    if (!std::exchange(held_, false) || state_ != State::open) return;
    last_read_ = Clock::now();
    receive();
    watch();
  }

  void send(protocol::OutgoingFrame frame) {
    if (state_ != State::open) return;
    pump_.push(std::move(frame));
    if (pump_.cost() > options_.max_queued_bytes) {
      return close(
          {StatusCode::overloaded,
           fmt::format("the peer does not read: {} bytes are queued, more than the limit of {}",
                       pump_.cost(), options_.max_queued_bytes)});
    }
    if (!in_turn_) pump_.flush_later();
  }

  void close_after_sending(const Status& reason) {
    if (state_ != State::open) return;
    state_ = State::sending_last;
    reason_ = reason;
    const bool paused = std::exchange(paused_, false);
    if (std::exchange(held_, false) || paused) receive();
    if (!in_turn_) pump_.flush_later();
  }

  void close(const Status& reason) {
    if (state_ == State::closed) return;
    shut();
    asio::post(pump_.stream().get_executor(), [self = shared_from_this(), reason] {
      if (const std::shared_ptr<Impl> twin = self->twin_.lock()) twin->abandon();
      if (ConnectionHandler* const handler = std::exchange(self->handler_, nullptr))
        handler->on_closed(reason);
    });
  }

  void abandon() {
    handler_ = nullptr;
    if (state_ != State::closed) shut();
  }
  void limit_messages(std::uint32_t max_bytes) { reader_.limit_messages(max_bytes); }
  // What a peer that is known already need not do again.
  [[nodiscard]] ConnectionOptions options_for_next() const {
    ConnectionOptions options = options_;
    options.first_timeout = {};
    return options;
  }
  [[nodiscard]] std::size_t queued_bytes() const { return pump_.cost(); }
  [[nodiscard]] const Stream& stream() const { return pump_.stream(); }
  [[nodiscard]] bool silent() const { return silent_; }
  [[nodiscard]] Clock::time_point last_frame() const { return last_frame_; }

 private:
  // sending_last: queued frames are sent, received ones discarded. lingering: everything is sent;
  // waits for the peer to close, because the kernel resets a connection that is closed with unread
  // bytes, and the last bytes sent would be lost.
  enum class State { open, sending_last, lingering, closed };

  // ---- reading

  void receive() {
    auto done = [self = shared_from_this()](const error_code& error, std::size_t bytes) {
      self->on_received(error, bytes);
    };
    if (state_ != State::open) {
      discarded_.resize(protocol::FrameReader::kBufferBytes);
      pump_.stream().async_read_some(asio::buffer(discarded_), std::move(done));
      return;
    }
    const std::array<std::span<std::byte>, 2> space = reader_.space();
    const asio::mutable_buffer buffer(space[1].data(), space[1].size());
    if (space[0].empty()) {
      pump_.stream().async_read_some(buffer, std::move(done));
    } else {
      const asio::mutable_buffer payload(space[0].data(), space[0].size());
      pump_.stream().async_read_some(std::array<asio::mutable_buffer, 2>{payload, buffer},
                                     std::move(done));
    }
  }

  void on_received(const error_code& error, std::size_t bytes) {
    if (state_ == State::closed) return;
    if (error == asio::error::eof) return on_peer_closed();
    if (error) {
      if (state_ != State::open || !pump_.stream().peer_is_plain()) {
        fail("receiving", error);
      } else {  // tell the peer that this port needs TLS
        const Status failure(StatusCode::unavailable,
                             "receiving failed: " + pump_.stream().describe(error));
        pump_.stream().drop_tls();
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
    if (payload_bytes_ > 0) {
      const Status status = handler_->payload_received(reader_.payload_received());
      if (state_ != State::open) return;
      if (!status.ok()) {
        break_off(status);
        if (state_ != State::closed) receive();
        return;
      }
      if (reader_.payload_received() < payload_bytes_) {  // a turn would find no frame
        receive();
        return watch();
      }
    }
    take_frames(last_read_);
  }

  void on_peer_closed() {
    peer_sends_no_more_ = true;
    if (state_ == State::sending_last) return;  // the peer may still read
    if (state_ == State::lingering) return close(reason_);
    if (pump_.stream().handshaking()) {
      return end(
          {StatusCode::unavailable, "the peer closed the connection during the TLS handshake"});
    }
    if (protocol::dialect_of(reader_.unread()) == protocol::Dialect::tls)
      return end(protocol::not_frames(reader_.unread()));
    end({StatusCode::cancelled, reader_.inside_frame()
                                    ? "the peer closed the connection within a frame"
                                    : "the peer closed the connection"});
  }

  void take_frames(Clock::time_point now) {
    if (state_ == State::closed) return;
    in_turn_ = true;
    int frames = 0;
    bool more = true;
    const Clock::time_point until = now + kLongestTurn;
    while (more && state_ == State::open && frames < kMaxFramesPerTurn && !full()) {
      more = take_frame() && ++frames > 0;
      if (more && no_payload_ && Clock::now() >= until) break;
    }
    in_turn_ = false;
    keep_pace(frames > 0);
    pump_.flush();
    if (state_ == State::closed) return;
    if (state_ == State::open && full()) {
      paused_ = true;  // on_all_written() resumes
      return watch();
    }
    if (state_ == State::open && more) {
      asio::post(pump_.stream().get_executor(),
                 [self = shared_from_this()] { self->take_frames(Clock::now()); });
      return;
    }
    receive();
    watch();
  }

  // False if no frame is complete or the connection is closing.
  [[nodiscard]] bool take_frame() {
    Result<protocol::FrameReader::Event> next = reader_.next();
    if (next.ok() && next.value().kind == protocol::FrameReader::Event::Kind::payload_wanted) {
      next = receive_payload(next.value());
      if (state_ != State::open) return false;
    }
    if (!next.ok()) {
      break_off(next.status());
      return false;
    }
    protocol::FrameReader::Event& event = next.value();
    if (event.kind != protocol::FrameReader::Event::Kind::frame) return false;
    payload_bytes_ = 0;
    no_payload_ = event.header.payload_bytes == 0;
    handler_->on_frame(event.header, event.message, std::move(event.payload));
    return true;
  }

  [[nodiscard]] Result<protocol::FrameReader::Event> receive_payload(
      const protocol::FrameReader::Event& wanted) {
    Result<MutableBytes> memory = handler_->payload_memory(wanted.header, wanted.message);
    if (state_ != State::open) return protocol::FrameReader::Event{};
    if (!memory.ok()) return memory.status();
    payload_bytes_ = memory.value().size();
    if (Status given = reader_.give_payload(std::move(memory).value()); !given.ok()) return given;
    if (payload_bytes_ > 0) {
      if (Status room = handler_->payload_received(reader_.payload_received()); !room.ok())
        return room;
      if (state_ != State::open) return protocol::FrameReader::Event{};
    }
    return reader_.next();
  }

  void keep_pace(bool new_frame) {
    if (new_frame) {
      pace_.end();
      silent_ = false;
      last_frame_ = last_read_;
    }
    if (!pace_.active() && reader_.inside_frame()) pace_.begin(last_read_);
  }

  void break_off(const Status& failure) {
    // A peer that has sent a whole frame speaks frames, whatever the next bytes are.
    const protocol::Dialect spoken =
        silent_ ? protocol::dialect_of(reader_.unread()) : protocol::Dialect::frames;
    std::optional<protocol::OutgoingFrame> goodbye = handler_->goodbye(failure, spoken);
    if (state_ != State::open) return;
    if (!goodbye) return close(failure);
    send(std::move(*goodbye));
    close_after_sending(failure);
  }

  // After a TLS failure the peer must get the alert, which closing with unread bytes would drop.
  void fail(const std::string& doing, const error_code& error) {
    const Status failure(StatusCode::unavailable,
                         doing + " failed: " + pump_.stream().describe(error));
    if (state_ != State::open || !pump_.stream().broken()) return end(failure);
    reason_ = failure;
    pump_.clear();
    all_sent();
  }

  // ---- writing

  [[nodiscard]] std::shared_ptr<StreamPump::Owner> shared() override { return shared_from_this(); }
  void on_all_written() override {
    if (paused_ && state_ == State::open) return resume();
    if (state_ == State::sending_last) all_sent();
  }
  void on_blocked() override { watch(); }
  void on_write_failed(const error_code& error) override { fail("sending", error); }

  // The peer takes too little of what it asked for.
  [[nodiscard]] bool full() const {
    return options_.pause_above_bytes > 0 && pump_.cost() > options_.pause_above_bytes;
  }

  void resume() {
    paused_ = false;
    last_read_ = Clock::now();
    if (pace_.active()) pace_.begin(last_read_);
    asio::post(pump_.stream().get_executor(),
               [self = shared_from_this()] { self->take_frames(Clock::now()); });
  }

  void all_sent() {
    if (peer_sends_no_more_) return close(reason_);
    state_ = State::lingering;
    pump_.stream().shutdown_send();
    linger_until_ = Clock::now() + std::min(kLinger, options_.write_timeout);
    watch();
  }

  // ---- closing and time

  // Errors while the last bytes are sent do not change the reason.
  void end(const Status& failure) { close(state_ == State::open ? failure : reason_); }

  void shut() {
    state_ = State::closed;
    pump_.close();
    watchdog_.cancel();
  }

  // Reads and writes move the deadlines but not the timer. If it expires early, it is set again.
  void watch() {
    const Clock::time_point deadline = std::max(next_deadline(), grace_.until());
    if (state_ == State::closed || deadline >= wakes_at_) return;
    wakes_at_ = deadline;
    watchdog_.expires_at(deadline);
    watchdog_.async_wait([self = shared_from_this()](const error_code& error) {
      if (!error) self->on_watchdog();
    });
  }

  void on_watchdog() {
    const Clock::time_point now = Clock::now();
    const Clock::time_point due = std::exchange(wakes_at_, Clock::time_point::max());
    if (state_ == State::closed) return;
    if (next_deadline() > now) {
      grace_.reset();
      return watch();
    }
    if (!grace_.counts(due, now)) return watch();
    if (state_ == State::lingering) return close(reason_);
    if (state_ == State::open && !paused_ && pace_.deadline() <= now) {
      return break_off(
          {StatusCode::timeout, "a frame arrives too slowly; send at least " + pace_.demand()});
    }
    if (read_deadline() <= now)
      return end({StatusCode::timeout, "nothing received for " + milliseconds(now - last_read_)});
    end({StatusCode::timeout,
         "the peer has not read for " + milliseconds(now - pump_.last_progress())});
  }

  [[nodiscard]] Clock::time_point next_deadline() const {
    if (state_ == State::lingering) return linger_until_;
    return std::min(read_deadline(), pump_.write_deadline(options_.write_timeout));
  }

  [[nodiscard]] Clock::time_point read_deadline() const {
    Clock::time_point deadline = Clock::time_point::max();
    if (state_ != State::open || paused_ || held_) return deadline;
    const bool begun = reader_.inside_frame() || pump_.stream().handshaking();
    if (begun && options_.frame_timeout > Duration::zero())
      deadline = last_read_ + options_.frame_timeout;
    if (options_.read_timeout > Duration::zero())
      deadline = std::min(deadline, last_read_ + options_.read_timeout);
    return std::min({deadline, pace_.deadline(), first_deadline_});
  }

  StreamPump pump_;
  asio::steady_timer watchdog_;
  const ConnectionOptions options_;
  ConnectionHandler* handler_;  // null once the Connection is destroyed
  protocol::FrameReader reader_;
  Pace pace_;
  std::size_t payload_bytes_ = 0;  // of the payload being received into memory; 0: none
  // The last frame had no payload, so that its handling may have taken long: check the clock.
  bool no_payload_ = false;
  std::vector<std::byte> discarded_;
  State state_ = State::open;
  Status reason_;             // why it closes after sending
  bool in_turn_ = false;      // handling frames; the end of the turn flushes
  bool paused_ = false;       // not reading, because the queue is full
  bool held_ = false;         // not reading yet
  std::weak_ptr<Impl> twin_;  // the other stream of a Connection that moves
  bool peer_sends_no_more_ = false;
  std::atomic<bool> silent_ = true;  // no whole frame has arrived
  Clock::time_point last_read_;
  std::atomic<Clock::time_point> last_frame_;
  Clock::time_point first_deadline_;  // for the first byte; max once it has arrived
  Clock::time_point linger_until_;
  Clock::time_point wakes_at_ = Clock::time_point::max();  // the watchdog's expiry; max: not set
  StandstillGrace grace_;
};

std::shared_ptr<Connection> Connection::start(Stream stream, const ConnectionOptions& options,
                                              ConnectionHandler& handler) {
  auto impl = std::make_shared<Impl>(std::move(stream), options, handler);
  impl->start();
  return std::shared_ptr<Connection>(new Connection(std::move(impl), handler));
}

Connection::Connection(std::shared_ptr<Impl> impl, ConnectionHandler& handler)
    : handler_(&handler), impl_(std::move(impl)) {}
Connection::~Connection() {
  impl_->abandon();
  if (former_ != nullptr) former_->abandon();
}

void Connection::move_to(Stream next) {
  const auto after = std::make_shared<Impl>(std::move(next), impl_->options_for_next(), *handler_);
  after->start_sending();
  Impl::pair(impl_, after);
  impl_->send(protocol::bare_frame(protocol::MessageType::moved));
  former_ = std::exchange(impl_, after);
}

bool Connection::follow() {
  if (former_ == nullptr) return false;
  impl_->take_over(*former_);
  former_.reset();
  return true;
}

void Connection::send(protocol::OutgoingFrame frame) { impl_->send(std::move(frame)); }
void Connection::close_after_sending() {
  impl_->close_after_sending(
      {StatusCode::cancelled, "closed by this side after sending the queued frames"});
}
void Connection::close(const Status& reason) { impl_->close(reason); }
bool Connection::silent() const { return impl_->silent(); }
std::chrono::steady_clock::time_point Connection::last_frame() const { return impl_->last_frame(); }
std::size_t Connection::queued_bytes() const { return impl_->queued_bytes(); }
bool Connection::peer_certifies(const std::string& name) const {
  return impl_->stream().peer_certifies(name);
}
std::string Connection::peer_address() const { return impl_->stream().peer_address(); }
void Connection::limit_messages(std::uint32_t max_bytes) { impl_->limit_messages(max_bytes); }
std::vector<std::string> Connection::peer_names() const { return impl_->stream().peer_names(); }

// ---- Connector

// Every attempt has a number. Completions of earlier attempts, or after close(), do not have the
// current number and are ignored.
class Connector::Impl : public std::enable_shared_from_this<Connector::Impl> {
 public:
  Impl(const asio::any_io_executor& executor, std::string host, std::uint16_t port,
       const ConnectorOptions& options)
      : executor_(executor),
        resolver_(executor),
        socket_(executor),
        timer_(executor),
        host_(std::move(host)),
        port_(port),
        options_(options) {}

  void use_tls(TlsContextPointer tls) { options_.tls = std::move(tls); }

  void connect(OnDone on_done) {
    on_done_ = std::move(on_done);
    ++attempt_;
    timer_.expires_after(options_.timeout);
    timer_.async_wait([self = shared_from_this(), attempt = attempt_](const error_code& error) {
      if (error || attempt != self->attempt_) return;
      const std::string limit = milliseconds(self->options_.timeout);
      self->complete(Status(
          StatusCode::timeout,
          fmt::format("connecting to {}:{} took longer than {}", self->host_, self->port_, limit)));
    });
    resolve();
  }

  void connect_with_retry(OnConnected on_connected, OnAttemptFailed on_failed, Duration at_least) {
    on_connected_ = std::move(on_connected);
    on_failed_ = std::move(on_failed);
    const Duration pause = std::max(pause_, at_least);
    if (pause == Duration::zero()) return retry();
    retry_after(pause);
  }

  void close() {
    end_attempt();
    on_done_ = nullptr;  // may own this object
    on_connected_ = nullptr;
    on_failed_ = nullptr;
  }

 private:
  using Attempt = std::uint64_t;

  void resolve() {
    error_code not_numeric;
    const asio::ip::address address = asio::ip::make_address(host_, not_numeric);
    if (!not_numeric) return connect_to({tcp::endpoint(address, port_)});
    resolver_.async_resolve(host_, std::to_string(port_),
                            [self = shared_from_this(), attempt = attempt_](
                                const error_code& error, const tcp::resolver::results_type& found) {
                              if (attempt != self->attempt_) return;
                              if (error) return self->finish(attempt, error, "resolving");
                              self->connect_to({found.begin(), found.end()});
                            });
  }

  void connect_to(const std::vector<tcp::endpoint>& endpoints) {
    asio::async_connect(socket_, endpoints,
                        [self = shared_from_this(), attempt = attempt_](const error_code& error,
                                                                        const tcp::endpoint&) {
                          self->finish(attempt, error, "connecting to");
                        });
  }

  void finish(Attempt attempt, const error_code& error, const std::string& doing) {
    if (attempt != attempt_) return;
    if (error) {
      complete(Status(StatusCode::unavailable,
                      fmt::format("{} {}:{} failed: {}; check that the peer is running and the "
                                  "address",
                                  doing, host_, port_, error.message())));
    } else {
      StreamSocket socket(std::exchange(socket_, tcp::socket(executor_)));
      complete(Stream(std::move(socket), options_.tls, host_));
    }
  }

  void complete(Result<Stream> result) {
    const OnDone on_done = std::exchange(on_done_, nullptr);
    end_attempt();
    on_done(std::move(result));
  }

  void end_attempt() {
    ++attempt_;
    error_code ignored;
    socket_.close(ignored);
    resolver_.cancel();
    timer_.cancel();
  }

  void retry_after(Duration pause) {
    ++attempt_;
    timer_.expires_after(pause);
    timer_.async_wait([self = shared_from_this(), attempt = attempt_](const error_code& error) {
      if (!error && attempt == self->attempt_) self->retry();
    });
  }

  void retry() {
    connect([self = shared_from_this()](Result<Stream> result) {
      self->on_attempt(std::move(result));
    });
  }

  void on_attempt(Result<Stream> result) {
    if (result.ok()) {
      const auto now = std::chrono::steady_clock::now();
      const bool lasted = now - connected_at_ >= options_.longest_pause;
      pause_ = lasted
                   ? options_.first_pause
                   : std::min(std::max(2 * pause_, options_.first_pause), options_.longest_pause);
      connected_at_ = now;
      const OnConnected on_connected = std::exchange(on_connected_, nullptr);
      on_failed_ = nullptr;
      return on_connected(std::move(result).value());
    }
    const Duration pause = std::max(pause_, options_.first_pause);
    pause_ = std::min(2 * pause, options_.longest_pause);
    retry_after(pause);
    const OnAttemptFailed on_failed = on_failed_;  // a copy: the callback may destroy the connector
    on_failed(result.status(), pause);
  }

  asio::any_io_executor executor_;
  tcp::resolver resolver_;
  tcp::socket socket_;
  asio::steady_timer timer_;  // the attempt's deadline, or the backoff before the next
  const std::string host_;
  const std::uint16_t port_;
  ConnectorOptions options_;
  Attempt attempt_ = 0;
  OnDone on_done_;
  OnConnected on_connected_;
  OnAttemptFailed on_failed_;
  Duration pause_{};  // before the next attempt
  std::chrono::steady_clock::time_point connected_at_{};
};

Connector::Connector(const asio::any_io_executor& executor, std::string host, std::uint16_t port,
                     const ConnectorOptions& options)
    : impl_(std::make_shared<Impl>(executor, std::move(host), port, options)) {}
Connector::~Connector() { impl_->close(); }

void Connector::connect(OnDone on_done) { impl_->connect(std::move(on_done)); }
void Connector::connect_with_retry(OnConnected on_connected, OnAttemptFailed on_failed,
                                   Duration at_least) {
  impl_->connect_with_retry(std::move(on_connected), std::move(on_failed), at_least);
}
void Connector::use_tls(TlsContextPointer tls) { impl_->use_tls(std::move(tls)); }
void Connector::close() { impl_->close(); }

}  // namespace gpulet::net
