#include "gpulet/frontend/setup.h"

#include <utility>

#include "audit_log.h"
#include "catalogue_loader.h"
#include "gpulet/learn/inss_policy.h"
#include "gpulet/serve/planning.h"

namespace gpulet::frontend {

Result<Setup> make_setup(const config::FrontendConfig& config, std::uint64_t run) {
  Setup setup;
  setup.config = config;
  setup.run = run;
  const Result<schedule::Headroom> headroom = serve::parse_headroom(config.headroom);
  if (!headroom.ok()) return headroom.status().within("headroom");
  setup.headroom = headroom.value();
  Result<Security> security = read_security(config);
  if (!security.ok()) return security.status();
  setup.security = std::move(security).value();
  Result<std::unique_ptr<AuditLog>> audit = AuditLog::open(config.audit_log);
  if (!audit.ok()) return audit.status();
  setup.audit = std::move(audit).value();
  setup.loader = std::make_shared<CatalogueLoader>(config);
  Result<LoadedCatalogue> loaded = setup.loader->load();
  if (!loaded.ok()) return loaded.status();
  setup.catalogue = std::move(loaded.value().catalogue);
  setup.model_files = std::move(loaded.value().model_files);
  Result<std::unique_ptr<schedule::Policy>> policy = learn::make_policy(config.policy);
  if (!policy.ok()) return policy.status();
  setup.policy = std::move(policy).value();
  return setup;
}

}  // namespace gpulet::frontend
