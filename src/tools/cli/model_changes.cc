#include "tools/cli/model_changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <thread>

#include "gpulet/base/text.h"
#include "gpulet/serve/values/served_model.h"
#include "tools/report/format.h"

namespace gpulet::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLoadPollInterval = std::chrono::milliseconds(100);

const ModelInfo* find(const std::vector<ModelInfo>& models, const std::string& name) {
  const auto found = std::find_if(models.begin(), models.end(),
                                  [&name](const ModelInfo& model) { return model.name == name; });
  return found == models.end() ? nullptr : &*found;
}

struct LoadedVersion {
  std::string name;
  std::string version;
  std::optional<serve::LoadOutcome> outcome;  // empty: pending
  ModelInfo model;
};

// Polls until every model serves or has failed, or until the deadline.
Result<std::vector<LoadedVersion>> await_loaded(const load::Target& target,
                                                const std::vector<ModelInfo>& requested,
                                                ChangeDeadline deadline) {
  std::vector<LoadedVersion> versions;
  for (const ModelInfo& model : requested)
    versions.push_back({model.name, serve::wanted_version(model), {}, model});
  for (;;) {
    GPULET_TRY(const std::vector<ModelInfo> models, load::fetch_models(target));
    bool all = true;
    for (LoadedVersion& version : versions) {
      if (const ModelInfo* model = find(models, version.name)) {
        version.model = *model;
        version.outcome = serve::outcome_of_load(*model, version.version);
      } else {
        version.outcome = serve::LoadOutcome{false, "it was unloaded meanwhile"};
      }
      all = all && version.outcome;
    }
    if (all || Clock::now() >= deadline) return versions;
    std::this_thread::sleep_for(kLoadPollInterval);
  }
}

}  // namespace

void add_change_options(CLI::App& command, ChangeOptions& options) {
  add_target_options(command, options.target);
  add_checked(command, "--timeout", options.timeout_s,
              "seconds to wait until the change has taken effect", number_within(0, 86400));
  command.add_flag("--json", options.json, "print one JSON document");
}

ChangeDeadline deadline_of(const ChangeOptions& options) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(from_seconds(options.timeout_s));
}

Result<std::vector<ModelInfo>> request_change(const load::Target& target,
                                              const ModelsChange& change, ChangeDeadline deadline) {
  const Duration timeout = std::max<Duration>(load::kCallTimeout, deadline - Clock::now());
  return load::change_models(target, change, timeout);
}

int change_failed(const Status& status) {
  const bool input = status.code() == StatusCode::invalid || status.code() == StatusCode::not_found;
  return input ? bad_input(status) : run_failed(status);
}

int await_and_report(const ChangeOptions& options, const load::Target& target,
                     const std::vector<ModelInfo>& requested, ChangeDeadline deadline,
                     std::vector<std::string>* failed) {
  const auto versions = await_loaded(target, requested, deadline);
  if (!versions.ok()) return run_failed(versions.status());

  bool all_serve = true;
  nlohmann::ordered_json document = nlohmann::ordered_json::array();
  for (const LoadedVersion& version : versions.value()) {
    const serve::LoadOutcome outcome = version.outcome.value_or(serve::LoadOutcome{
        false, fmt::format("still {} after {} s; `gpulet models list` shows the reason",
                           to_string(version.model.state), shortest(options.timeout_s, 1))});
    all_serve = all_serve && outcome.serves;
    if (!outcome.serves && failed != nullptr) failed->push_back(version.name);
    document.push_back({{"name", version.name},
                        {"version", short_version(version.version)},
                        {"serves", outcome.serves},
                        {"state", to_string(version.model.state)},
                        {"message", outcome.text}});
    const std::string line = "model " + version.name + ": " + outcome.text + "\n";
    if (!options.json) (outcome.serves ? std::cout : std::cerr) << line;
  }
  if (options.json) std::cout << json_page(nlohmann::ordered_json({{"models", document}}));
  return all_serve ? kSucceeded : kRunFailed;
}

ModelsChange load_of(const std::string& text, const std::string& file) {
  ModelsChange change;
  change.kind = ModelsChange::Kind::load;
  change.file = file;
  const auto bytes = std::as_bytes(std::span(text));
  change.text = Bytes::own({bytes.begin(), bytes.end()});
  return change;
}

}  // namespace gpulet::tools
