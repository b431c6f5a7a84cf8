#include "net/grpc/server_state.h"

#include "gpulet/net/kserve/http_api.h"

namespace gpulet::net::grpc_api {
namespace {

GrpcCode code_of(StatusCode code) {
  switch (code) {
    case StatusCode::ok:
      return GrpcCode::ok;
    case StatusCode::invalid:
    case StatusCode::malformed:
      return GrpcCode::invalid_argument;
    case StatusCode::not_found:
      return GrpcCode::not_found;
    case StatusCode::unavailable:
      return GrpcCode::unavailable;
    case StatusCode::overloaded:
    case StatusCode::limited:
      return GrpcCode::resource_exhausted;
    case StatusCode::too_late:
    case StatusCode::timeout:
      return GrpcCode::deadline_exceeded;
    case StatusCode::cancelled:
      return GrpcCode::cancelled;
    case StatusCode::unauthenticated:
      return GrpcCode::unauthenticated;
    case StatusCode::forbidden:
      return GrpcCode::permission_denied;
    case StatusCode::internal:
      break;
  }
  return GrpcCode::internal;
}

}  // namespace

CallEnd end_of(const Status& status) {
  if (status.ok()) return {};
  return {code_of(status.code()),
          status.message().empty() ? std::string(to_string(status.code())) : status.message()};
}

Status stopping() { return {StatusCode::unavailable, "the server is stopping"}; }

Result<std::shared_ptr<const kserve::Model>> find_model(kserve::ProtocolHost& host,
                                                        const std::string& name,
                                                        const std::string& version) {
  std::shared_ptr<const kserve::Model> model = host.model(name);
  const kserve::Route route{.model = name, .version = version, .region = {}};
  if (const Status there = kserve::check_model(model.get(), route); !there.ok()) return there;
  return model;
}

Authorization authorize(const ServerStatePointer& state, const CallHead& head,
                        const access::CallNeeds& needs) {
  const std::shared_ptr<const access::Tokens> tokens = state->options.gate->tokens();
  const bool guarded = tokens->guard_any();
  Authorization authorization;
  authorization.peer.protocol = "grpc";
  if (guarded || needs.right == access::Right::admin || state->options.gate->limits_addresses())
    authorization.peer.address = head.address;
  if (!guarded) return authorization;
  if (!head.authorization.empty()) tokens->identify(head.authorization, authorization.peer);
  authorization.status = tokens->check(needs.right, authorization.peer, needs.model);
  if (authorization.status.ok()) return authorization;
  asio::post(state->executor, [state, needs, refused = authorization] {
    if (state->open) state->options.gate->refuse(needs, refused.peer, refused.status);
  });
  return authorization;
}

void report_to_audit(const ServerStatePointer& state, OnStatus audit, const Status& why) {
  asio::post(state->executor, [state, audit = std::move(audit), why] {
    if (state->open) audit(why);
  });
}

OnStatus audited(const ServerStatePointer& state, access::CallNeeds needs,
                 access::PeerIdentity peer) {
  return [state, needs = std::move(needs), peer = std::move(peer)](const Status& result) {
    state->options.gate->called(needs, peer, result);
  };
}

}  // namespace gpulet::net::grpc_api
