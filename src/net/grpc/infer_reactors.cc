#include "infer_reactors.h"

#include <grpcpp/server_context.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "inference.h"

namespace gpulet::net::grpc_api {
namespace {

using Context = ::grpc::CallbackServerContext;

// Clients' libraries wait for so long before they try again.
void push_back(Context& context, Duration after) {
  const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(after).count();
  context.AddTrailingMetadata("grpc-retry-pushback-ms", std::to_string(milliseconds));
}

class InferReactor final : public ::grpc::ServerUnaryReactor {
 public:
  InferReactor(SitePointer site, PeerIdentity peer, Context& context,
               inference::ModelInferResponse& response)
      : site_(std::move(site)), peer_(std::move(peer)), context_(context), response_(response) {}

  static ::grpc::ServerUnaryReactor* start(const SitePointer& site, PeerIdentity peer,
                                           Context& context, inference::ModelInferRequest&& request,
                                           inference::ModelInferResponse& response) {
    auto reactor = std::make_shared<InferReactor>(site, std::move(peer), context, response);
    reactor->self_ = reactor;
    // Here and not on the executor's thread, which others wait for.
    if (const Status good = check_limits(request); !good.ok()) {
      reactor->finished_ = true;
      reactor->Finish(grpc_status(good));
      return reactor.get();
    }
    asio::post(site->executor, [reactor, asked = std::move(request)]() mutable {
      if (reactor->finished_) return;
      // The inference does not keep its asker: a server that ends with calls under way drops both.
      reactor->inference_ = Inference::begin(
          reactor->site_, reactor->peer_, std::move(asked),
          [asker = std::weak_ptr(reactor)](const Status& status, Duration retry_after,
                                           inference::ModelInferResponse answer) {
            const auto waiting = asker.lock();
            if (!waiting || waiting->finished_.exchange(true)) return;
            waiting->response_ = std::move(answer);
            if (status.code() == StatusCode::limited) push_back(waiting->context_, retry_after);
            waiting->Finish(grpc_status(status));
          });
    });
    return reactor.get();
  }

  // Answered here and not where the inference is cancelled: a server that shuts down waits for it,
  // on the very thread that cancels.
  void OnCancel() override {
    asio::post(site_->executor, [reactor = self_] {
      if (reactor->inference_) reactor->inference_->cancel();
    });
    if (!finished_.exchange(true)) Finish(grpc_status(cancelled()));
  }
  void OnDone() override { const auto last = std::exchange(self_, nullptr); }

 private:
  SitePointer site_;
  PeerIdentity peer_;                        // the executor's thread's
  Context& context_;                         // gRPC's, there until Finish
  inference::ModelInferResponse& response_;  // the same
  std::atomic<bool> finished_ = false;       // whoever sets it answers
  std::shared_ptr<Inference> inference_;     // the executor's thread's
  std::shared_ptr<InferReactor> self_;
};

using Answer = inference::ModelStreamInferResponse;

// A model answers each request once: clients that wait for the last answer have it.
Answer answer_of(const std::string& id, const Status& status,
                 inference::ModelInferResponse response) {
  Answer answer;
  inference::ModelInferResponse& content = *answer.mutable_infer_response();
  content = std::move(response);
  if (!status.ok()) {
    answer.set_error_message(status.message());
    content.set_id(id);
  }
  (*content.mutable_parameters())["triton_final_response"].set_bool_param(true);
  return answer;
}

class StreamReactor final : public ::grpc::ServerBidiReactor<inference::ModelInferRequest, Answer>,
                            public OpenStream,
                            public std::enable_shared_from_this<StreamReactor> {
 public:
  StreamReactor(SitePointer site, PeerIdentity peer)
      : site_(std::move(site)), peer_(std::move(peer)) {}

  static ::grpc::ServerBidiReactor<inference::ModelInferRequest, Answer>* start(
      const SitePointer& site, PeerIdentity peer) {
    auto reactor = std::make_shared<StreamReactor>(site, std::move(peer));
    reactor->self_ = reactor;
    asio::post(site->executor, [reactor] { reactor->remember(); });
    reactor->StartRead(&reactor->asked_);
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
    if (const Status good = check_limits(asked_); !good.ok()) {
      // The id may be what is too long.
      keep(number, answer_of(kserve::check_id(asked_.id()).ok() ? asked_.id() : "", good, {}));
    } else {
      asio::post(site_->executor, [reactor = self_, number, asked = std::move(asked_)]() mutable {
        reactor->ask(number, std::move(asked));
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
    if (!ok) return;  // the client is gone: OnCancel follows
    write_next();
    read_if_room();
    finish_if_over();
  }

  void OnCancel() override {
    asio::post(site_->executor, [reactor = self_] { reactor->cancel_all(); });
    const std::lock_guard lock(mutex_);
    if (!std::exchange(finished_, true)) Finish(grpc_status(cancelled()));
  }
  void OnDone() override { const auto last = std::exchange(self_, nullptr); }

  void tokens_changed() override {
    if (cancelled_ || !site_->options.gate->revoked(peer_)) return;
    cancel_all();
    const std::lock_guard lock(mutex_);
    if (!std::exchange(finished_, true))
      Finish(grpc_status({StatusCode::unauthenticated, "the token was revoked"}));
  }

 private:
  // ---- the executor's thread

  // Streams that have ended are forgotten now and then, so that a bounded number is kept.
  void remember() {
    std::vector<std::weak_ptr<OpenStream>>& streams = site_->streams;
    if (streams.size() == streams.capacity())
      std::erase_if(streams, [](const auto& stream) { return stream.expired(); });
    streams.push_back(weak_from_this());
  }

  void cancel_all() {
    cancelled_ = true;
    for (const auto& [number, inference] : inferences_) inference->cancel();
    inferences_.clear();
  }

  void ask(std::uint64_t number, inference::ModelInferRequest request) {
    if (cancelled_) return;
    const std::string id = request.id();
    auto inference = Inference::begin(
        site_, peer_, std::move(request),
        [asker = weak_from_this(), number, id](const Status& status, Duration /*retry_after*/,
                                               inference::ModelInferResponse response) {
          const auto self = asker.lock();
          if (!self) return;
          self->inferences_.erase(number);
          self->answered(number, answer_of(id, status, std::move(response)));
        });
    if (inference->under_way()) inferences_.emplace(number, std::move(inference));
  }

  // ---- any thread

  void answered(std::uint64_t number, Answer answer) {
    const std::lock_guard lock(mutex_);
    if (!finished_) keep(number, std::move(answer));
  }

  // ---- with the lock held

  // Until all calls before it are answered.
  void keep(std::uint64_t number, Answer answer) {
    calls_[number - first_] = std::move(answer);
    write_next();
  }

  void write_next() {
    if (writing_ || calls_.empty() || !calls_.front()) return;
    writing_ = true;
    StartWrite(&*calls_.front());
  }

  void read_if_room() {
    if (reading_ || no_more_ || calls_.size() >= site_->options.max_calls_of_stream) return;
    reading_ = true;
    StartRead(&asked_);
  }

  void finish_if_over() {
    if (!no_more_ || !calls_.empty()) return;
    finished_ = true;
    Finish(::grpc::Status::OK);
  }

  SitePointer site_;
  // The executor's thread's.
  PeerIdentity peer_;
  std::map<std::uint64_t, std::shared_ptr<Inference>> inferences_;
  bool cancelled_ = false;

  std::mutex mutex_;  // gRPC's threads read and write, the executor's answers
  inference::ModelInferRequest asked_;
  std::deque<std::optional<Answer>> calls_;  // in the order of the requests; null: under way
  std::uint64_t first_ = 0;                  // the number of calls_.front()
  bool reading_ = true;
  bool writing_ = false;  // calls_.front()
  bool no_more_ = false;
  bool finished_ = false;
  std::shared_ptr<StreamReactor> self_;
};

}  // namespace

::grpc::ServerUnaryReactor* start_infer(const SitePointer& site, PeerIdentity peer,
                                        ::grpc::CallbackServerContext& context,
                                        inference::ModelInferRequest&& request,
                                        inference::ModelInferResponse& response) {
  return InferReactor::start(site, std::move(peer), context, std::move(request), response);
}

::grpc::ServerBidiReactor<inference::ModelInferRequest, Answer>* start_stream(
    const SitePointer& site, PeerIdentity peer, const Status& may) {
  if (!may.ok())
    return RefusedStream<inference::ModelInferRequest, Answer>::start(grpc_status(may));
  return StreamReactor::start(site, std::move(peer));
}

}  // namespace gpulet::net::grpc_api
