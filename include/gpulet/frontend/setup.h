// What a frontend needs before it can start: its models with their hashes, its profiles, its
// policy, what secures its ports. Blocking file I/O; errors name the file, the place and the mend.
#pragma once

#include <cstdint>
#include <memory>

#include "gpulet/config/daemon_config.h"
#include "gpulet/core/status.h"
#include "gpulet/frontend/model_file.h"
#include "gpulet/frontend/security.h"
#include "gpulet/schedule/policy.h"
#include "gpulet/serve/catalogue.h"

namespace gpulet::frontend {

class AuditLog;         // src/frontend/audit_log.h
class CatalogueLoader;  // reads the files again (src/frontend/catalogue_loader.h)

struct Setup {
  config::FrontendConfig config;
  Security security{};
  serve::Catalogue catalogue;
  ModelFiles model_files;
  std::shared_ptr<CatalogueLoader> loader;  // never null
  std::shared_ptr<AuditLog> audit;          // never null
  schedule::Headroom headroom = schedule::Headroom::poisson;
  std::shared_ptr<const schedule::Policy> policy;
  std::uint64_t run = 1;  // tells this run's ids from those of earlier ones; 1 .. 2^23
};

[[nodiscard]] Result<Setup> make_setup(const config::FrontendConfig& config, std::uint64_t run);

}  // namespace gpulet::frontend
