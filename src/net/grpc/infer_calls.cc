#include <grpcpp/server_context.h>

#include <atomic>
#include <chrono>
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

using Context = ::grpc::CallbackServerContext;

// One inference in progress, of a unary call or a stream. Executor thread only.
class Inference : public std::enable_shared_from_this<Inference> {
 public:
  // `retry_after`: set for a limited call.
  using OnDone =
      std::function<void(const Status&, Duration retry_after, inference::ModelInferResponse)>;

  // Checks the peer's right and limits. Calls `done` once, maybe from within; not after cancel().
  [[nodiscard]] static std::shared_ptr<Inference> begin(const ServerStatePointer& state,
                                                        PeerIdentity& peer,
                                                        inference::ModelInferRequest request,
                                                        OnDone done) {
    std::shared_ptr<Inference> one(new Inference(state, std::move(done)));
    const Admission admitted = one->start(peer, std::move(request));
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

  [[nodiscard]] Admission start(PeerIdentity& peer, inference::ModelInferRequest&& request) {
    if (!state_->open) return {stopping()};
    Gate& gate = *state_->options.gate;
    const bool guarded = gate.guards_inference();
    if (guarded) {
      if (Admission announced = gate.announce(peer, request.model_name()); !announced.status.ok())
        return announced;
    }
    auto model = find_model(state_->host, request.model_name(), request.model_version());
    if (!model.ok()) return {model.status()};
    Result<kserve::InferCall> call =
        read_infer(std::move(request), *model.value(), state_->regions);
    if (!call.ok()) return {call.status()};
    if (guarded) {
      Admission entered = gate.enter(peer, model.value()->name, call.value().requests.size());
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
    inference::ModelInferResponse response;
    const Status written = write_infer(call_, *model_, replies, state_->regions, response);
    finish(written, {}, std::move(response));
  }
  void finish(const Status& status, Duration retry_after, inference::ModelInferResponse response) {
    permit_.reset();
    if (const OnDone done = std::exchange(done_, nullptr))
      done(status, retry_after, std::move(response));
  }

  ServerStatePointer state_;
  OnDone done_;
  kserve::InferCall call_;
  std::shared_ptr<const kserve::Model> model_;  // when the call arrived
  Permit permit_;
  ClientId id_;
};

// Client libraries wait this long before they retry.
void push_back(Context& context, Duration after) {
  const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(after).count();
  context.AddTrailingMetadata("grpc-retry-pushback-ms", std::to_string(milliseconds));
}

class InferReactor final : public ::grpc::ServerUnaryReactor {
 public:
  InferReactor(ServerStatePointer state, PeerIdentity peer, Context& context,
               inference::ModelInferResponse& response)
      : state_(std::move(state)), peer_(std::move(peer)), context_(context), response_(response) {}

  static ::grpc::ServerUnaryReactor* start(const ServerStatePointer& state, PeerIdentity peer,
                                           Context& context, inference::ModelInferRequest&& request,
                                           inference::ModelInferResponse& response) {
    auto reactor = std::make_shared<InferReactor>(state, std::move(peer), context, response);
    reactor->self_ = reactor;
    // Not on the executor thread, which would delay other calls.
    if (const Status good = check_limits(request); !good.ok()) {
      reactor->finished_ = true;
      reactor->Finish(grpc_status(good));
      return reactor.get();
    }
    asio::post(state->executor, [reactor, request = std::move(request)]() mutable {
      if (reactor->finished_) return;
      // A weak reference: a server that is destroyed with calls in flight drops both.
      reactor->inference_ = Inference::begin(
          reactor->state_, reactor->peer_, std::move(request),
          [caller = std::weak_ptr(reactor)](const Status& status, Duration retry_after,
                                            inference::ModelInferResponse result) {
            const auto waiting = caller.lock();
            if (!waiting || waiting->finished_.exchange(true)) return;
            waiting->response_ = std::move(result);
            if (status.code() == StatusCode::limited) push_back(waiting->context_, retry_after);
            waiting->Finish(grpc_status(status));
          });
    });
    return reactor.get();
  }

  // Finishes here: a server that shuts down waits for it on the thread that cancels.
  void OnCancel() override {
    asio::post(state_->executor, [reactor = self_] {
      if (reactor->inference_) reactor->inference_->cancel();
    });
    if (!finished_.exchange(true)) Finish(grpc_status(cancelled()));
  }
  void OnDone() override { const auto last = std::exchange(self_, nullptr); }

 private:
  ServerStatePointer state_;
  PeerIdentity peer_;                        // executor thread
  Context& context_;                         // valid until Finish
  inference::ModelInferResponse& response_;  // valid until Finish
  std::atomic<bool> finished_ = false;       // the thread that sets it calls Finish
  std::shared_ptr<Inference> inference_;     // executor thread
  std::shared_ptr<InferReactor> self_;
};

using StreamResponse = inference::ModelStreamInferResponse;

// Every request has a single response, marked as final for clients that wait for the last one.
StreamResponse response_of(const std::string& id, const Status& status,
                           inference::ModelInferResponse response) {
  StreamResponse answer;
  inference::ModelInferResponse& content = *answer.mutable_infer_response();
  content = std::move(response);
  if (!status.ok()) {
    answer.set_error_message(status.message());
    content.set_id(id);
  }
  (*content.mutable_parameters())["triton_final_response"].set_bool_param(true);
  return answer;
}

class StreamReactor final
    : public ::grpc::ServerBidiReactor<inference::ModelInferRequest, StreamResponse>,
      public OpenStream,
      public std::enable_shared_from_this<StreamReactor> {
 public:
  StreamReactor(ServerStatePointer state, PeerIdentity peer)
      : state_(std::move(state)), peer_(std::move(peer)) {}

  static ::grpc::ServerBidiReactor<inference::ModelInferRequest, StreamResponse>* start(
      const ServerStatePointer& state, PeerIdentity peer) {
    auto reactor = std::make_shared<StreamReactor>(state, std::move(peer));
    reactor->self_ = reactor;
    asio::post(state->executor, [reactor] { reactor->remember(); });
    reactor->StartRead(&reactor->request_);
    return reactor.get();
  }

  void OnReadDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    reading_ = false;
    if (finished_) return;
    if (!ok) {
      no_more_ = true;
      finish_if_over();
      return;
    }
    const std::uint64_t number = first_ + calls_.size();
    calls_.emplace_back();
    if (const Status good = check_limits(request_); !good.ok()) {
      // The id itself may be too long.
      store(number,
            response_of(kserve::check_id(request_.id()).ok() ? request_.id() : "", good, {}));
    } else {
      asio::post(state_->executor,
                 [reactor = self_, number, request = std::move(request_)]() mutable {
                   reactor->start_one(number, std::move(request));
                 });
    }
    read_if_room();
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    if (finished_) return;
    calls_.pop_front();
    ++first_;
    writing_ = false;
    if (!ok) return;  // the client disconnected: OnCancel follows
    write_next();
    read_if_room();
    finish_if_over();
  }

  void OnCancel() override {
    asio::post(state_->executor, [reactor = self_] { reactor->cancel_all(); });
    const std::lock_guard lock(mutex_);
    if (!std::exchange(finished_, true)) Finish(grpc_status(cancelled()));
  }
  void OnDone() override { const auto last = std::exchange(self_, nullptr); }

  void tokens_changed() override {
    if (cancelled_ || !state_->options.gate->revoked(peer_)) return;
    cancel_all();
    const std::lock_guard lock(mutex_);
    if (!std::exchange(finished_, true))
      Finish(grpc_status({StatusCode::unauthenticated, "the token was revoked"}));
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

  void start_one(std::uint64_t number, inference::ModelInferRequest request) {
    if (cancelled_) return;
    const std::string id = request.id();
    auto inference = Inference::begin(
        state_, peer_, std::move(request),
        [caller = weak_from_this(), number, id](const Status& status, Duration /*retry_after*/,
                                                inference::ModelInferResponse response) {
          const auto self = caller.lock();
          if (!self) return;
          self->inferences_.erase(number);
          self->on_done(number, response_of(id, status, std::move(response)));
        });
    if (inference->in_progress()) inferences_.emplace(number, std::move(inference));
  }

  // ---- any thread

  void on_done(std::uint64_t number, StreamResponse answer) {
    const std::lock_guard lock(mutex_);
    if (!finished_) store(number, std::move(answer));
  }

  // ---- REQUIRES: mutex_ is held

  // Stores a response until all earlier ones are sent.
  void store(std::uint64_t number, StreamResponse answer) {
    calls_[number - first_] = std::move(answer);
    write_next();
  }

  void write_next() {
    if (writing_ || calls_.empty() || !calls_.front()) return;
    writing_ = true;
    StartWrite(&*calls_.front());
  }

  void read_if_room() {
    if (reading_ || no_more_ || calls_.size() >= state_->options.max_calls_of_stream) return;
    reading_ = true;
    StartRead(&request_);
  }

  void finish_if_over() {
    if (!no_more_ || !calls_.empty()) return;
    finished_ = true;
    Finish(::grpc::Status::OK);
  }

  ServerStatePointer state_;
  // Executor thread.
  PeerIdentity peer_;
  std::map<std::uint64_t, std::shared_ptr<Inference>> inferences_;
  bool cancelled_ = false;

  std::mutex mutex_;  // gRPC threads read and write, the executor thread completes calls
  inference::ModelInferRequest request_;
  std::deque<std::optional<StreamResponse>> calls_;  // by request; empty: in progress
  std::uint64_t first_ = 0;                          // the number of calls_.front()
  bool reading_ = true;
  bool writing_ = false;  // calls_.front()
  bool no_more_ = false;
  bool finished_ = false;
  std::shared_ptr<StreamReactor> self_;
};

}  // namespace

::grpc::ServerUnaryReactor* start_infer(const ServerStatePointer& state, PeerIdentity peer,
                                        ::grpc::CallbackServerContext& context,
                                        inference::ModelInferRequest&& request,
                                        inference::ModelInferResponse& response) {
  return InferReactor::start(state, std::move(peer), context, std::move(request), response);
}

::grpc::ServerBidiReactor<inference::ModelInferRequest, StreamResponse>* start_stream(
    const ServerStatePointer& state, PeerIdentity peer, const Status& authorized) {
  if (!authorized.ok())
    return RefusedStream<inference::ModelInferRequest, StreamResponse>::start(
        grpc_status(authorized));
  return StreamReactor::start(state, std::move(peer));
}

}  // namespace gpulet::net::grpc_api
