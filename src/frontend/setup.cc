#include "gpulet/frontend/setup.h"

#include <utility>

#include "gpulet/config/model_config.h"
#include "gpulet/core/sha256.h"
#include "gpulet/profile/store.h"
#include "gpulet/serve/planning.h"

namespace gpulet::frontend {

namespace {

// Which devices will join is not known yet: every profile counts.
Status choose_plan_options(const config::FrontendConfig& config, Setup& setup) {
  const Result<schedule::Headroom> headroom = serve::parse_headroom(config.headroom);
  if (!headroom.ok()) return headroom.status().within("headroom");
  setup.headroom = headroom.value();
  std::vector<std::string> types;
  for (const auto& [name, profile] : *setup.profiles) types.push_back(name);
  Result<serve::ChosenInterference> chosen =
      serve::choose_interference(*setup.profiles, types, config.interference);
  if (!chosen.ok()) return chosen.status().within("interference");
  setup.interference = std::move(chosen.value().models);
  return {};
}

}  // namespace

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
  setup.profiles = std::make_shared<const profile::ProfileSet>(std::move(profiles).value());
  const Status chosen = choose_plan_options(config, setup);
  if (!chosen.ok()) return chosen;
  Result<std::unique_ptr<schedule::Policy>> policy = schedule::make_policy(config.policy);
  if (!policy.ok()) return policy.status();
  setup.policy = std::move(policy).value();
  return setup;
}

}  // namespace gpulet::frontend
