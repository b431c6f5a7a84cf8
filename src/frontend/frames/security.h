// What protects the frontend's ports: certificates, tokens and quotas, as the configuration names
// them. Any thread; the gate's own rules are in gpulet/access/gate.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gpulet/access/gate.h"
#include "gpulet/base/status.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/net/tls.h"

namespace gpulet::frontend {

struct PortTls {
  net::TlsContextPointer context;  // null: plain
  net::TlsTexts texts{};           // the same certificate and key, for gRPC
};

struct Security {
  PortTls clients;
  PortTls backends;
  std::shared_ptr<access::Gate> gate = std::make_shared<access::Gate>();  // never null
};

// Both block on file I/O. Errors name the file, the key and the fix.
[[nodiscard]] Result<PortTls> read_port_tls(const config::TlsFiles& files);
[[nodiscard]] Result<Security> read_security(const config::FrontendConfig& config);

// A warning for each operation open to other machines without encryption or token, with its key.
[[nodiscard]] std::vector<std::string> exposures(const config::FrontendConfig& config);

}  // namespace gpulet::frontend
