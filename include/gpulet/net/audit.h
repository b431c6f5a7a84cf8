// What an audit log keeps: who made which call that needs a right, and with which result. Value.
#pragma once

#include <string>

#include "gpulet/core/status.h"
#include "gpulet/net/peer_identity.h"

namespace gpulet::net {

struct AuditRecord {
  PeerIdentity peer{};   // without a protocol: the daemon itself
  std::string action{};  // "model_load", "trace", ...
  std::string target{};  // the model or the region; empty: none
  Status result{};
};

}  // namespace gpulet::net
