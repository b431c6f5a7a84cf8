// What secures a frontend's ports, read from the files that its configuration names. Blocking file
// I/O; errors name the file and the mend.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gpulet/config/daemon_config.h"
#include "gpulet/core/status.h"
#include "gpulet/net/gate.h"
#include "gpulet/net/tls.h"

namespace gpulet::frontend {

// What secures a port.
struct PortTls {
  net::TlsContextPointer context;  // null: plain
  net::TlsTexts texts{};           // the same, for gRPC
};

struct Security {
  PortTls clients;
  PortTls backends;
  std::shared_ptr<net::Gate> gate = std::make_shared<net::Gate>();  // never null
};

[[nodiscard]] Result<PortTls> read_port_tls(const config::TlsFiles& files);
[[nodiscard]] Result<Security> read_security(const config::FrontendConfig& config);

// A sentence for each thing that others than this machine's users may read or do, with the key
// that mends it.
[[nodiscard]] std::vector<std::string> exposures(const config::FrontendConfig& config);

}  // namespace gpulet::frontend
