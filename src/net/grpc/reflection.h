// Server reflection (proto/reflection_v1alpha.proto): clients such as grpcurl learn of services and
// messages from the server itself. It tells of what this server serves, to whoever may infer.
//
// gRPC's own plugin is a synchronous service: it adds threads that would serve a part of the
// connections, knows no tokens and bounds no streams.
#pragma once

#include <memory>

#include "lasting_calls.h"
#include "reflection_v1.grpc.pb.h"
#include "reflection_v1alpha.grpc.pb.h"
#include "site.h"

namespace gpulet::net::grpc_api {

// The calls of both names of the service. Any thread.
class Reflection {
 public:
  using Request = ::grpc::reflection::v1alpha::ServerReflectionRequest;
  using Response = ::grpc::reflection::v1alpha::ServerReflectionResponse;
  using Reactor = ::grpc::ServerBidiReactor<Request, Response>;

  explicit Reflection(SitePointer site);

  [[nodiscard]] Reactor* start(::grpc::CallbackServerContext& context);
  // Ends the calls under way, and takes no others.
  void drain() { calls_.drain(); }

 private:
  static constexpr std::size_t kMostCalls = 64;

  SitePointer site_;
  LastingCalls calls_{kMostCalls};
};

// `Service` is the CallbackService of one of the two names. The reflection outlives it.
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
