// Inferences between the protocol's gRPC messages and values. Pure; any thread.
#pragma once

#include <span>

#include "gpulet/core/status.h"
#include "gpulet/net/kserve/infer_call.h"
#include "gpulet/net/kserve/model.h"
#include "gpulet/net/kserve/shared_memory.h"
#include "kserve.pb.h"

namespace gpulet::net::grpc_api {

// Whether its lists are so short that going through them takes no time, and its id so short that it
// may come back. Fails with invalid.
[[nodiscard]] Status check_limits(const inference::ModelInferRequest& request);

// Fails (invalid) in the same words as the HTTP form. `request` gives its raw tensors away.
[[nodiscard]] Result<kserve::InferCall> read_infer(inference::ModelInferRequest request,
                                                   const kserve::Model& model,
                                                   const kserve::SharedMemory& regions);

// Fails with the first row's failure. Outputs that belong into shared memory are written there.
[[nodiscard]] Status write_infer(const kserve::InferCall& call, const kserve::Model& model,
                                 std::span<const serve::InferReply> replies,
                                 kserve::SharedMemory& regions,
                                 inference::ModelInferResponse& response);

}  // namespace gpulet::net::grpc_api
