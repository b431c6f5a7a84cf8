// The half of Session that answers, and the handles that a handler has for it.
#include <algorithm>
#include <numeric>
#include <utility>

#include "net/http/session.h"

namespace gpulet::net::http {
namespace {

using boost::system::error_code;

constexpr int kMaxWritesPerFlush = 16;
constexpr std::size_t kSmallestCompressed = 1U << 10U;
constexpr unsigned kInternalError = 500;

std::size_t total_bytes(const std::vector<Bytes>& parts) {
  return std::accumulate(parts.begin(), parts.end(), std::size_t{0},
                         [](std::size_t total, const Bytes& part) { return total + part.size(); });
}

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
  read_deadline_ = Clock::time_point::max();
  context_->handler.on_request(std::move(request),
                               std::make_unique<SessionExchange>(shared_from_this()));
}

void Session::answer(HttpResponse response) {
  // What it holds may end here, so it must not be called any more.
  const std::function<void()> not_gone = std::exchange(gone_, nullptr);
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
    push_answer(std::move(response));
  }
  if (in_turn_) return;
  flush();
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
    return push_answer(std::move(response));
  }
  response.body.push_back(deflation->take());
  push_answer(std::move(response), accepted_);
}

void Session::push_answer(HttpResponse response, Coding coding) {
  if (closed()) return;
  AnswerForm form;
  form.http_1_1 = http_1_1_;
  form.keep_alive = keep_alive_ && !context_->draining && !peer_left_;
  form.body_bytes = total_bytes(response.body);
  form.coding = coding;
  if (without_body_ || has_no_body(response.status)) response.body.clear();
  queue_.push({answer_head(response, form, context_->date.now()), std::move(response.body)});
  if (form.keep_alive) {
    become_idle();
  } else {
    leave();
  }
}

void Session::drop() {
  const std::function<void()> not_gone = std::exchange(gone_, nullptr);
  if (phase_ != Phase::waiting) return;
  if (peer_left_) return close();
  answer(context_->handler.error(kInternalError, "the request was dropped without an answer"));
}

void Session::on_gone(std::function<void()> gone) {
  const bool left = peer_left_ || (closed() && !abandoned_);
  if (abandoned_ || (phase_ != Phase::waiting && !closed())) return;
  gone_ = std::move(gone);
  if (left) asio::post(stream_.get_executor(), [self = shared_from_this()] { self->tell_gone(); });
}

void Session::tell_gone() {
  if (const auto gone = std::exchange(gone_, nullptr)) gone();
}

// ---- streams

void Session::begin_stream(const HttpResponse& head) {
  const std::function<void()> not_gone = std::exchange(gone_, nullptr);
  if (phase_ != Phase::waiting) return;
  AnswerForm form;
  form.http_1_1 = http_1_1_;
  form.keep_alive = false;
  queue_.push({answer_head(head, form, context_->date.now()), {}});
  phase_ = Phase::streaming;
  if (!in_turn_) flush();
}

bool Session::send_part(std::string part) {
  if (phase_ != Phase::streaming) return false;
  if (part.empty() || without_body_) return true;
  queue_.push({http_1_1_ ? chunk_of(part) : std::move(part), {}});
  if (!in_turn_) flush();
  if (queue_.cost() > context_->options.max_stream_bytes) close();
  return !closed();
}

void Session::on_drained(std::function<void()> drained) {
  if (abandoned_) return;
  drained_ = std::move(drained);
  if (queue_.empty() || phase_ != Phase::streaming) tell_drained();
}

void Session::tell_drained() {
  if (drained_) asio::post(stream_.get_executor(), std::exchange(drained_, nullptr));
}

void Session::abort_stream() {
  if (phase_ == Phase::streaming) close();
}

void Session::end_stream() {
  const std::function<void()> not_drained = std::exchange(drained_, nullptr);

  if (phase_ != Phase::streaming) return;
  if (http_1_1_ && !without_body_) queue_.push({std::string(kLastChunk), {}});
  leave();
}

// ---- writing

// Tries at once, without a trip through the reactor: the kernel nearly always has room.
void Session::flush() {
  if (closed() || waits_to_write_ || phase_ == Phase::lingering) return;
  for (int i = 0; i < kMaxWritesPerFlush && !queue_.empty(); ++i) {
    const WriteQueue::Pieces pieces = queue_.front();
    error_code error;
    const std::size_t bytes = stream_.write_some(pieces, error);
    if (error == asio::error::would_block || error == asio::error::try_again)
      return wait_until_writable();
    if (error) return close();
    queue_.written(bytes);
    write_deadline_ = Clock::time_point::max();
    if (bytes < pieces.byte_size()) return wait_until_writable();
  }
  if (!queue_.empty()) return wait_until_writable();
  tell_drained();
  if (phase_ == Phase::leaving) return all_sent();
  if (std::exchange(turn_due_, false)) later([](Session& self) { self.turn(); });
}

void Session::wait_until_writable() {
  waits_to_write_ = true;
  if (write_deadline_ == Clock::time_point::max())
    write_deadline_ = Clock::now() + context_->options.progress_timeout;
  stream_.async_wait_writable([self = shared_from_this()](const error_code& error) {
    self->waits_to_write_ = false;
    if (self->closed()) return;
    if (error) return self->close();
    self->flush();
  });
}

}  // namespace gpulet::net::http
