// Everything that a frontend reads before it starts: models and their hashes, profiles, the
// policy, tokens and certificates.
#pragma once

#include <cstdint>
#include <memory>

#include "frontend/catalogue/model_file.h"
#include "frontend/frames/security.h"
#include "gpulet/access/gate.h"
#include "gpulet/base/status.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/config/model_config.h"
#include "gpulet/net/buffer_pool.h"
#include "gpulet/net/tls.h"
#include "gpulet/schedule/policy.h"
#include "gpulet/serve/values/frontend_events.h"
#include "gpulet/serve/values/frontend_options.h"

namespace gpulet::store::remote {
class RemoteFiles;
}

namespace gpulet::frontend {

class AuditLog;         // src/frontend/administration.h
class CatalogueLoader;  // src/frontend/catalogue/catalogue.h
class RemoteVersions;   // src/frontend/catalogue/remote_versions.h

struct Setup {
  config::FrontendConfig config;
  Security security{};
  serve::Catalogue catalogue;
  ModelFiles model_files;
  RemoteModelFiles remote_models;
  std::shared_ptr<store::remote::RemoteFiles> remote_files;  // never null
  std::shared_ptr<RemoteVersions> remote_versions;           // never null
  std::shared_ptr<CatalogueLoader> loader;                   // never null
  std::shared_ptr<AuditLog> audit;                           // never null
  schedule::Headroom headroom = schedule::Headroom::poisson;
  std::shared_ptr<const schedule::Policy> policy;
  std::uint64_t run = 1;  // distinguishes the ids of this run from those of earlier runs; 1 .. 2^23
  std::shared_ptr<net::MemoryReserve> memory{};  // null: none
};

// Blocks on file I/O. Errors name the file, the position in it and the fix.
[[nodiscard]] Result<Setup> make_setup(const config::FrontendConfig& config, std::uint64_t run);

// The options of the daemon's core. A replay builds its core with the same options.
[[nodiscard]] serve::FrontendOptions core_options(const Setup& setup);

}  // namespace gpulet::frontend
