#include "net/grpc/server_state.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "gpulet/net/kserve/http_api.h"

namespace gpulet::net::grpc_api {
namespace {

constexpr std::size_t kScheme = 5;  // "ipv4:"

::grpc::StatusCode code_of(StatusCode code) {
  switch (code) {
    case StatusCode::ok:
      return ::grpc::StatusCode::OK;
    case StatusCode::invalid:
    case StatusCode::malformed:
      return ::grpc::StatusCode::INVALID_ARGUMENT;
    case StatusCode::not_found:
      return ::grpc::StatusCode::NOT_FOUND;
    case StatusCode::unavailable:
      return ::grpc::StatusCode::UNAVAILABLE;
    case StatusCode::overloaded:
    case StatusCode::limited:
      return ::grpc::StatusCode::RESOURCE_EXHAUSTED;
    case StatusCode::too_late:
    case StatusCode::timeout:
      return ::grpc::StatusCode::DEADLINE_EXCEEDED;
    case StatusCode::cancelled:
      return ::grpc::StatusCode::CANCELLED;
    case StatusCode::unauthenticated:
      return ::grpc::StatusCode::UNAUTHENTICATED;
    case StatusCode::forbidden:
      return ::grpc::StatusCode::PERMISSION_DENIED;
    case StatusCode::internal:
      break;
  }
  return ::grpc::StatusCode::INTERNAL;
}

// The address in "ipv4:127.0.0.1:55000" or "ipv6:%5B::1%5D:55000"; empty for other forms.
std::string address_of_peer(std::string_view peer) {
  const std::size_t port = peer.rfind(':');
  if (port == std::string_view::npos || port < kScheme) return {};
  std::string_view address = peer.substr(kScheme, port - kScheme);
  if (peer.starts_with("ipv4:")) return std::string(address);
  if (!peer.starts_with("ipv6:")) return {};
  for (const std::string_view opening : {"%5B", "["}) {
    if (address.starts_with(opening)) address.remove_prefix(opening.size());
  }
  for (const std::string_view closing : {"%5D", "]"}) {
    if (address.ends_with(closing)) address.remove_suffix(closing.size());
  }
  constexpr std::string_view kMapped = "::ffff:";  // an IPv4 address on a dual-stack socket
  if (address.starts_with(kMapped) && address.find('.') != std::string_view::npos)
    address.remove_prefix(kMapped.size());
  return std::string(address);
}

}  // namespace

::grpc::Status grpc_status(const Status& status) {
  if (status.ok()) return ::grpc::Status::OK;
  return {code_of(status.code()),
          status.message().empty() ? std::string(to_string(status.code())) : status.message()};
}

Status stopping() { return {StatusCode::unavailable, "the server is stopping"}; }
Status cancelled() { return {StatusCode::cancelled, "the call was cancelled"}; }
Status too_long(std::size_t bytes, std::size_t most) {
  return {StatusCode::overloaded,
          fmt::format("the request of {} bytes exceeds the limit of {}", bytes, most)};
}

Result<std::shared_ptr<const kserve::Model>> find_model(kserve::ProtocolHost& host,
                                                        const std::string& name,
                                                        const std::string& version) {
  std::shared_ptr<const kserve::Model> model = host.model(name);
  const kserve::Route route{.model = name, .version = version, .region = {}};
  if (const Status there = kserve::check_model(model.get(), route); !there.ok()) return there;
  return model;
}

Authorization authorize(const ServerStatePointer& state,
                        const ::grpc::CallbackServerContext& context, const CallNeeds& needs) {
  const std::shared_ptr<const Tokens> tokens = state->options.gate->tokens();
  const bool guarded = tokens->guard_any();
  Authorization authorization;
  authorization.peer.protocol = "grpc";
  if (guarded || needs.right == Right::admin || state->options.gate->limits_addresses())
    authorization.peer.address = address_of_peer(context.peer());
  if (!guarded) return authorization;
  const auto found = context.client_metadata().find("authorization");
  if (found != context.client_metadata().end())
    tokens->identify({found->second.data(), found->second.size()}, authorization.peer);
  authorization.status = tokens->check(needs.right, authorization.peer, needs.model);
  if (authorization.status.ok()) return authorization;
  asio::post(state->executor, [state, needs, refused = authorization] {
    if (state->open) state->options.gate->refuse(needs, refused.peer, refused.status);
  });
  return authorization;
}

OnStatus audited(const ServerStatePointer& state, CallNeeds needs, PeerIdentity peer) {
  return [state, needs = std::move(needs), peer = std::move(peer)](const Status& result) {
    state->options.gate->called(needs, peer, result);
  };
}

}  // namespace gpulet::net::grpc_api
