// gpulet models list|load|unload: the models of a running frontend.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "gpulet/base/text.h"
#include "gpulet/config/model_config.h"
#include "gpulet/load/call.h"
#include "gpulet/serve/served_model.h"
#include "tools/cli/command.h"
#include "tools/cli/target_options.h"
#include "tools/report/format.h"

namespace gpulet::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kModelsPollInterval = std::chrono::milliseconds(100);
constexpr double kDefaultTimeoutSeconds = 120;

struct ListOptions {
  TargetOptions target;
  bool json = false;
};

struct ChangeOptions {
  TargetOptions target;
  std::string name;
  std::string file;
  double timeout_s = kDefaultTimeoutSeconds;
  bool json = false;
};

nlohmann::json to_json(const std::vector<TensorSpec>& specs) {
  nlohmann::json list = nlohmann::json::array();
  for (const TensorSpec& spec : specs)
    list.push_back({{"name", spec.name}, {"type", to_string(spec.type)}, {"shape", spec.shape}});
  return list;
}

std::string to_text(const std::vector<TensorSpec>& specs) {
  std::vector<std::string> texts;
  for (const TensorSpec& spec : specs) texts.push_back(spec.name + ' ' + to_string(spec));
  return joined(texts, " ");
}

nlohmann::ordered_json to_json(const ModelInfo& model) {
  return {{"name", model.name},
          {"state", to_string(model.state)},
          {"version", serve::short_version(model.version)},
          {"next", serve::short_version(model.next)},
          {"reason", model.reason},
          {"inputs", to_json(model.inputs)},
          {"outputs", to_json(model.outputs)},
          {"slo_ms", model.slo_ms},
          {"max_batch", model.max_batch}};
}

void print_json(const ModelsReply& reply) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ModelInfo& model : reply.models) list.push_back(to_json(model));
  std::cout << nlohmann::ordered_json({{"models", list}, {"problems", reply.problems}}).dump(2)
            << '\n';
}

void print_table(const ModelsReply& reply) {
  const std::vector<ModelInfo>& models = reply.models;
  Table table({{"model", Table::Align::left},
               {"state", Table::Align::left},
               {"version", Table::Align::left},
               {"SLO ms"},
               {"max batch"},
               {"inputs", Table::Align::left},
               {"outputs", Table::Align::left}});
  for (const ModelInfo& model : models) {
    table.add_row({model.name, std::string(to_string(model.state)),
                   serve::short_version(model.version), shortest(model.slo_ms, 2),
                   std::to_string(model.max_batch), to_text(model.inputs), to_text(model.outputs)});
  }
  std::cout << table.to_string();
  for (const ModelInfo& model : models) {
    if (!model.reason.empty()) std::cout << model.name << ": " << model.reason << '\n';
  }
  for (const std::string& problem : reply.problems)
    std::cout << "not in force: " << problem << '\n';
}

int list(const ListOptions& options, const load::Target& target) {
  const Result<ModelsReply> models = load::fetch_model_list(target);
  if (!models.ok()) return run_failed(models.status());
  options.json ? print_json(models.value()) : print_table(models.value());
  return kSucceeded;
}

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
                                                Clock::time_point deadline) {
  std::vector<LoadedVersion> versions;
  for (const ModelInfo& model : requested)
    versions.push_back({model.name, serve::wanted_version(model), {}, model});
  for (;;) {
    const Result<std::vector<ModelInfo>> models = load::fetch_models(target);
    if (!models.ok()) return models.status();
    bool all = true;
    for (LoadedVersion& version : versions) {
      if (const ModelInfo* model = find(models.value(), version.name)) {
        version.model = *model;
        version.outcome = serve::outcome_of_load(*model, version.version);
      } else {
        version.outcome = serve::LoadOutcome{false, "it was unloaded meanwhile"};
      }
      all = all && version.outcome;
    }
    if (all || Clock::now() >= deadline) return versions;
    std::this_thread::sleep_for(kModelsPollInterval);
  }
}

Result<ModelsChange> load_change(const ChangeOptions& options) {
  ModelsChange change;
  change.kind = ModelsChange::Kind::load;
  change.name = options.name;
  if (options.file.empty()) return change;
  std::ifstream stream(options.file, std::ios::binary);
  if (!stream) return Status(StatusCode::not_found, options.file + ": cannot be read");
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  change.file = std::filesystem::absolute(options.file).string();
  const auto models = config::parse_models(text, change.file);
  if (!models.ok()) return models.status();
  const auto bytes = std::as_bytes(std::span(text));
  change.text = Bytes::own({bytes.begin(), bytes.end()});
  return change;
}

int change_failed(const Status& status) {
  const bool input = status.code() == StatusCode::invalid || status.code() == StatusCode::not_found;
  return input ? bad_input(status) : run_failed(status);
}

Clock::time_point deadline_of(const ChangeOptions& options) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(from_seconds(options.timeout_s));
}

// The affected models.
Result<std::vector<ModelInfo>> request_change(const load::Target& target,
                                              const ModelsChange& change,
                                              Clock::time_point deadline) {
  const Duration timeout = std::max<Duration>(load::kCallTimeout, deadline - Clock::now());
  return load::change_models(target, change, timeout);
}

int load_models(const ChangeOptions& options, const load::Target& target) {
  const Clock::time_point deadline = deadline_of(options);
  if (options.name.empty() == options.file.empty()) {
    return bad_input(
        Status(StatusCode::invalid, "name an entry of the models file to load, or give a --file"));
  }
  const Result<ModelsChange> change = load_change(options);
  if (!change.ok()) return bad_input(change.status());
  const auto affected = request_change(target, change.value(), deadline);
  if (!affected.ok()) return change_failed(affected.status());
  const auto versions = await_loaded(target, affected.value(), deadline);
  if (!versions.ok()) return run_failed(versions.status());

  bool all_serve = true;
  nlohmann::ordered_json document = nlohmann::ordered_json::array();
  for (const LoadedVersion& version : versions.value()) {
    const serve::LoadOutcome outcome = version.outcome.value_or(serve::LoadOutcome{
        false, fmt::format("still {} after {} s; `gpulet models list` shows the reason",
                           to_string(version.model.state), shortest(options.timeout_s, 1))});
    all_serve = all_serve && outcome.serves;
    document.push_back({{"name", version.name},
                        {"version", serve::short_version(version.version)},
                        {"serves", outcome.serves},
                        {"state", to_string(version.model.state)},
                        {"message", outcome.text}});
    const std::string line = "model " + version.name + ": " + outcome.text + "\n";
    if (!options.json) (outcome.serves ? std::cout : std::cerr) << line;
  }
  if (options.json) std::cout << nlohmann::ordered_json({{"models", document}}).dump(2) << '\n';
  return all_serve ? kSucceeded : kRunFailed;
}

int unload_model(const ChangeOptions& options, const load::Target& target) {
  const Clock::time_point deadline = deadline_of(options);
  ModelsChange change;
  change.kind = ModelsChange::Kind::unload;
  change.name = options.name;
  const auto affected = request_change(target, change, deadline);
  if (!affected.ok()) return change_failed(affected.status());
  bool gone = false;
  for (;;) {
    const Result<std::vector<ModelInfo>> models = load::fetch_models(target);
    if (!models.ok()) return run_failed(models.status());
    gone = find(models.value(), options.name) == nullptr;
    if (gone || Clock::now() >= deadline) break;
    std::this_thread::sleep_for(kModelsPollInterval);
  }
  const std::string message =
      gone ? "unloaded" : "takes no new requests; its gpulets finish the earlier ones";
  if (options.json) {
    std::cout << nlohmann::ordered_json(
                     {{"name", options.name}, {"unloaded", gone}, {"message", message}})
                     .dump(2)
              << '\n';
  } else {
    std::cout << "model " << options.name << ": " << message << '\n';
  }
  return gone ? kSucceeded : kRunFailed;
}

void add_common(CLI::App& command, ChangeOptions& options) {
  add_target_options(command, options.target);
  add_checked(command, "--timeout", options.timeout_s,
              "seconds to wait until the change has taken effect", number_within(0, 86400));
  command.add_flag("--json", options.json, "print one JSON document");
}

void add_list(CLI::App& models, Action& chosen) {
  const auto [command, options] =
      add_command(models, chosen, "list", "print the models of the frontend", list);
  add_target_options(*command, options->target);
  command->add_flag("--json", options->json, "print one JSON document");
}

void add_load(CLI::App& models, Action& chosen) {
  const auto [command, options] = add_command(
      models, chosen, "load",
      "register models or new versions of models, and wait until they serve", load_models);
  command
      ->add_option("name", options->name,
                   "a model of the frontend's models file, which the frontend reads again")
      ->type_name(kModelName);
  command->add_option("--file", options->file,
                      "a models file; its models serve until the frontend restarts, and its paths "
                      "are paths on the frontend's machine");
  add_common(*command, *options);
}

void add_unload(CLI::App& models, Action& chosen) {
  const auto [command, options] =
      add_command(models, chosen, "unload",
                  "take a model out of service until it is loaded again or the frontend restarts",
                  unload_model);
  command->add_option("name", options->name, "the model")->required()->type_name(kModelName);
  add_common(*command, *options);
}

}  // namespace

void add_models_command(CLI::App& app, Action& chosen) {
  CLI::App* const models = app.add_subcommand("models", "the models of a running frontend");
  models->require_subcommand(1);
  add_list(*models, chosen);
  add_load(*models, chosen);
  add_unload(*models, chosen);
}

}  // namespace gpulet::tools
