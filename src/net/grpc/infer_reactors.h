// The two forms of calling for inferences: one request and its answer, and streams of them.
// gRPC holds a reactor from its creation to OnDone, and calls it on its own threads.
#pragma once

#include <grpcpp/support/server_callback.h>

#include "kserve.pb.h"
#include "site.h"

namespace gpulet::net::grpc_api {

// A limited call ends with the trailing metadatum grpc-retry-pushback-ms.
[[nodiscard]] ::grpc::ServerUnaryReactor* start_infer(const SitePointer& site, PeerIdentity peer,
                                                      ::grpc::CallbackServerContext& context,
                                                      const inference::ModelInferRequest& request,
                                                      inference::ModelInferResponse& response);

// Ends at once with `may` where that failed.
[[nodiscard]] ::grpc::ServerBidiReactor<inference::ModelInferRequest,
                                        inference::ModelStreamInferResponse>*
start_stream(const SitePointer& site, PeerIdentity peer, const Status& may);

}  // namespace gpulet::net::grpc_api
