#include "gpulet/frontend/setup.h"

#include <utility>

#include "gpulet/config/model_config.h"
#include "gpulet/core/sha256.h"
#include "gpulet/profile/store.h"

namespace gpulet::frontend {

Result<Setup> make_setup(const config::FrontendConfig& config, std::uint64_t run) {
  Setup setup;
  setup.config = config;
  setup.run = run;
  const Result<std::vector<config::ModelConfig>> models = config::load_models(config.models);
  if (!models.ok()) return models.status();
  for (const config::ModelConfig& model : models.value()) {
    Result<std::string> hash = sha256_of_file(model.file);
    if (!hash.ok()) {
      return Status(hash.status().code(), config.models.string() + ": model " + model.name + ": " +
                                              hash.status().message() +
                                              "; export it with scripts/export_models.py");
    }
    serve::ServedModel served;
    served.name = model.name;
    served.sha256 = std::move(hash).value();
    served.inputs = model.inputs;
    served.outputs = model.outputs;
    served.slo_ms = model.slo_ms;
    served.configured_rate = model.rate;
    served.max_batch = model.max_batch;
    Result<serve::ServedModel> sized = serve::with_sizes(std::move(served));
    if (!sized.ok()) return sized.status().within(config.models.string());
    setup.model_files[sized.value().sha256] = model.file;
    setup.models.push_back(std::move(sized).value());
  }
  Result<profile::ProfileSet> profiles = profile::read_profiles(config.profiles);
  if (!profiles.ok()) return profiles.status();
  setup.profiles = std::move(profiles).value();
  Result<std::unique_ptr<schedule::Policy>> policy = schedule::make_policy(config.policy);
  if (!policy.ok()) return policy.status();
  setup.policy = std::move(policy).value();
  return setup;
}

}  // namespace gpulet::frontend
