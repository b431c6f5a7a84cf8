// What secures a frontend's ports, read from the files that its configuration names. Blocking file
// I/O; errors name the file and the mend.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gpulet/config/daemon_config.h"
#include "gpulet/core/status.h"
#include "gpulet/net/tls.h"
#include "gpulet/net/tokens.h"

namespace gpulet::frontend {

struct Security {
  net::TlsContextPointer clients;   // null: plain
  net::TlsTexts client_texts;       // the same, for gRPC
  net::TlsContextPointer backends;  // null: plain
  std::shared_ptr<const net::Tokens> tokens = std::make_shared<const net::Tokens>();
};

[[nodiscard]] Result<Security> read_security(const config::FrontendConfig& config);

// A sentence for each thing that others than this machine's users may read or do, with the key
// that mends it.
[[nodiscard]] std::vector<std::string> exposures(const config::FrontendConfig& config);

}  // namespace gpulet::frontend
