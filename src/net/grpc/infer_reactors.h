// The two forms of calling for inferences: one request and its answer, and streams of them.
// gRPC holds a reactor from its creation to OnDone, and calls it on its own threads.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <memory>
#include <utility>

#include "kserve.pb.h"
#include "site.h"

namespace gpulet::net::grpc_api {

// A limited call ends with the trailing metadatum grpc-retry-pushback-ms.
[[nodiscard]] ::grpc::ServerUnaryReactor* start_infer(const SitePointer& site, PeerIdentity peer,
                                                      ::grpc::CallbackServerContext& context,
                                                      inference::ModelInferRequest&& request,
                                                      inference::ModelInferResponse& response);

// Answers in the order of the requests, failures included; each answer says that it is the only one
// to its request (`triton_final_response`). Takes no more requests while as many as
// `max_calls_of_stream` are under way or have answers that wait to be sent. Ends at once with `may`
// where that failed.
[[nodiscard]] ::grpc::ServerBidiReactor<inference::ModelInferRequest,
                                        inference::ModelStreamInferResponse>*
start_stream(const SitePointer& site, PeerIdentity peer, const Status& may);

// A stream that ends at once.
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

}  // namespace gpulet::net::grpc_api
