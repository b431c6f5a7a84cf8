#include "permission.h"

#include <memory>
#include <utility>

#include "gpulet/net/tokens.h"

namespace gpulet::net::grpc_api {

Permission permission(const SitePointer& site, const ::grpc::CallbackServerContext& context,
                      const CallNeeds& needs) {
  const std::shared_ptr<const Tokens> tokens = site->options.gate->tokens();
  const bool guarded = tokens->guard_any();
  Permission permission;
  permission.peer.protocol = "grpc";
  if (guarded || needs.right == Right::admin || site->options.gate->limits_addresses())
    permission.peer.address = address_of_peer(context.peer());
  if (!guarded) return permission;
  const auto found = context.client_metadata().find("authorization");
  if (found != context.client_metadata().end())
    tokens->identify({found->second.data(), found->second.size()}, permission.peer);
  permission.may = tokens->check(needs.right, permission.peer, needs.model);
  if (permission.may.ok()) return permission;
  asio::post(site->executor, [site, needs, refused = permission] {
    if (site->open) site->options.gate->refuse(needs, refused.peer, refused.may);
  });
  return permission;
}

OnAnswered audited(const SitePointer& site, CallNeeds needs, PeerIdentity peer) {
  return [site, needs = std::move(needs), peer = std::move(peer)](const Status& result) {
    site->options.gate->called(needs, peer, result);
  };
}

}  // namespace gpulet::net::grpc_api
