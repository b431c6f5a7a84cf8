// The services of a GrpcServer: inference (proto/kserve.proto), health (proto/health.proto),
// reflection (proto/reflection_v1alpha.proto), and unknown methods. gRPC calls them on its own
// threads. Private to net/grpc.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "health.grpc.pb.h"
#include "kserve.grpc.pb.h"
#include "net/grpc/server_state.h"
#include "reflection_v1.grpc.pb.h"
#include "reflection_v1alpha.grpc.pb.h"

namespace gpulet::net::grpc_api {

// ---- inference

[[nodiscard]] std::unique_ptr<::grpc::Service> make_inference_service(ServerStatePointer state);

// Starts a unary inference. A limited call has the trailing metadata grpc-retry-pushback-ms.
[[nodiscard]] ::grpc::ServerUnaryReactor* start_infer(const ServerStatePointer& state,
                                                      PeerIdentity peer,
                                                      ::grpc::CallbackServerContext& context,
                                                      inference::ModelInferRequest&& request,
                                                      inference::ModelInferResponse& response);

// Starts a stream of inferences, or ends it with `authorized` if that failed. Responses, also
// failures, follow the order of the requests; each is marked as the only one to its request
// (`triton_final_response`). Reads while fewer than max_calls_of_stream responses are unsent.
[[nodiscard]] ::grpc::ServerBidiReactor<inference::ModelInferRequest,
                                        inference::ModelStreamInferResponse>*
start_stream(const ServerStatePointer& state, PeerIdentity peer, const Status& authorized);

// A stream that ends with a failure.
template <typename Request, typename Response>
class RefusedStream final : public ::grpc::ServerBidiReactor<Request, Response> {
 public:
  static RefusedStream* start(const ::grpc::Status& why) {
    auto reactor = std::make_shared<RefusedStream>();
    reactor->self_ = reactor;
    reactor->Finish(why);
    return reactor.get();
  }
  void OnDone() override { const auto last = std::exchange(self_, nullptr); }

 private:
  std::shared_ptr<RefusedStream> self_;
};

// Fails unknown methods with UNIMPLEMENTED and the method's name.
class UnknownMethods final : public ::grpc::CallbackGenericService {
 public:
  ::grpc::ServerGenericBidiReactor* CreateReactor(
      ::grpc::GenericCallbackServerContext* context) override {
    return RefusedStream<::grpc::ByteBuffer, ::grpc::ByteBuffer>::start(
        {::grpc::StatusCode::UNIMPLEMENTED, "this server has no method " + context->method()});
  }
};

// ---- calls without an end

// A call that lasts until its client ends it, such as a health watch.
class LongCall {
 public:
  // Ends the call after the current write. Any thread.
  virtual void end(const Status& why) = 0;
  virtual ~LongCall() = default;
};

// Limits the number of such calls and ends them when the server drains. Any thread.
class LongCalls {
 public:
  explicit LongCalls(std::size_t most) : most_(most) {}

  // Does not own the call. Fails with overloaded (too many) or unavailable (draining).
  [[nodiscard]] Status add(const std::shared_ptr<LongCall>& call);
  // The calls that have not ended.
  [[nodiscard]] std::vector<std::shared_ptr<LongCall>> calls() const;
  // Ends all calls and accepts no more.
  void drain();

 private:
  const std::size_t most_;
  mutable std::mutex mutex_;
  std::vector<std::weak_ptr<LongCall>> calls_;
  bool draining_ = false;
};

// ---- health

// A watch gets the status at once and after every change, found by polling every kPollInterval.
class HealthService final : public ::grpc::health::v1::Health::CallbackService {
 public:
  static constexpr Duration kPollInterval = std::chrono::milliseconds(250);

  explicit HealthService(ServerStatePointer state);
  ~HealthService() override;

  // Sends NOT_SERVING to all watches and ends them. Executor thread.
  void drain();
  // Ends the watches and accepts no more, because another server replaces this one.
  void end_watches();

 private:
  struct Watches;

  ::grpc::ServerUnaryReactor* Check(::grpc::CallbackServerContext* context,
                                    const ::grpc::health::v1::HealthCheckRequest* request,
                                    ::grpc::health::v1::HealthCheckResponse* response) override;
  ::grpc::ServerWriteReactor<::grpc::health::v1::HealthCheckResponse>* Watch(
      ::grpc::CallbackServerContext* context,
      const ::grpc::health::v1::HealthCheckRequest* request) override;

  ServerStatePointer state_;
  std::shared_ptr<Watches> watches_;
};

// ---- reflection

// Lets clients such as grpcurl list the services and messages of this server. Needs the inference
// right. gRPC's own plugin is a synchronous service: it adds threads, and has no tokens or limits.
// Implements both names of the service. Any thread.
class Reflection {
 public:
  using Request = ::grpc::reflection::v1alpha::ServerReflectionRequest;
  using Response = ::grpc::reflection::v1alpha::ServerReflectionResponse;
  using Reactor = ::grpc::ServerBidiReactor<Request, Response>;

  explicit Reflection(ServerStatePointer state);

  [[nodiscard]] Reactor* start(::grpc::CallbackServerContext& context);
  // Ends all calls and accepts no more.
  void drain() { calls_.drain(); }

 private:
  static constexpr std::size_t kMostCalls = 64;

  ServerStatePointer state_;
  LongCalls calls_{kMostCalls};
};

// `Service`: the CallbackService of one of the two names. REQUIRES: `reflection` outlives it.
template <typename Service>
class ReflectionService final : public Service {
 public:
  explicit ReflectionService(Reflection& reflection) : reflection_(reflection) {}

 private:
  Reflection::Reactor* ServerReflectionInfo(::grpc::CallbackServerContext* context) override {
    return reflection_.start(*context);
  }

  Reflection& reflection_;
};

}  // namespace gpulet::net::grpc_api
