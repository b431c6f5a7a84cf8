// What the calls of a GrpcServer share, and the failures that they have in common.
#pragma once

#include <grpcpp/support/status.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/core/status.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/grpc/server.h"
#include "gpulet/net/kserve/host.h"
#include "gpulet/net/kserve/shared_memory.h"

namespace gpulet::net::grpc_api {

// A stream under way, asked on the executor's thread alone.
class OpenStream {
 public:
  virtual void tokens_changed() = 0;
  virtual ~OpenStream() = default;
};

// All but the executor and the options is touched on the executor's thread alone. Calls may outlive
// the server by what the io_context still holds of them: `open` says whether host and regions are
// still there.
struct Site {
  asio::io_context::executor_type executor;
  const GrpcServerOptions options;
  kserve::ProtocolHost& host;
  kserve::SharedMemory& regions;
  bool open = true;
  std::vector<std::weak_ptr<OpenStream>> streams{};
};
using SitePointer = std::shared_ptr<Site>;

// A failure always has a text.
[[nodiscard]] ::grpc::Status grpc_status(const Status& status);
[[nodiscard]] Status stopping();
[[nodiscard]] Status cancelled();
// The address in "ipv4:127.0.0.1:55000" or "ipv6:%5B::1%5D:55000"; empty where it is another form.
[[nodiscard]] std::string address_of_peer(std::string_view peer);

// Fails with not_found where there is no such model, or not in that version; empty: any.
[[nodiscard]] Result<std::shared_ptr<const kserve::Model>> find_model(kserve::ProtocolHost& host,
                                                                      const std::string& name,
                                                                      const std::string& version);

}  // namespace gpulet::net::grpc_api
