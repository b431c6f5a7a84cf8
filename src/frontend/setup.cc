#include "frontend/setup.h"

#include <spdlog/spdlog.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <utility>

#include "frontend/administration.h"
#include "frontend/catalogue/catalogue.h"
#include "frontend/options.h"
#include "gpulet/base/text.h"
#include "gpulet/net/event_loop.h"
#include "gpulet/net/kserve/http_api.h"
#include "gpulet/planning/pipeline.h"
#include "gpulet/research/research.h"
#include "gpulet/store/model_store.h"
#include "gpulet/store/remote/remote_files.h"

namespace gpulet::frontend {
namespace {

// A folder for copies of model files: below that which systemd gives to the service, or in the
// user's cache. Empty: there is none.
std::filesystem::path default_folder(const char* in_state, const char* in_cache) {
  const auto below = [](const char* variable, const char* folder) {
    const char* const value = std::getenv(variable);
    return value == nullptr || *value == 0 ? std::filesystem::path()
                                           : std::filesystem::path(value) / folder;
  };
  const std::string cache = std::string("gpulet/") + in_cache;
  for (const auto& [variable, folder] :
       {std::pair<const char*, std::string>("STATE_DIRECTORY", in_state),
        std::pair<const char*, std::string>("XDG_CACHE_HOME", cache),
        std::pair<const char*, std::string>("HOME", ".cache/" + cache)}) {
    if (std::filesystem::path found = below(variable, folder.c_str()); !found.empty()) return found;
  }
  return {};
}

std::filesystem::path model_store_of(const config::ClusterConfig& cluster) {
  return cluster.model_store.empty() ? default_folder("models-of-cluster", "models")
                                     : cluster.model_store;
}

store::remote::RemoteFilesOptions remote_options(const config::FrontendConfig& config) {
  store::remote::RemoteFilesOptions options{config.remote_stores, {}};
  if (options.stores.cache.empty())
    options.stores.cache = default_folder("models-of-stores", "stores");
  if (config.model_format != config::ModelFormat::any) {
    options.check = [allowed = config.model_format](int descriptor) {
      return config::check_file_of(allowed, descriptor);
    };
  }
  return options;
}

// Fails if the configured folder cannot be used.
Result<std::optional<store::ModelStore>> open_store(const config::FrontendConfig& config) {
  using Store = std::optional<store::ModelStore>;
  if (!config.cluster) return Store();
  const std::filesystem::path folder = model_store_of(*config.cluster);
  Result<store::ModelStore> opened =
      folder.empty() ? Status(StatusCode::unavailable, "no folder for model files of others")
                     : store::ModelStore::open(folder);
  if (opened.ok()) return Store(std::move(opened).value());
  if (!config.cluster->model_store.empty()) return opened.status().within("cluster");
  spdlog::warn(
      "{}; files of models that clients load must be readable at the same paths on all frontends, "
      "or set \"model_store\" of \"cluster\"",
      opened.status().message());
  return Store();
}

}  // namespace

Result<Setup> make_setup(const config::FrontendConfig& config, std::uint64_t run) {
  Setup setup;
  setup.config = config;
  setup.run = run;
  const Result<schedule::Headroom> headroom = planning::parse_headroom(config.headroom);
  if (!headroom.ok()) return headroom.status().within("headroom");
  setup.headroom = headroom.value();
  Result<Security> security = read_security(config);
  if (!security.ok()) return security.status();
  setup.security = std::move(security).value();
  Result<std::unique_ptr<AuditLog>> audit = AuditLog::open(config.audit_log);
  if (!audit.ok()) return audit.status();
  setup.audit = std::move(audit).value();
  Result<std::optional<store::ModelStore>> store = open_store(config);
  if (!store.ok()) return store.status();
  setup.remote_files = std::make_shared<store::remote::RemoteFiles>(remote_options(config));
  setup.remote_versions = std::make_shared<RemoteVersions>(!config.cluster.has_value());
  setup.loader = std::make_shared<CatalogueLoader>(
      config, std::move(store).value(), RemoteSource{setup.remote_files, setup.remote_versions});
  Result<LoadedCatalogue> loaded = setup.loader->load();
  if (!loaded.ok()) return loaded.status();
  setup.catalogue = std::move(loaded.value().catalogue);
  setup.model_files = std::move(loaded.value().model_files);
  setup.remote_models = std::move(loaded.value().remote_models);
  Result<std::unique_ptr<schedule::Policy>> policy = research::policies().make(config.policy);
  if (!policy.ok()) return policy.status();
  setup.policy = std::move(policy).value();
  return setup;
}

}  // namespace gpulet::frontend
