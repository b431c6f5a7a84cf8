#include "net/http/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace gpulet::net::http {
namespace {

using boost::system::error_code;

constexpr std::size_t kInboxBytes = 8U << 10U;
constexpr std::size_t kChunkedInboxBytes = 64U << 10U;
constexpr std::size_t kGatheredBytes = 64U << 10U;  // of pipelined responses before they are sent
constexpr int kMaxStepsPerTurn = 64;                // two per request
constexpr Duration kLongestTurn = std::chrono::milliseconds(1);
constexpr std::size_t kLargestDiscarded = 64U << 10U;  // body of a rejected request

constexpr unsigned kRequestTimeout = 408;

}  // namespace

Session::Session(Stream stream, ConnectionSlotPointer slot, std::shared_ptr<SessionContext> context,
                 std::function<void()> on_closed)
    : pump_(std::move(stream), *this),
      slot_(std::move(slot)),
      context_(std::move(context)),
      clock_(context_->options, pump_.stream().handshaking(), slot_->reserved()),
      acceptance_(context_->options, context_->handler),
      on_closed_(std::move(on_closed)),
      reader_({context_->options.max_header_bytes, context_->options.max_body_bytes},
              context_->buffers),
      peer_(std::make_shared<access::PeerIdentity>(
          access::PeerIdentity{pump_.stream().peer_address()})),
      handshaking_(pump_.stream().handshaking()) {
  pump_.stream().prepare();
  peer_->protocol = "http";
}

ConnectionSlot::Holder::Activity Session::activity() const {
  // Also idle while the client takes a response: one that reads slowly must not keep its slot.
  if (!takes_requests() && phase_ != Phase::lingering) return {State::busy, clock_.idle_since()};
  return {clock_.silent() ? State::silent : State::idle, clock_.idle_since()};
}

void Session::evict() {
  asio::post(pump_.stream().get_executor(), [evicted = weak_from_this()] {
    if (const auto self = evicted.lock()) self->close();
  });
}

void Session::later(void (*act)(Session&)) {
  asio::post(pump_.stream().get_executor(), [self = shared_from_this(), act] {
    if (!self->closed()) act(*self);
  });
}

void Session::start() {
  slot_->set_holder(*this);
  wait_for_bytes();
}

// ---- receiving

std::size_t Session::inbox_capacity() const {
  if (phase_ != Phase::receiving) return std::max(inbox_.capacity(), kInboxBytes);
  if (reader_.inside_chunks()) return std::max(inbox_.capacity(), kChunkedInboxBytes);
  // A head is parsed only as a whole.
  const bool long_head = inbox_.view().size() >= kInboxBytes;
  return std::max(inbox_.capacity(),
                  long_head ? context_->options.max_header_bytes + 1 : kInboxBytes);
}

// Waits without a buffer.
void Session::wait_for_bytes() {
  reading_ = true;
  pump_.stream().async_wait_readable([self = shared_from_this()](const error_code& error) {
    self->reading_ = false;
    if (self->closed()) return;
    if (error) return self->close();
    self->read();
  });
}

void Session::read() {
  if (reading_ || closed() || peer_left_) return;
  if (discards()) inbox_.clear();
  const bool into_body =
      phase_ == Phase::receiving && inbox_.empty() && !reader_.body_space().empty();
  const std::span<std::byte> space =
      into_body ? reader_.body_space() : inbox_.space(inbox_capacity());
  if (space.empty()) return;  // until bytes are parsed
  reading_ = true;
  pump_.stream().async_read_some(
      asio::mutable_buffer(space.data(), space.size()),
      [self = shared_from_this(), into_body](const error_code& error, std::size_t bytes) {
        self->on_read(error, bytes, into_body);
      });
}

void Session::on_read(const error_code& error, std::size_t bytes, bool into_body) {
  reading_ = false;
  if (closed()) return;
  const bool parking = std::exchange(parking_, false);
  if (error == asio::error::operation_aborted && parking) {
    if (phase_ != Phase::idle || !inbox_.empty()) return read();
    inbox_.release();
    return wait_for_bytes();
  }
  if (error == asio::error::eof) return on_peer_left();
  if (error && pump_.stream().peer_is_plain()) {  // tell the peer that this port needs TLS
    pump_.stream().drop_tls();
    handshaking_ = false;
    fail(kBadRequest, "this port requires TLS; use https://");
    pump_.flush();
    return read();
  }
  if (error) return close();
  if (discards()) return read();
  if (into_body) {
    reader_.body_received(bytes);
  } else {
    inbox_.received(bytes);
  }
  if (phase_ == Phase::receiving && reader_.inside_body()) clock_.body_received(bytes);
  turn();
}

// A peer that shuts down only its sending direction still gets the responses to complete requests,
// unless the handler gives up in on_gone().
void Session::on_peer_left() {
  peer_left_ = true;
  if (takes_requests()) return turn();
  if (phase_ == Phase::waiting) return gone_.tell();
  if (phase_ == Phase::decoding || phase_ == Phase::encoding || phase_ == Phase::leaving) return;
  leave();
}

// Parses requests from the inbox while they are answered at once.
void Session::turn() {
  if (closed()) return;
  in_turn_ = true;
  turn_due_ = false;
  int steps = 0;
  bool more = true;
  const Clock::time_point until = Clock::now() + kLongestTurn;
  while (more && takes_requests()) {
    // After a response idle_since() is the current time.
    if (steps == kMaxStepsPerTurn || pump_.cost() >= kGatheredBytes ||
        clock_.idle_since() >= until) {
      turn_due_ = true;
      break;
    }
    more = take_step();
    ++steps;
  }
  in_turn_ = false;
  const bool is_cut_off = peer_left_ && !turn_due_ && takes_requests();
  if (is_cut_off) return leave();  // the inbox holds no whole request
  pump_.flush();
  read();
}

// False if more bytes are needed.
bool Session::take_step() {
  const RequestReader::Step step = reader_.read(inbox_.view());
  inbox_.take(step.taken);
  switch (step.event) {
    case RequestReader::Event::need_more:
      if (phase_ == Phase::idle && reader_.inside()) {
        phase_ = Phase::receiving;
        clock_.request_began();
      }
      return false;
    case RequestReader::Event::head:
      on_head();
      return true;
    case RequestReader::Event::whole:
      on_whole();
      return true;
    case RequestReader::Event::failed:
      break;
  }
  fail(reader_.failure());
  return false;
}

void Session::on_head() {
  phase_ = Phase::receiving;
  keep_alive_ = reader_.keep_alive();
  http_1_1_ = reader_.http_1_1();
  without_body_ = reader_.head().method == "HEAD";
  reader_.set_peer(peer_);
  reader_.set_route(context_->handler.route(reader_.head()));
  const Headers& headers = reader_.head().headers;
  accepted_ = preferred_coding(find_header(headers, "Accept-Encoding"));
  clock_.head_arrived();
  if (slot_->reserved()) keep_alive_ = false;
  std::optional<HttpResponse> no = acceptance_.refusal(reader_, slot_->reserved());
  if (closed()) return;  // the handler may destroy the server
  if (!no) no = acceptance_.bound_body(reader_);
  if (no) return refuse(std::move(*no));
  if (const Status taken = reader_.take_body(acceptance_.max_body_bytes()); !taken.ok()) {
    const bool too_long = taken.code() == StatusCode::invalid;
    return refuse(context_->handler.error(
        too_long ? kContentTooLarge : kUnavailable,
        too_long ? acceptance_.too_large(taken.message()) : taken.message()));
  }
  clock_.body_began();
  const bool awaits_continue = http_1_1_ && !find_header(headers, "Expect").empty();
  if (awaits_continue && inbox_.empty() && reader_.body_bytes() != 0)
    pump_.push({std::string(kContinue), {}});
}

// Discards a short body to keep the connection. A client that waits for "100 Continue" may or may
// not send its body, so that the connection must close.
void Session::refuse(HttpResponse response) {
  const std::optional<std::uint64_t> body = reader_.body_bytes();
  const bool awaits_continue = !find_header(reader_.head().headers, "Expect").empty();
  if (!body || *body > kLargestDiscarded || awaits_continue) keep_alive_ = false;
  push_response(std::move(response));
  if (phase_ != Phase::idle) return;
  phase_ = Phase::receiving;
  refused_ = true;
  reader_.drop_body();
  clock_.body_began();
}

void Session::on_whole() {
  HttpRequest request = reader_.take();
  if (std::exchange(refused_, false)) return become_idle();
  const Coding coding =
      parse_coding(find_header(request.headers, "Content-Encoding")).value_or(Coding::identity);
  if (coding == Coding::identity || request.body.empty()) return hand_over(std::move(request));
  phase_ = Phase::decoding;
  clock_.pause();
  inflation_ = std::make_unique<Inflation>(coding, std::exchange(request.body, {}),
                                           acceptance_.max_body_bytes(), context_->buffers);
  request_ = std::move(request);
  decode();
}

void Session::decode() {
  const Progress progress = inflation_->step();
  if (progress == Progress::more) {
    return later([](Session& self) {
      self.decode();
      self.turn();
    });
  }
  const std::unique_ptr<Inflation> inflation = std::move(inflation_);
  HttpRequest request = std::exchange(request_, {});
  if (progress == Progress::failed) {
    const Status& failure = inflation->failure();
    if (failure.code() == StatusCode::malformed) return fail(kBadRequest, failure.message());
    if (failure.code() == StatusCode::overloaded) return fail(kUnavailable, failure.message());
    return fail(kContentTooLarge, acceptance_.too_large(failure.message()));
  }
  request.body = inflation->take();
  hand_over(std::move(request));
}

// After such an error the start of the next request is unknown.
void Session::fail(unsigned status, const std::string& message) {
  keep_alive_ = false;
  push_response(context_->handler.error(status, message));
}

void Session::fail(const RequestReader::Failure& failure) {
  if (failure.http2) {
    keep_alive_ = false;
    pump_.push({refusal_of_http2(failure.message), {}});
    return leave();
  }
  fail(failure.status, failure.status == kContentTooLarge ? acceptance_.too_large(failure.message)
                                                          : failure.message);
}

// ---- closing

void Session::become_idle() {
  phase_ = Phase::idle;
  keep_alive_ = http_1_1_ = true;
  without_body_ = false;
  accepted_ = Coding::identity;
  if (context_->draining) return leave();
  clock_.became_idle();
  if (!in_turn_ && !inbox_.empty()) turn_due_ = true;
}

void Session::leave() {
  phase_ = Phase::leaving;
  clock_.pause();
  if (!in_turn_) pump_.flush();
}

void Session::all_sent() {
  if (peer_left_) return close();
  phase_ = Phase::lingering;
  pump_.stream().shutdown_send();
  clock_.linger();
  read();
}

void Session::drain() {
  if (phase_ != Phase::idle) return;
  if (pump_.empty() && inbox_.empty()) return close();
  leave();
}

void Session::check_deadlines(Clock::time_point now) {
  if (handshaking_ && !pump_.stream().handshaking()) {
    handshaking_ = false;
    // A client may connect in advance and then gets the idle timeout, except in a reserved slot.
    if (phase_ == Phase::idle && !slot_->reserved()) clock_.handshake_done(now);
  }
  if (pump_.write_deadline(context_->options.progress_timeout) <= now) return close();
  const bool may_park = phase_ == Phase::idle && reading_ && !parking_ && !pump_.blocked();
  if (may_park && clock_.may_park(now) && inbox_.empty() && inbox_.capacity() > 0) {
    parking_ = true;
    pump_.stream().cancel();
  }
  // A peer that still takes a response is not idle.
  if (phase_ == Phase::idle && !pump_.empty()) return clock_.became_idle();
  if (!clock_.over(now)) return;
  if (phase_ == Phase::idle || phase_ == Phase::lingering || refused_) return close();
  if (phase_ != Phase::receiving) return;
  const bool too_slow = reader_.inside_body() && clock_.body_is_slow(now);
  fail(kRequestTimeout,
       too_slow ? "the request body arrives too slowly; send at least " + clock_.demand()
       : reader_.inside_body() ? std::string("timed out waiting for the rest of the request body")
                               : std::string("timed out waiting for the rest of the request head"));
  pump_.flush();
  read();
}

void Session::close() {
  if (closed()) return;
  const bool waited = phase_ == Phase::waiting;
  shut();
  if (waited && gone_.pending())
    asio::post(pump_.stream().get_executor(), [self = shared_from_this()] { self->gone_.tell(); });
  if (const auto on_closed = std::exchange(on_closed_, nullptr)) on_closed();
}

void Session::shut() {
  phase_ = Phase::closed;
  pump_.close();
  slot_.reset();
  drained_.post(pump_.stream().get_executor());
}

void Session::abandon() {
  abandoned_ = true;
  gone_.set(nullptr);
  drained_.set(nullptr);
  on_closed_ = nullptr;
  if (!closed()) shut();
}

// ---- responses

namespace {

constexpr std::size_t kSmallestCompressed = 1U << 10U;
constexpr unsigned kInternalError = 500;

class SessionStream final : public ResponseStream {
 public:
  explicit SessionStream(std::shared_ptr<Session> session) : session_(std::move(session)) {}
  ~SessionStream() override { session_->end_stream(); }
  SessionStream(const SessionStream&) = delete;
  SessionStream& operator=(const SessionStream&) = delete;

  bool send(std::string part) override { return session_->send_part(std::move(part)); }
  void on_drained(std::function<void()> drained) override {
    session_->on_drained(std::move(drained));
  }
  void abort() override { session_->abort_stream(); }

 private:
  std::shared_ptr<Session> session_;
};

class SessionExchange final : public Exchange {
 public:
  explicit SessionExchange(std::shared_ptr<Session> session) : session_(std::move(session)) {}
  ~SessionExchange() override {
    if (session_) session_->drop();
  }
  SessionExchange(const SessionExchange&) = delete;
  SessionExchange& operator=(const SessionExchange&) = delete;

  void answer(HttpResponse response) override {
    if (const auto session = std::exchange(session_, nullptr)) session->answer(std::move(response));
  }
  std::unique_ptr<ResponseStream> stream(HttpResponse head) override {
    auto session = std::exchange(session_, nullptr);
    session->begin_stream(head);
    return std::make_unique<SessionStream>(std::move(session));
  }
  void on_gone(std::function<void()> gone) override {
    if (session_) session_->on_gone(std::move(gone));
  }

 private:
  std::shared_ptr<Session> session_;  // null once answered
};

}  // namespace

void Session::hand_over(HttpRequest request) {
  phase_ = Phase::waiting;
  clock_.pause();
  context_->handler.on_request(std::move(request),
                               std::make_unique<SessionExchange>(shared_from_this()));
}

void Session::answer(HttpResponse response) {
  // Destroys the callback, which must not be called any more.
  const Notice::Call not_gone = gone_.take();
  if (phase_ != Phase::waiting) return;
  const bool may_gain = accepted_ != Coding::identity && !without_body_ &&
                        total_bytes(response.body) >= kSmallestCompressed &&
                        find_header(response.headers, "Content-Encoding").empty();
  if (may_gain) {
    phase_ = Phase::encoding;
    deflation_ =
        std::make_unique<Deflation>(accepted_, std::exchange(response.body, {}), context_->buffers);
    response_ = std::move(response);
    encode();
  } else {
    push_response(std::move(response));
  }
  if (in_turn_) return;
  pump_.flush();
  read();
}

void Session::encode() {
  const Progress progress = deflation_->step();
  if (progress == Progress::more) {
    return later([](Session& self) {
      self.encode();
      self.turn();
    });
  }
  const std::unique_ptr<Deflation> deflation = std::move(deflation_);
  HttpResponse response = std::exchange(response_, {});
  if (progress == Progress::failed) {
    response.body = deflation->take_plain();
    return push_response(std::move(response));
  }
  response.body.push_back(deflation->take());
  push_response(std::move(response), accepted_);
}

void Session::push_response(HttpResponse response, Coding coding) {
  if (closed()) return;
  ResponseFormat format;
  format.http_1_1 = http_1_1_;
  const bool last = peer_left_ && inbox_.empty();
  format.keep_alive = keep_alive_ && !context_->leaving && !context_->draining && !last;
  format.body_bytes = total_bytes(response.body);
  format.coding = coding;
  if (without_body_ || has_no_body(response.status)) response.body.clear();
  pump_.push({response_head(response, format, context_->date.now()), std::move(response.body)});
  if (format.keep_alive) {
    become_idle();
  } else {
    leave();
  }
}

void Session::drop() {
  const Notice::Call not_gone = gone_.take();
  if (phase_ != Phase::waiting) return;
  if (peer_left_) return close();
  answer(context_->handler.error(kInternalError, "the handler did not respond"));
}

void Session::on_gone(std::function<void()> gone) {
  const bool left = peer_left_ || (closed() && !abandoned_);
  if (abandoned_ || (phase_ != Phase::waiting && !closed())) return;
  gone_.set(std::move(gone));
  if (left)
    asio::post(pump_.stream().get_executor(), [self = shared_from_this()] { self->gone_.tell(); });
}

// ---- streams

void Session::begin_stream(const HttpResponse& head) {
  const Notice::Call not_gone = gone_.take();
  if (phase_ != Phase::waiting) return;
  ResponseFormat format;
  format.http_1_1 = http_1_1_;
  format.keep_alive = false;
  pump_.push({response_head(head, format, context_->date.now()), {}});
  phase_ = Phase::streaming;
  if (!in_turn_) pump_.flush();
}

bool Session::send_part(std::string part) {
  if (phase_ != Phase::streaming) return false;
  if (part.empty() || without_body_) return true;
  pump_.push({http_1_1_ ? chunk_of(part) : std::move(part), {}});
  if (!in_turn_) pump_.flush();
  if (pump_.cost() > context_->options.max_stream_bytes) close();
  return !closed();
}

void Session::on_drained(std::function<void()> drained) {
  if (abandoned_) return;
  drained_.set(std::move(drained));
  if (pump_.empty() || phase_ != Phase::streaming) drained_.post(pump_.stream().get_executor());
}

void Session::abort_stream() {
  if (phase_ == Phase::streaming) close();
}

void Session::end_stream() {
  const Notice::Call not_drained = drained_.take();
  if (phase_ != Phase::streaming) return;
  if (http_1_1_ && !without_body_) pump_.push({std::string(kLastChunk), {}});
  leave();
}

// ---- writing

void Session::on_all_written() {
  if (closed() || phase_ == Phase::lingering) return;
  drained_.post(pump_.stream().get_executor());
  if (phase_ == Phase::leaving) return all_sent();
  if (std::exchange(turn_due_, false)) later([](Session& self) { self.turn(); });
}

}  // namespace gpulet::net::http
