#include "net/http/session.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace gpulet::net::http {
namespace {

using boost::system::error_code;
using std::chrono::seconds;

constexpr std::size_t kInboxBytes = 8U << 10U;
constexpr std::size_t kChunkedInboxBytes = 64U << 10U;
constexpr std::size_t kGatheredBytes = 64U << 10U;  // of pipelined answers before they are sent
constexpr int kMaxStepsPerTurn = 64;                // two make a request
constexpr Duration kLongestTurn = std::chrono::milliseconds(1);  // until others get theirs
constexpr std::size_t kLargestDiscarded = 64U << 10U;            // of a refused request's body
constexpr Duration kLinger = seconds(1);
constexpr Duration kReservedFor = seconds(5);  // without a request, beyond the general places
constexpr Duration kParkAfter = seconds(2);

constexpr unsigned kBadRequest = 400;
constexpr unsigned kRequestTimeout = 408;
constexpr unsigned kContentTooLarge = 413;
constexpr unsigned kUnknownCoding = 415;
constexpr unsigned kExpectationFailed = 417;
constexpr unsigned kUnavailable = 503;

bool same_word(std::string_view left, std::string_view right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                    [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; });
}

}  // namespace

std::span<std::byte> Session::Inbox::space(std::size_t capacity) {
  if (begin_ > 0) {
    std::memmove(bytes_.data(), bytes_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (bytes_.size() < capacity) bytes_.resize(capacity);
  return {bytes_.data() + end_, bytes_.size() - end_};
}

void Session::Inbox::release() {
  clear();
  bytes_ = {};
}

Session::Session(Stream stream, ConnectionSlot slot, std::shared_ptr<SessionContext> context,
                 std::function<void()> on_closed)
    : stream_(std::move(stream)),
      slot_(std::move(slot)),
      context_(std::move(context)),
      on_closed_(std::move(on_closed)),
      reader_({context_->options.max_header_bytes, context_->options.max_body_bytes},
              context_->buffers),
      peer_(std::make_shared<PeerIdentity>(PeerIdentity{stream_.peer_address()})),
      shaking_hands_(stream_.shaking_hands()),
      pace_(context_->options.pace),
      idle_since_(Clock::now()) {
  const HttpServerOptions& options = context_->options;
  read_deadline_ = idle_since_ + (shaking_hands_ ? options.header_timeout : idle_timeout());
  if (slot_->reserved()) read_deadline_ = std::min(read_deadline_, idle_since_ + kReservedFor);
  slot_->set_holder(this);
  stream_.prepare();
  peer_->protocol = "http";
}

Duration Session::idle_timeout() const {
  const HttpServerOptions& options = context_->options;
  return silent_ ? std::min(options.first_timeout, options.idle_timeout) : options.idle_timeout;
}

Place::Holder::Standing Session::standing() const {
  const bool begun = phase_ == Phase::idle || phase_ == Phase::receiving;
  if (!begun && phase_ != Phase::lingering) return {State::busy, idle_since_};
  return {silent_ ? State::silent : State::idle, idle_since_};
}

void Session::give_way() {
  const std::shared_ptr<Session> self = shared_from_this();
  close();
}

void Session::later(void (*act)(Session&)) {
  asio::post(stream_.get_executor(), [self = shared_from_this(), act] {
    if (!self->closed()) act(*self);
  });
}

void Session::start() { wait_for_bytes(); }

// Of a connection beyond the general places.
std::optional<HttpResponse> Session::turn_away() {
  keep_alive_ = false;
  if (context_->handler.may_use_reserve(reader_.head())) return std::nullopt;
  return context_->handler.error(
      kUnavailable, "this server has as many connections as it may have; try again later");
}

// ---- receiving

std::size_t Session::inbox_capacity() const {
  if (phase_ != Phase::receiving) return std::max(inbox_.capacity(), kInboxBytes);
  if (reader_.inside_chunks()) return std::max(inbox_.capacity(), kChunkedInboxBytes);
  // A head must be there whole before it can be understood.
  const bool long_head = inbox_.view().size() >= kInboxBytes;
  return std::max(inbox_.capacity(),
                  long_head ? context_->options.max_header_bytes + 1 : kInboxBytes);
}

// Without a buffer.
void Session::wait_for_bytes() {
  reading_ = true;
  stream_.async_wait_readable([self = shared_from_this()](const error_code& error) {
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
  if (space.empty()) return;  // until something of it is taken
  reading_ = true;
  stream_.async_read_some(
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
  if (error && stream_.peer_is_plain()) {  // nothing is read without TLS, but the peer is told
    stream_.speak_plain();
    shaking_hands_ = false;
    fail(kBadRequest, "this port speaks HTTP under TLS only; use https://");
    flush();
    return read();
  }
  if (error) return close();
  if (discards()) return read();
  if (into_body) {
    reader_.body_received(bytes);
  } else {
    inbox_.received(bytes);
  }
  if (phase_ == Phase::receiving && reader_.inside_body()) {
    const Clock::time_point now = Clock::now();
    pace_.received(bytes, now);
    read_deadline_ = std::min(now + context_->options.progress_timeout, pace_.deadline());
  }
  turn();
}

// Who shuts down only its sending side still gets the answers to what was complete, unless the
// handler gives up at on_gone().
void Session::on_peer_left() {
  peer_left_ = true;
  if (phase_ == Phase::waiting) return tell_gone();
  if (phase_ == Phase::decoding || phase_ == Phase::encoding || phase_ == Phase::leaving) return;
  if (!queue_.empty()) return leave();
  close();
}

// Takes requests out of the inbox as long as they are answered at once.
void Session::turn() {
  if (closed()) return;
  in_turn_ = true;
  turn_due_ = false;
  int steps = 0;
  bool more = true;
  const Clock::time_point until = Clock::now() + kLongestTurn;
  while (more && (phase_ == Phase::idle || phase_ == Phase::receiving)) {
    // When a request was answered, idle_since_ is now.
    if (steps == kMaxStepsPerTurn || queue_.cost() >= kGatheredBytes || idle_since_ >= until) {
      turn_due_ = true;
      break;
    }
    more = take_step();
    ++steps;
  }
  in_turn_ = false;
  flush();
  read();
}

// False where it takes more bytes to go on.
bool Session::take_step() {
  const RequestReader::Step step = reader_.read(inbox_.view());
  inbox_.take(step.taken);
  switch (step.event) {
    case RequestReader::Event::need_more:
      return on_need_more();
    case RequestReader::Event::head:
      on_head();
      return true;
    case RequestReader::Event::whole:
      on_whole();
      return true;
    case RequestReader::Event::failed:
      break;
  }
  fail(reader_.failure().status, reader_.failure().message);
  return false;
}

bool Session::on_need_more() {
  if (phase_ == Phase::idle && reader_.inside()) {
    phase_ = Phase::receiving;
    read_deadline_ = Clock::now() + context_->options.header_timeout;
  }
  // Only a head, a chunk's size or a trailer must be there whole; the reader bounds the first.
  if (reader_.inside_chunks() && inbox_.view().size() >= kChunkedInboxBytes)
    fail(kBadRequest, "malformed request: the head of a chunk is too long");
  return false;
}

void Session::on_head() {
  phase_ = Phase::receiving;
  keep_alive_ = reader_.keep_alive();
  http_1_1_ = reader_.http_1_1();
  without_body_ = reader_.head().method == "HEAD";
  reader_.set_peer(peer_);
  const Headers& headers = reader_.head().headers;
  accepted_ = preferred_coding(find_header(headers, "Accept-Encoding"));
  silent_ = false;
  std::optional<HttpResponse> no;
  if (slot_->reserved()) no = turn_away();
  if (!no) no = refusal();
  if (closed()) return;  // the handler may end the server
  if (!no) no = bound_body();
  if (no) return refuse(std::move(*no));
  if (const Status taken = reader_.take_body(max_body_bytes_); !taken.ok()) {
    const bool too_long = taken.code() == StatusCode::invalid;
    return refuse(
        context_->handler.error(too_long ? kContentTooLarge : kUnavailable, taken.message()));
  }
  begin_body();
  const bool waits_for_leave = http_1_1_ && !find_header(headers, "Expect").empty();
  if (waits_for_leave && inbox_.empty() && reader_.body_bytes() != 0)
    queue_.push({std::string(kContinue), {}});
}

void Session::begin_body() {
  const Clock::time_point now = Clock::now();
  pace_.begin(now);
  read_deadline_ = std::min(now + context_->options.progress_timeout, pace_.deadline());
}

// Short bodies as they are cost nothing that is worth a question.
std::optional<HttpResponse> Session::bound_body() {
  max_body_bytes_ = context_->options.max_body_bytes;
  const HttpRequest& head = reader_.head();
  const std::optional<std::uint64_t> bytes = reader_.body_bytes();
  if (bytes && *bytes == 0) return std::nullopt;
  const bool asks = !bytes || *bytes > RequestHandler::kUnaskedBodyBytes || head.method == "GET" ||
                    without_body_ || !find_header(head.headers, "Content-Encoding").empty();
  if (!asks) return std::nullopt;
  RequestHandler::BodyBound bound = context_->handler.body_bound(head);
  max_body_bytes_ = std::min(max_body_bytes_, bound.max_bytes);
  return std::move(bound.refusal);
}

std::optional<HttpResponse> Session::refusal() {
  const Headers& headers = reader_.head().headers;
  if (std::optional<HttpResponse> no = context_->handler.refuse(reader_.head())) return no;
  const std::string_view coding = find_header(headers, "Content-Encoding");
  if (!parse_coding(coding)) {
    return context_->handler.error(
        kUnknownCoding, "Content-Encoding \"" + std::string(coding) +
                            "\" is not known here; send it as gzip, deflate or not encoded");
  }
  const std::string_view expected = find_header(headers, "Expect");
  if (http_1_1_ && !expected.empty() && !same_word(expected, "100-continue")) {
    return context_->handler.error(kExpectationFailed,
                                   "Expect \"" + std::string(expected) + "\" is not known here");
  }
  return std::nullopt;
}

// A short body is discarded, so that the connection may stay. Of a client that waits for leave to
// send it nobody knows whether it will.
void Session::refuse(HttpResponse response) {
  const std::optional<std::uint64_t> body = reader_.body_bytes();
  const bool awaits_leave = !find_header(reader_.head().headers, "Expect").empty();
  if (!body || *body > kLargestDiscarded || awaits_leave) keep_alive_ = false;
  push_answer(std::move(response));
  if (phase_ != Phase::idle) return;
  phase_ = Phase::receiving;
  refused_ = true;
  reader_.drop_body();
  begin_body();
}

void Session::on_whole() {
  HttpRequest request = reader_.take();
  if (std::exchange(refused_, false)) return become_idle();
  const Coding coding =
      parse_coding(find_header(request.headers, "Content-Encoding")).value_or(Coding::identity);
  if (coding == Coding::identity || request.body.empty()) return hand_over(std::move(request));
  phase_ = Phase::decoding;
  read_deadline_ = Clock::time_point::max();
  inflation_ = std::make_unique<Inflation>(coding, std::exchange(request.body, {}), max_body_bytes_,
                                           context_->buffers);
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
    return fail(failure.code() == StatusCode::malformed    ? kBadRequest
                : failure.code() == StatusCode::overloaded ? kUnavailable
                                                           : kContentTooLarge,
                failure.message());
  }
  request.body = inflation->take();
  hand_over(std::move(request));
}

// An error of the connection's own: where the next request would begin is not known.
void Session::fail(unsigned status, const std::string& message) {
  keep_alive_ = false;
  push_answer(context_->handler.error(status, message));
}

// ---- the end

void Session::become_idle() {
  phase_ = Phase::idle;
  keep_alive_ = http_1_1_ = true;
  without_body_ = false;
  accepted_ = Coding::identity;
  if (context_->draining) return leave();
  const Clock::time_point now = Clock::now();
  idle_since_ = now;
  read_deadline_ = now + context_->options.idle_timeout;
  park_at_ = now + kParkAfter;
  if (!in_turn_ && !inbox_.empty()) turn_due_ = true;
}

void Session::leave() {
  phase_ = Phase::leaving;
  read_deadline_ = Clock::time_point::max();
  if (!in_turn_) flush();
}

void Session::all_sent() {
  if (peer_left_) return close();
  phase_ = Phase::lingering;
  stream_.shutdown_send();
  read_deadline_ = Clock::now() + std::min(kLinger, context_->options.progress_timeout);
  read();
}

void Session::drain() {
  if (phase_ != Phase::idle) return;
  if (queue_.empty() && inbox_.empty()) return close();
  leave();
}

void Session::check_deadlines(Clock::time_point now) {
  if (shaking_hands_ && !stream_.shaking_hands()) on_hands_shaken(now);
  if (write_deadline_ <= now) return close();
  const bool may_park = phase_ == Phase::idle && reading_ && !parking_ && !waits_to_write_;
  if (may_park && park_at_ <= now && inbox_.empty() && inbox_.capacity() > 0) {
    parking_ = true;
    stream_.cancel();
  }
  if (read_deadline_ > now) return;
  if (phase_ == Phase::idle || phase_ == Phase::lingering || refused_) return close();
  if (phase_ != Phase::receiving) return;
  const bool too_slow = reader_.inside_body() && pace_.deadline() <= now;
  fail(kRequestTimeout,
       too_slow ? "the request's body comes too slowly; send at least " + pace_.demand()
       : reader_.inside_body() ? std::string("the rest of the request's body did not come")
                               : std::string("the rest of the request's head did not come"));
  flush();
  read();
}

// A client that connects in advance may take its time from here, unless it is one too many.
void Session::on_hands_shaken(Clock::time_point now) {
  shaking_hands_ = false;
  if (phase_ != Phase::idle || slot_->reserved()) return;
  read_deadline_ = now + idle_timeout();
  park_at_ = std::min(park_at_, now + kParkAfter);
}

void Session::close() {
  if (closed()) return;
  const bool waited = phase_ == Phase::waiting;
  shut();
  if (waited && gone_)
    asio::post(stream_.get_executor(), [self = shared_from_this()] { self->tell_gone(); });
  if (const auto on_closed = std::exchange(on_closed_, nullptr)) on_closed();
}

void Session::shut() {
  phase_ = Phase::closed;
  stream_.close();
  queue_.clear();
  slot_.reset();
  tell_drained();
}

void Session::abandon() {
  abandoned_ = true;
  gone_ = nullptr;
  drained_ = nullptr;
  on_closed_ = nullptr;
  if (!closed()) shut();
}

}  // namespace gpulet::net::http
