#include "bench/serve/support/traffic.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <set>
#include <thread>
#include <unordered_set>
#include <utility>

#include "gpulet/base/random.h"
#include "gpulet/net/connection.h"
#include "gpulet/protocol/codec.h"

namespace gpulet::bench {
namespace {

namespace asio = net::asio;
using Clock = std::chrono::steady_clock;

constexpr Duration kReconnectPause = std::chrono::milliseconds(200);
constexpr Duration kNoMore = Duration::max();
constexpr Duration kPulse = std::chrono::milliseconds(5);
constexpr Duration kLeastStall = std::chrono::milliseconds(10);  // a longer delay is a stall
constexpr int kSendsInOneGo = 64;  // then it reads the answers that have arrived

// Arrivals of one stream: a Poisson process has no memory, so a new rate starts a new wait.
class Arrivals {
 public:
  Arrivals(const std::vector<RateFrom>& rates, std::uint64_t seed) : rates_(rates), random_(seed) {
    if (rates_.empty()) {
      due_ = kNoMore;
    } else {
      due_ = rates_.front().at;
      advance();
    }
  }

  [[nodiscard]] Duration due() const { return due_; }

  void advance() {
    for (; piece_ < rates_.size(); ++piece_) {
      const Duration end = piece_ + 1 < rates_.size() ? rates_[piece_ + 1].at : kNoMore;
      const double rate = rates_[piece_].rate;
      if (rate > 0) {
        const Duration next = due_ + from_seconds(random_.exponential(1 / rate));
        if (next < end) {
          due_ = next;
          return;
        }
      }
      due_ = end;
    }
    due_ = kNoMore;
  }

 private:
  std::vector<RateFrom> rates_;
  Random random_;
  std::size_t piece_ = 0;
  Duration due_{};
};

class Link;

class LinkOwner {
 public:
  virtual ~LinkOwner() = default;
  virtual void on_answer(const InferReply& reply) = 0;
  virtual void on_lost(const std::unordered_set<std::uint64_t>& tags) = 0;
};

// One connection, opened again when it is lost, with the tags that wait for answers on it.
class Link : public net::ConnectionHandler {
 public:
  Link(LinkOwner& owner, asio::io_context& context, const load::Target& target)
      : owner_(owner),
        connector_(context.get_executor(), target.endpoint.host, target.endpoint.port,
                   {.timeout = std::chrono::seconds(5),
                    .first_pause = kReconnectPause,
                    .longest_pause = kReconnectPause,
                    .tls = target.tls}) {
    connect();
  }

  [[nodiscard]] bool open() const { return connection_ != nullptr; }

  void send(std::uint64_t tag, protocol::OutgoingFrame frame) {
    waiting_.insert(tag);
    connection_->send(std::move(frame));
  }

 private:
  void connect() {
    connector_.connect_with_retry(
        [this](net::Stream socket) {
          net::ConnectionOptions options;
          options.max_queued_bytes = std::numeric_limits<std::size_t>::max() / 2;
          connection_ = net::Connection::start(std::move(socket), options, *this);
        },
        [](const Status& /*status*/, Duration /*pause*/) {});
  }

  Result<MutableBytes> payload_memory(const protocol::FrameHeader& header,
                                      std::span<const std::byte> /*message*/) override {
    if (!buffer_ || buffer_.use_count() > 1) buffer_ = std::make_shared<std::vector<std::byte>>();
    buffer_->resize(std::max<std::size_t>(buffer_->size(), header.payload_bytes));
    return MutableBytes(buffer_, std::span(*buffer_).first(header.payload_bytes));
  }

  void on_frame(const protocol::FrameHeader& header, std::span<const std::byte> message,
                MutableBytes payload) override {
    const Result<FrontendReply> reply =
        protocol::decode<FrontendReply>(header, message, payload.freeze());
    if (!reply.ok()) return connection_->close(reply.status());
    const auto* const infer = std::get_if<InferReply>(&reply.value());
    if (infer == nullptr) {
      return connection_->close(Status(StatusCode::malformed, "an answer of another kind"));
    }
    waiting_.erase(infer->tag);
    owner_.on_answer(*infer);
  }

  void on_closed(const Status& /*reason*/) override {
    connection_.reset();
    connect();
    owner_.on_lost(std::exchange(waiting_, {}));
  }

  LinkOwner& owner_;
  net::Connector connector_;
  std::shared_ptr<net::Connection> connection_;  // empty while closed
  std::shared_ptr<std::vector<std::byte>> buffer_;
  std::unordered_set<std::uint64_t> waiting_;
};

Fate fate_of(const Status& status) {
  if (status.ok()) return Fate::served;
  const bool refused =
      status.code() == StatusCode::too_late || status.code() == StatusCode::overloaded;
  return refused ? Fate::dropped : Fate::failed;
}

}  // namespace

class Traffic::Impl : public LinkOwner {
 public:
  Impl(std::vector<Stream> streams, const TrafficOptions& options)
      : streams_(std::move(streams)),
        options_(options),
        end_(options.length),
        timer_(context_),
        pulse_(context_) {
    for (const Stream& stream : streams_) {
      arrivals_.emplace_back(stream.rates, stream_seed(options.seed, stream.model));
    }
    for (std::uint32_t i = 0; i < std::max(options.connections, 1U); ++i) {
      links_.push_back(std::make_unique<Link>(*this, context_, options.target));
    }
    context_.run_for(std::chrono::milliseconds(50));  // the connections first
    context_.restart();
    start_ = Clock::now();
    asio::post(context_, [this] { send_due(); });
    beat(start_ + kPulse);
    thread_ = std::jthread([this] { run(); });
  }

  [[nodiscard]] Duration elapsed() const { return Clock::now() - start_; }
  [[nodiscard]] Duration length() const { return options_.length; }

  TrafficResult finish() {
    asio::post(context_, [this] {
      end_ = std::min(end_, elapsed());
      give_up_at_ = elapsed() + options_.patience;
      finishing_ = true;
    });
    thread_.join();
    for (Sent& sent : result_.requests) {
      if (sent.fate == Fate::under_way) settle(sent, Fate::unanswered, StatusCode::timeout);
    }
    std::sort(lags_.begin(), lags_.end());
    if (!lags_.empty()) result_.sender_lag_p99 = lags_[(lags_.size() - 1) * 99 / 100];
    return std::move(result_);
  }

  void on_answer(const InferReply& reply) override {
    if (reply.tag >= result_.requests.size()) {
      ++result_.answers_to_nothing;
      return;
    }
    Sent& sent = result_.requests[reply.tag];
    if (sent.fate != Fate::under_way) {
      ++result_.second_answers;
      return;
    }
    settle(sent, fate_of(reply.status), reply.status.code());
    if (!reply.status.ok() && told_.emplace(sent.stream, reply.status.code()).second) {
      result_.first_messages.push_back(reply.status.to_string());
    }
  }

  void on_lost(const std::unordered_set<std::uint64_t>& tags) override {
    ++result_.connections_lost;
    for (const std::uint64_t tag : tags) {
      settle(result_.requests[tag], Fate::connection_lost, StatusCode::unavailable);
    }
  }

 private:
  void run() {
    const Duration look = std::chrono::milliseconds(10);
    while (!finishing_ || (under_way_ > 0 && elapsed() < give_up_at_)) {
      context_.restart();
      context_.run_one_for(look);
    }
    links_.clear();
  }

  void settle(Sent& sent, Fate fate, StatusCode code) {
    --under_way_;
    sent.fate = fate;
    sent.code = code;
    sent.settled = elapsed();
  }

  // Detects when this thread did not run.
  void beat(Clock::time_point due) {
    pulse_.expires_at(due);
    pulse_.async_wait([this, due](const boost::system::error_code& error) {
      if (error) return;
      const Clock::time_point now = Clock::now();
      if (now - due > kLeastStall) result_.stalls.push_back({due - start_, now - start_});
      beat(now + kPulse);
    });
  }

  [[nodiscard]] std::size_t next_stream() const {
    const auto first =
        std::min_element(arrivals_.begin(), arrivals_.end(),
                         [](const Arrivals& a, const Arrivals& b) { return a.due() < b.due(); });
    return static_cast<std::size_t>(first - arrivals_.begin());
  }

  void send_due() {
    for (int i = 0; i < kSendsInOneGo; ++i) {
      const std::size_t stream = next_stream();
      const Duration due = arrivals_[stream].due();
      if (due >= end_) return;
      if (due > elapsed()) return wait_until(due);
      send(static_cast<std::uint32_t>(stream), due);
      arrivals_[stream].advance();
    }
    asio::post(context_, [this] { send_due(); });
  }

  void wait_until(Duration due) {
    timer_.expires_at(start_ + due);
    timer_.async_wait([this](const boost::system::error_code& error) {
      if (!error) send_due();
    });
  }

  void send(std::uint32_t stream, Duration due) {
    const std::uint64_t tag = result_.requests.size();
    ++under_way_;
    Sent& sent = result_.requests.emplace_back();
    sent.stream = stream;
    sent.intended = due;
    Link* const link = next_link();
    if (link == nullptr) return settle(sent, Fate::unsent, StatusCode::unavailable);
    sent.sent = elapsed();
    lags_.push_back(sent.sent - due);
    const Stream& of = streams_[stream];
    InferRequest request{.tag = tag,
                         .model = of.model,
                         .timeout = of.slo,
                         .inputs = of.inputs,
                         .payload = of.payload};
    link->send(tag, protocol::encode(ClientMessage(std::move(request))));
  }

  Link* next_link() {
    for (std::size_t i = 0; i < links_.size(); ++i) {
      Link* const link = links_[next_link_++ % links_.size()].get();
      if (link->open()) return link;
    }
    return nullptr;
  }

  const std::vector<Stream> streams_;
  const TrafficOptions options_;
  Clock::time_point start_{};

  // Used by the thread only.
  Duration end_;
  Duration give_up_at_{};
  bool finishing_ = false;
  TrafficResult result_;  // tags count its requests
  std::size_t under_way_ = 0;
  std::set<std::pair<std::uint32_t, StatusCode>> told_;
  std::vector<Duration> lags_;
  std::vector<Arrivals> arrivals_;
  asio::io_context context_{1};
  asio::steady_timer timer_;
  asio::steady_timer pulse_;
  std::vector<std::unique_ptr<Link>> links_;
  std::size_t next_link_ = 0;

  std::jthread thread_;
};

Duration TrafficResult::answered_after(const Sent& request) const {
  Duration asleep{};
  for (const Stall& stall : stalls) {
    const Duration from = std::max(stall.from, request.sent);
    const Duration until = std::min(stall.until, request.settled);
    if (until > from) asleep += until - from;
  }
  return request.settled - request.sent - asleep;
}

Traffic::Traffic(std::vector<Stream> streams, const TrafficOptions& options)
    : impl_(std::make_unique<Impl>(std::move(streams), options)) {}
Traffic::~Traffic() {
  if (impl_ != nullptr) static_cast<void>(finish());
}

Duration Traffic::elapsed() const { return impl_->elapsed(); }

TrafficResult Traffic::finish() {
  TrafficResult result = impl_->finish();
  impl_.reset();
  return result;
}

TrafficResult Traffic::run_out() {
  std::this_thread::sleep_for(impl_->length() - impl_->elapsed());
  return finish();
}

}  // namespace gpulet::bench
