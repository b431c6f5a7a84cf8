// What the calls of a GrpcServer share, and the failures that they have in common.
#pragma once

#include <grpcpp/support/status.h>

#include <memory>
#include <string>

#include "gpulet/core/status.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/grpc/server.h"
#include "gpulet/net/kserve/host.h"
#include "gpulet/net/kserve/shared_memory.h"

namespace gpulet::net::grpc_api {

// All but the executor and the options is touched on the executor's thread alone. Calls may outlive
// the server by what the io_context still holds of them: `open` says whether host and regions are
// still there.
struct Site {
  asio::io_context::executor_type executor;
  const GrpcServerOptions options;
  kserve::ProtocolHost& host;
  kserve::SharedMemory& regions;
  bool open = true;
};
using SitePointer = std::shared_ptr<Site>;

[[nodiscard]] ::grpc::Status grpc_status(const Status& status);
[[nodiscard]] Status stopping();

// Fails with not_found where there is no such model, or not in that version; empty: any.
[[nodiscard]] Result<std::shared_ptr<const kserve::Model>> find_model(kserve::ProtocolHost& host,
                                                                      const std::string& name,
                                                                      const std::string& version);

}  // namespace gpulet::net::grpc_api
