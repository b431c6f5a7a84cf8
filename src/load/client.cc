#include "gpulet/load/client.h"

#include <fmt/format.h>

#include <chrono>
#include <deque>
#include <limits>
#include <memory>
#include <unordered_set>
#include <utility>

#include "gpulet/base/text.h"
#include "gpulet/net/connection.h"
#include "gpulet/protocol/codec.h"

namespace gpulet::load {

namespace {

std::string names_of(const std::vector<ModelInfo>& served) {
  std::vector<std::string> names;
  for (const ModelInfo& model : served) names.push_back(model.name);
  return names.empty() ? "no models" : joined(names);
}

// The lengths that requests have; those of the buckets where the workload says nothing.
std::vector<std::int64_t> lengths_of(const config::WorkloadModel& model, const ModelInfo& info) {
  std::vector<std::int64_t> lengths(info.lengths.begin(), info.lengths.end());
  if (!model.lengths) return lengths;
  const std::int64_t least = model.lengths->first;
  const std::int64_t most = model.lengths->second;
  if (!info.pads) {
    std::erase_if(lengths, [&](std::int64_t one) { return one < least || one > most; });
    return lengths;
  }
  lengths.clear();
  for (std::int64_t one = least; one <= most; ++one) lengths.push_back(one);
  return lengths;
}

Result<InputPool> inputs_of(const config::WorkloadModel& model, const ModelInfo& info,
                            std::uint64_t seed) {
  if (!model.input) {
    // A random stream of its own: inputs must not correlate with arrivals.
    return random_inputs(info.inputs, stream_seed(seed, info.name + "/inputs"),
                         lengths_of(model, info), model.ranges);
  }
  if (model.input->labels &&
      (info.outputs.empty() || info.outputs.front().type == DataType::boolean ||
       info.outputs.front().type == DataType::bytes)) {
    return Status(
        StatusCode::invalid,
        "labels are compared with the arg max of the first output, which must hold numbers; the "
        "model has " +
            (info.outputs.empty() ? std::string("no output") : to_string(info.outputs.front())));
  }
  return read_inputs(*model.input, info.inputs);
}

}  // namespace

Result<std::vector<PreparedModel>> prepare(const std::vector<config::WorkloadModel>& workload,
                                           const std::vector<ModelInfo>& served, const Scale& scale,
                                           std::uint64_t seed) {
  std::vector<PreparedModel> prepared;
  for (std::size_t i = 0; i < workload.size(); ++i) {
    const config::WorkloadModel& model = workload[i];
    const std::string pointer = fmt::format("/models/{}", i);
    const auto info = std::find_if(served.begin(), served.end(), [&model](const ModelInfo& one) {
      return one.name == model.name;
    });
    if (info == served.end()) {
      return Status(StatusCode::not_found,
                    fmt::format(R"({}/name: the target does not serve "{}"; it serves {})", pointer,
                                model.name, names_of(served)));
    }
    Result<InputPool> pool = inputs_of(model, *info, seed);
    if (!pool.ok()) return pool.status().within(pointer + "/input");
    PreparedModel ready;
    ready.load = {.name = model.name,
                  .arrivals = model.arrivals,
                  .rate = model.rate * scale.rate,
                  .concurrency = model.concurrency,
                  .slo = from_ms(model.slo_ms > 0 ? model.slo_ms * scale.slo : info->slo_ms),
                  .inputs = pool.value().requests.size(),
                  .labelled = !pool.value().labels.empty()};
    ready.timeout = from_ms(model.slo_ms * scale.slo);
    ready.pool = std::move(pool).value();
    prepared.push_back(std::move(ready));
  }
  return prepared;
}

namespace {

namespace asio = net::asio;
using boost::system::error_code;
using std::chrono::steady_clock;

// Requests sent before received replies are processed.
constexpr int kMaxSendBurst = 64;
constexpr std::size_t kMostOwners = 256;  // whose addresses replies may name
constexpr Duration kLookForOverdue = std::chrono::milliseconds(100);
// How long an owner that left a request unanswered gets no further ones.
constexpr Duration kAvoidSilentOwner = std::chrono::seconds(10);

class LinkOwner {
 public:
  virtual ~LinkOwner() = default;
  virtual void on_reply(InferReply reply) = 0;
  virtual void on_link_lost(const std::unordered_set<std::uint64_t>& lost,
                            const Status& reason) = 0;
};

// One connection and its requests in flight.
class Wire : public net::ConnectionHandler {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    // `waiting`: requests without a reply are left.
    virtual void on_reply(Wire& wire, InferReply reply, bool waiting) = 0;
    virtual void on_lost(Wire& wire, std::unordered_set<std::uint64_t> waiting,
                         const Status& reason) = 0;
  };

  Wire(Owner& owner, net::Stream stream, const std::string& token) : owner_(owner) {
    net::ConnectionOptions options;
    // Queued frames share the inputs with the pool; the generator limits their number.
    options.max_queued_bytes = std::numeric_limits<std::size_t>::max() / 2;
    connection_ = net::Connection::start(std::move(stream), options, *this);
    // Also without a token: the frontend closes connections that send nothing.
    connection_->send(protocol::encode(ClientMessage(Authenticate{token})));
  }

  void send(std::uint64_t tag, protocol::OutgoingFrame frame) {
    waiting_.insert(tag);
    connection_->send(std::move(frame));
  }
  [[nodiscard]] bool waits() const { return !waiting_.empty(); }

 private:
  // Replies are not used after on_frame: one buffer is enough.
  Result<MutableBytes> payload_memory(const protocol::FrameHeader& header,
                                      std::span<const std::byte> /*message*/) override {
    if (!buffer_ || buffer_.use_count() > 1) buffer_ = std::make_shared<std::vector<std::byte>>();
    buffer_->resize(std::max<std::size_t>(buffer_->size(), header.payload_bytes));
    return MutableBytes(buffer_, std::span(*buffer_).first(header.payload_bytes));
  }

  void on_frame(const protocol::FrameHeader& header, std::span<const std::byte> message,
                MutableBytes payload) override {
    Result<FrontendReply> reply =
        protocol::decode<FrontendReply>(header, message, payload.freeze());
    if (!reply.ok()) return connection_->close(reply.status());
    auto* const infer = std::get_if<InferReply>(&reply.value());
    if (infer == nullptr) {
      return connection_->close(
          Status(StatusCode::malformed, "the target sent a reply that is not an inference reply"));
    }
    waiting_.erase(infer->tag);
    owner_.on_reply(*this, std::move(*infer), !waiting_.empty());
  }

  void on_closed(const Status& reason) override {
    owner_.on_lost(*this, std::exchange(waiting_, {}), reason);
  }

  Owner& owner_;
  std::shared_ptr<net::Connection> connection_;
  std::shared_ptr<std::vector<std::byte>> buffer_;
  std::unordered_set<std::uint64_t> waiting_;  // tags
};

// A connection to one of the endpoints. A lost one is opened again, at the next endpoint. One whose
// frontend stops (InferReply::leaving) is replaced first, if there are others, and ends with its
// last reply.
class Link : private Wire::Owner {
 public:
  Link(LinkOwner& owner, asio::io_context& context, const LoadOptions& options,
       std::vector<config::Endpoint> endpoints, std::size_t first)
      : owner_(owner),
        context_(context),
        options_(options),
        endpoints_(std::move(endpoints)),
        endpoint_(first) {}

  // Tries once.
  void open(std::function<void(const Status&)> done) {
    next_connector().connect([this, done = std::move(done)](Result<net::Stream> stream) {
      const Status status = stream.status();
      if (status.ok()) use(std::move(stream).value());
      done(status);
    });
  }

  // Tries until it succeeds.
  void open() { reconnect(); }

  [[nodiscard]] bool is_open() const { return wire_ != nullptr; }
  void send(std::uint64_t tag, protocol::OutgoingFrame frame) {
    wire_->send(tag, std::move(frame));
  }

 private:
  net::Connector& next_connector() {
    const config::Endpoint& endpoint = endpoints_[endpoint_++ % endpoints_.size()];
    connector_ = std::make_unique<net::Connector>(
        context_.get_executor(), endpoint.host, endpoint.port,
        net::ConnectorOptions{.timeout = options_.connect_timeout, .tls = options_.target.tls});
    return *connector_;
  }

  void reconnect() {
    next_connector().connect([this](Result<net::Stream> stream) {
      if (stream.ok()) return use(std::move(stream).value());
      retry_.expires_after(kReconnectPause);
      retry_.async_wait([this](error_code error) {
        if (!error) reconnect();
      });
    });
  }

  void use(net::Stream stream) {
    replacing_ = false;
    if (wire_ != nullptr && wire_->waits()) leaving_.push_back(std::move(wire_));
    wire_ = std::make_unique<Wire>(static_cast<Wire::Owner&>(*this), std::move(stream),
                                   options_.target.token);
  }

  void on_reply(Wire& wire, InferReply reply, bool waiting) override {
    const bool leaving = reply.leaving;
    owner_.on_reply(std::move(reply));
    if (&wire != wire_.get()) {
      if (!waiting) forget(wire);
    } else if (leaving && !std::exchange(replacing_, true)) {
      if (endpoints_.size() == 1) stop_using();
      reconnect();
    }
  }

  void on_lost(Wire& wire, std::unordered_set<std::uint64_t> waiting,
               const Status& reason) override {
    const bool current = &wire == wire_.get();
    forget(wire);
    if (current && !std::exchange(replacing_, true)) reconnect();
    owner_.on_link_lost(waiting, reason);
  }

  // There is no other frontend for it: it ends with its last reply.
  void stop_using() {
    leaving_.push_back(std::move(wire_));
    if (!leaving_.back()->waits()) forget(*leaving_.back());
  }

  // Posted, because the wire is on the stack.
  void forget(Wire& wire) {
    std::unique_ptr<Wire> ended;
    if (&wire == wire_.get()) {
      ended = std::move(wire_);
    } else {
      const auto found = std::find_if(leaving_.begin(), leaving_.end(),
                                      [&](const auto& one) { return one.get() == &wire; });
      ended = std::move(*found);
      leaving_.erase(found);
    }
    asio::post(context_, [ended = std::shared_ptr(std::move(ended))] {});
  }

  LinkOwner& owner_;
  asio::io_context& context_;
  const LoadOptions& options_;
  const std::vector<config::Endpoint> endpoints_;
  std::size_t endpoint_;  // the next one
  std::unique_ptr<net::Connector> connector_;
  asio::steady_timer retry_{context_};
  std::unique_ptr<Wire> wire_;  // null while there is none
  bool replacing_ = false;      // a new one is being opened
  std::vector<std::unique_ptr<Wire>> leaving_;
};

class LoadRun : public LinkOwner {
 public:
  LoadRun(const std::vector<PreparedModel>& models, const LoadOptions& options)
      : models_(models),
        options_(options),
        generator_(loads_of(models), options.generator, options.on_settled),
        send_timer_(context_),
        progress_timer_(context_),
        overdue_timer_(context_),
        deadline_timer_(context_) {
    std::vector<config::Endpoint> endpoints = {options.target.endpoint};
    endpoints.insert(endpoints.end(), options.others.begin(), options.others.end());
    for (std::uint32_t i = 0; i < std::max(options.connections, 1U); ++i)
      links_.push_back(std::make_unique<Link>(*this, context_, options_, endpoints, i));
    owner_of_.resize(models.size());
    awaited_.resize(models.size());
  }

  Result<LoadReport> run() {
    if (const Status status = open_all(); !status.ok()) return status;
    phase_ = Phase::running;
    started_ = steady_clock::now();
    send_due();
    report_progress_later();
    give_up_overdue_later();
    wait_for_the_end();
    run_until([this] { return phase_ == Phase::over; });
    return LoadReport{.models = generator_.rows(),
                      .sender_lag = generator_.sender_lag(),
                      .elapsed = ended_.time_since_epoch(),
                      .outstanding_limit_hit = generator_.outstanding_limit_hit(),
                      .connections_lost = connections_lost_,
                      .unexpected_replies = unexpected_replies_};
  }

  void on_reply(InferReply reply) override {
    const Time now = time();
    const std::optional<DueRequest> request = generator_.in_flight(reply.tag);
    if (!request) {
      ++unexpected_replies_;
      return;
    }
    Generator::Reply answer{.status = reply.status,
                            .batch_size = reply.batch_size,
                            .queued = reply.queued,
                            .executed = reply.executed,
                            .correct = judge(*request, reply)};
    generator_.complete(reply.tag, answer, now);
    if (options_.follow_owners && !reply.served_by.empty()) follow(request->model, reply.served_by);
    send_due();
  }

  void on_link_lost(const std::unordered_set<std::uint64_t>& lost, const Status& reason) override {
    ++connections_lost_;
    if (phase_ != Phase::running) return;
    const Time now = time();
    for (const std::uint64_t tag : lost) {
      generator_.fail(tag, Status(StatusCode::unavailable, "connection lost: " + reason.message()),
                      true, now);
    }
    send_due();
  }

 private:
  enum class Phase { opening, running, over };

  // A frontend that replies named.
  struct Owner {
    std::unique_ptr<Link> link;
    Time avoided_until{};
  };
  // A request that was sent, answered or not.
  struct Awaited {
    Time until{};
    std::uint64_t tag = 0;
    Owner* owner = nullptr;  // null: it went to a frontend of the options
  };

  static std::vector<ModelLoad> loads_of(const std::vector<PreparedModel>& models) {
    std::vector<ModelLoad> loads;
    loads.reserve(models.size());
    for (const PreparedModel& model : models) loads.push_back(model.load);
    return loads;
  }

  [[nodiscard]] Time time() const { return Time(steady_clock::now() - started_); }
  [[nodiscard]] steady_clock::time_point on_clock(Time time) const {
    return started_ + time.time_since_epoch();
  }

  Status open_all() {
    Status failure;
    for (const auto& link : links_) {
      link->open([this, &failure](const Status& status) {
        if (failure.ok()) failure = status;
        ++attempts_done_;
      });
    }
    run_until([this] { return attempts_done_ == links_.size(); });
    return failure;
  }

  // context_.run() would wait for all connections and connection attempts to end.
  template <typename Condition>
  void run_until(Condition condition) {
    while (!condition()) context_.run_one();
  }

  std::optional<bool> judge(const DueRequest& request, const InferReply& reply) const {
    const std::vector<std::int64_t>& labels = models_[request.model].pool.labels;
    if (labels.empty() || !reply.status.ok()) return std::nullopt;
    if (reply.outputs.empty() || reply.payload.empty()) return false;
    return arg_max(reply.outputs.front().type, reply.payload.front()) == labels[request.input];
  }

  // Sends all due requests and sets the timer for the next one.
  void send_due() {
    if (phase_ != Phase::running) return;
    for (int sent = 0; sent < kMaxSendBurst; ++sent) {
      const std::optional<DueRequest> request = generator_.next(time());
      if (!request) return wait_for_due();
      send(*request);
    }
    if (std::exchange(send_posted_, true)) return;
    asio::post(context_, [this] {
      send_posted_ = false;
      send_due();
    });
  }

  void wait_for_due() {
    if (generator_.finished()) return stop();
    const Time due = generator_.next_due();
    if (due == timer_set_for_) return;
    timer_set_for_ = due;
    if (due == kNever) {
      send_timer_.cancel();
      return;
    }
    send_timer_.expires_at(on_clock(due));
    send_timer_.async_wait([this](error_code error) {
      if (error) return;
      timer_set_for_ = kNever;
      send_due();
    });
  }

  void send(const DueRequest& request) {
    Owner* const owner = owner_of_[request.model];
    const bool goes_to_owner =
        owner != nullptr && owner->link->is_open() && time() >= owner->avoided_until;
    Link* const link = goes_to_owner ? owner->link.get() : next_open_link();
    if (link == nullptr) {
      Status status(StatusCode::unavailable, "not sent: no connection to the target is open");
      generator_.fail(request.tag, std::move(status), false, time());
      return;
    }
    const PreparedModel& model = models_[request.model];
    InferRequest message{.tag = request.tag,
                         .model = model.load.name,
                         .timeout = model.timeout,
                         .inputs = model.pool.inputs_of(request.input),
                         .payload = model.pool.requests[request.input]};
    link->send(request.tag, protocol::encode(ClientMessage(std::move(message))));
    const Duration patience = std::max(model.timeout, model.load.slo) + options_.last_answer_grace;
    awaited_[request.model].push_back(
        {time() + patience, request.tag, goes_to_owner ? owner : nullptr});
  }

  // Requests without a reply would hold their slots of a closed loop, and silent owners would get
  // more and more of them.
  void give_up_overdue() {
    const Time now = time();
    for (std::deque<Awaited>& awaited : awaited_) {
      for (; !awaited.empty() && awaited.front().until <= now; awaited.pop_front()) {
        const Awaited& request = awaited.front();
        if (!generator_.in_flight(request.tag)) continue;
        if (request.owner != nullptr) request.owner->avoided_until = now + kAvoidSilentOwner;
        generator_.fail(request.tag, Status(StatusCode::timeout, "no reply in time"), true, now);
      }
    }
  }

  void give_up_overdue_later() {
    overdue_timer_.expires_after(kLookForOverdue);
    overdue_timer_.async_wait([this](error_code error) {
      if (error || phase_ != Phase::running) return;
      give_up_overdue();
      send_due();
      give_up_overdue_later();
    });
  }

  // Another frontend serves the model: its next requests go there, once it can be reached.
  void follow(std::size_t model, const std::string& address) {
    const auto known = owners_.find(address);
    if (known != owners_.end()) {
      owner_of_[model] = &known->second;
      return;
    }
    const Result<config::Endpoint> endpoint = config::parse_endpoint(address);
    if (!endpoint.ok() || owners_.size() == kMostOwners) return;
    Owner& owner = owners_[address];
    owner.link = std::make_unique<Link>(*this, context_, options_,
                                        std::vector<config::Endpoint>{endpoint.value()}, 0);
    owner.link->open();
    owner_of_[model] = &owner;
  }

  Link* next_open_link() {
    for (std::size_t i = 0; i < links_.size(); ++i) {
      Link* const link = links_[next_link_++ % links_.size()].get();
      if (link->is_open()) return link;
    }
    return nullptr;
  }

  void report_progress_later() {
    if (!options_.on_progress) return;
    progress_timer_.expires_after(kProgressPeriod);
    progress_timer_.async_wait([this](error_code error) {
      if (error || phase_ != Phase::running) return;
      if (!options_.on_progress(generator_.progress(), time().time_since_epoch())) {
        generator_.end_sending(time());
        wait_for_the_end();
        if (generator_.finished()) return stop();
      }
      report_progress_later();
    });
  }

  // Limits the run if the server stops replying.
  void wait_for_the_end() {
    Duration slo_max{};
    for (const PreparedModel& model : models_) slo_max = std::max(slo_max, model.load.slo);
    deadline_timer_.expires_at(on_clock(generator_.end()) + slo_max + options_.last_answer_grace);
    deadline_timer_.async_wait([this](error_code error) {
      if (error) return;
      generator_.fail_all(time());
      stop();
    });
  }

  void stop() {
    if (std::exchange(phase_, Phase::over) == Phase::running) ended_ = time();
  }

  const std::vector<PreparedModel>& models_;
  const LoadOptions& options_;
  Generator generator_;
  asio::io_context context_{1};
  asio::steady_timer send_timer_;
  asio::steady_timer progress_timer_;
  asio::steady_timer overdue_timer_;
  asio::steady_timer deadline_timer_;
  std::vector<std::unique_ptr<Link>> links_;
  std::map<std::string, Owner> owners_;       // by address
  std::vector<Owner*> owner_of_;              // by model; null: unknown
  std::vector<std::deque<Awaited>> awaited_;  // by model, in the order of `until`
  std::size_t next_link_ = 0;
  std::size_t attempts_done_ = 0;
  steady_clock::time_point started_;
  Time ended_{};
  Time timer_set_for_ = kNever;
  bool send_posted_ = false;
  Phase phase_ = Phase::opening;
  std::uint64_t connections_lost_ = 0;
  std::uint64_t unexpected_replies_ = 0;
};

}  // namespace

Result<LoadReport> run_load(const std::vector<PreparedModel>& models, const LoadOptions& options) {
  return LoadRun(models, options).run();
}

}  // namespace gpulet::load
