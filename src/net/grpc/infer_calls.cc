#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "net/grpc/messages.h"
#include "net/grpc/services.h"

namespace gpulet::net::grpc_api {
namespace {

// One inference in progress, of a unary call or a stream. Executor thread only.
class Inference : public std::enable_shared_from_this<Inference> {
 public:
  // `retry_after`: of a limited call.
  using OnDone = std::function<void(const Status&, Duration retry_after, InferAnswer)>;

  // Checks the peer's right and limits. Calls `done` once, maybe from within; not after cancel().
  [[nodiscard]] static std::shared_ptr<Inference> begin(const ServerStatePointer& state,
                                                        access::PeerIdentity& peer,
                                                        const InferMessage& message, OnDone done) {
    std::shared_ptr<Inference> one(new Inference(state, std::move(done)));
    const access::Access admitted = one->start(peer, message);
    if (!admitted.status.ok()) one->finish(admitted.status, admitted.retry_after, {});
    return one;
  }

  void cancel() {
    if (done_ == nullptr) return;
    done_ = nullptr;
    permit_.reset();
    if (state_->open) state_->host.cancel(id_);
  }

  [[nodiscard]] bool in_progress() const { return done_ != nullptr; }

 private:
  Inference(ServerStatePointer state, OnDone done)
      : state_(std::move(state)), done_(std::move(done)) {}

  [[nodiscard]] access::Access start(access::PeerIdentity& peer, const InferMessage& message) {
    if (!state_->open) return {stopping()};
    const inference::ModelInferRequest& request = message.request;
    access::Gate& gate = *state_->options.gate;
    const bool guarded = gate.guards_inference();
    if (guarded) {
      if (access::Access announced = gate.announce(peer, request.model_name());
          !announced.status.ok())
        return announced;
    }
    auto model = find_model(state_->host, request.model_name(), request.model_version());
    if (!model.ok()) return {model.status()};
    Result<kserve::InferCall> call = read_infer(message, *model.value(), state_->regions);
    if (!call.ok()) return {call.status()};
    if (guarded) {
      access::Access entered = gate.enter(peer, model.value()->name, call.value().requests.size());
      if (!entered.status.ok()) return entered;
      permit_ = std::move(entered.permit);
    }
    call_ = std::move(call).value();
    model_ = std::move(model).value();
    id_ = state_->host.infer(std::exchange(call_.requests, {}),
                             [self = shared_from_this()](const std::vector<InferReply>& replies) {
                               self->on_done(replies);
                             });
    return {};
  }

  void on_done(const std::vector<InferReply>& replies) {
    InferAnswer answer;
    const Status written = write_infer(call_, *model_, replies, state_->regions, answer);
    finish(written, {}, std::move(answer));
  }
  void finish(const Status& status, Duration retry_after, InferAnswer answer) {
    permit_.reset();
    if (const OnDone done = std::exchange(done_, nullptr))
      done(status, retry_after, std::move(answer));
  }

  ServerStatePointer state_;
  OnDone done_;
  kserve::InferCall call_;
  std::shared_ptr<const kserve::Model> model_;  // when the call arrived
  access::Permit permit_;
  ClientId id_;
};

// Parses a request. Not on the executor thread, which would delay other calls.
Result<InferMessage> read_message(const ServerState& state, const Bytes& message) {
  return parse_infer(message, 2 * *state.max_message_bytes);
}

class UnaryInfer final : public CallHandler, public std::enable_shared_from_this<UnaryInfer> {
 public:
  UnaryInfer(ServerStatePointer state, CallHead head, ResponderPointer responder)
      : state_(std::move(state)), head_(std::move(head)), responder_(std::move(responder)) {}

  void on_message(Bytes message) override { message_ = std::move(message); }

  void on_end() override {
    Result<InferMessage> read = read_message(*state_, std::exchange(message_, Bytes()));
    if (!read.ok()) return responder_->finish(end_of(read.status()));
    Authorization caller = authorize(
        state_, head_, {access::Right::inference, "infer", read.value().request.model_name()});
    if (!caller.status.ok()) return responder_->finish(end_of(caller.status));
    if (const Status good = check_limits(read.value()); !good.ok())
      return responder_->finish(end_of(good));
    asio::post(state_->executor, [self = shared_from_this(), peer = std::move(caller.peer),
                                  message = std::move(read).value()]() mutable {
      if (!self->cancelled_) self->begin(peer, message);
    });
  }

  void on_cancel(const Status& /*why*/) override {
    asio::post(state_->executor, [self = shared_from_this()] {
      self->cancelled_ = true;
      if (self->inference_) self->inference_->cancel();
    });
  }

 private:
  // Executor thread.
  void begin(access::PeerIdentity& peer, const InferMessage& message) {
    inference_ = Inference::begin(
        state_, peer, message,
        [responder = responder_](const Status& status, Duration retry_after, InferAnswer answer) {
          if (status.ok()) return responder->answer(wire_of(answer));
          CallEnd end = end_of(status);
          // Client libraries wait this long before they retry.
          if (status.code() == StatusCode::limited) end.retry_after = retry_after;
          responder->finish(std::move(end));
        });
  }

  const ServerStatePointer state_;
  const CallHead head_;
  const ResponderPointer responder_;
  Bytes message_;
  // Executor thread.
  std::shared_ptr<Inference> inference_;
  bool cancelled_ = false;
};

// Every request has a single response, marked as final for clients that wait for the last one.
WireMessage response_of(const std::string& id, const Status& status, InferAnswer answer) {
  if (!status.ok()) answer.response.set_id(id);
  (*answer.response.mutable_parameters())["triton_final_response"].set_bool_param(true);
  return wire_of(answer, status.message());
}

class StreamInfer final : public CallHandler,
                          public OpenStream,
                          public std::enable_shared_from_this<StreamInfer> {
 public:
  StreamInfer(ServerStatePointer state, access::PeerIdentity peer, ResponderPointer responder)
      : state_(std::move(state)), responder_(std::move(responder)), peer_(std::move(peer)) {}

  void start() {
    asio::post(state_->executor, [self = shared_from_this()] { self->remember(); });
  }

  void on_message(Bytes message) override {
    Result<InferMessage> read = read_message(*state_, message);
    const std::lock_guard lock(mutex_);
    if (finished_) return;
    const std::uint64_t number = first_ + calls_.size();
    calls_.emplace_back();
    const Status good = read.ok() ? check_limits(read.value()) : read.status();
    if (!good.ok()) {
      // The id itself may be too long.
      const bool has_id = read.ok() && kserve::check_id(read.value().request.id()).ok();
      return store(number, response_of(has_id ? read.value().request.id() : "", good, {}));
    }
    asio::post(state_->executor,
               [self = shared_from_this(), number, request = std::move(read).value()] {
                 self->start_one(number, request);
               });
  }

  bool takes_messages() override {
    const std::lock_guard lock(mutex_);
    return calls_.size() < state_->options.max_calls_of_stream;
  }

  void on_end() override {
    const std::lock_guard lock(mutex_);
    no_more_ = true;
    finish_if_over();
  }

  void on_sent() override {
    const std::lock_guard lock(mutex_);
    if (finished_) return;
    calls_.pop_front();
    ++first_;
    sending_ = false;
    send_next();
    finish_if_over();
  }

  void on_cancel(const Status& /*why*/) override {
    asio::post(state_->executor, [self = shared_from_this()] { self->cancel_all(); });
    const std::lock_guard lock(mutex_);
    finished_ = true;
  }

  void tokens_changed() override {
    if (cancelled_ || !state_->options.gate->revoked(peer_)) return;
    cancel_all();
    const std::lock_guard lock(mutex_);
    if (!std::exchange(finished_, true))
      responder_->finish(end_of({StatusCode::unauthenticated, "the token was revoked"}));
  }

 private:
  // ---- executor thread

  // Forgets ended streams before the list grows.
  void remember() {
    std::vector<std::weak_ptr<OpenStream>>& streams = state_->streams;
    if (streams.size() == streams.capacity())
      std::erase_if(streams, [](const auto& stream) { return stream.expired(); });
    streams.push_back(weak_from_this());
  }

  void cancel_all() {
    cancelled_ = true;
    for (const auto& [number, inference] : inferences_) inference->cancel();
    inferences_.clear();
  }

  void start_one(std::uint64_t number, const InferMessage& message) {
    if (cancelled_) return;
    auto inference =
        Inference::begin(state_, peer_, message,
                         [caller = weak_from_this(), number, id = message.request.id()](
                             const Status& status, Duration /*retry_after*/, InferAnswer answer) {
                           const auto self = caller.lock();
                           if (!self) return;
                           self->inferences_.erase(number);
                           self->on_done(number, response_of(id, status, std::move(answer)));
                         });
    if (inference->in_progress()) inferences_.emplace(number, std::move(inference));
  }

  // ---- any thread

  void on_done(std::uint64_t number, WireMessage answer) {
    const std::lock_guard lock(mutex_);
    if (!finished_) store(number, std::move(answer));
  }

  // ---- REQUIRES: mutex_ is held

  // Stores a response until all earlier ones are sent.
  void store(std::uint64_t number, WireMessage answer) {
    calls_[number - first_] = std::move(answer);
    send_next();
  }

  void send_next() {
    if (sending_ || calls_.empty() || !calls_.front()) return;
    sending_ = true;
    responder_->send(std::move(*calls_.front()));
  }

  void finish_if_over() {
    if (!no_more_ || finished_ || !calls_.empty()) return;
    finished_ = true;
    responder_->finish({});
  }

  const ServerStatePointer state_;
  const ResponderPointer responder_;
  // Executor thread.
  access::PeerIdentity peer_;
  std::map<std::uint64_t, std::shared_ptr<Inference>> inferences_;
  bool cancelled_ = false;

  std::mutex mutex_;  // the connection's thread reads and writes, the executor completes calls
  std::deque<std::optional<WireMessage>> calls_;  // by request; empty: in progress
  std::uint64_t first_ = 0;                       // the number of calls_.front()
  bool sending_ = false;                          // calls_.front()
  bool no_more_ = false;
  bool finished_ = false;
};

}  // namespace

CallHandlerPointer start_infer(const ServerStatePointer& state, const CallHead& head,
                               const ResponderPointer& responder) {
  const Authorization caller = authorize(state, head, {access::Right::inference, "infer"});
  if (caller.status.ok()) return std::make_shared<UnaryInfer>(state, head, responder);
  responder->finish(end_of(caller.status));
  return nullptr;
}

CallHandlerPointer start_stream(const ServerStatePointer& state, const CallHead& head,
                                const ResponderPointer& responder) {
  Authorization caller = authorize(state, head, {access::Right::inference, "infer"});
  if (!caller.status.ok()) {
    responder->finish(end_of(caller.status));
    return nullptr;
  }
  auto stream = std::make_shared<StreamInfer>(state, std::move(caller.peer), responder);
  stream->start();
  return stream;
}

}  // namespace gpulet::net::grpc_api
