// Whether whoever makes a call may, and what the audit log is told of it.
#pragma once

#include <grpcpp/server_context.h>

#include "gpulet/net/gate.h"
#include "host_reactor.h"
#include "site.h"

namespace gpulet::net::grpc_api {

struct Permission {
  Status may;
  PeerIdentity peer{};
};
// A refusal is told to the gate. Any thread.
[[nodiscard]] Permission permission(const SitePointer& site,
                                    const ::grpc::CallbackServerContext& context,
                                    const CallNeeds& needs);

// Tells the audit log what an administrative call was answered.
[[nodiscard]] OnAnswered audited(const SitePointer& site, CallNeeds needs, PeerIdentity peer);

}  // namespace gpulet::net::grpc_api
