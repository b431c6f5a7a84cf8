// gpulet models list|load|unload: the models of a running frontend. `add` is in
// models_add_command.cc.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <thread>

#include "gpulet/base/text.h"
#include "gpulet/config/model_config.h"
#include "gpulet/load/call.h"
#include "gpulet/serve/values/served_model.h"
#include "tools/cli/command.h"
#include "tools/cli/model_changes.h"
#include "tools/cli/target_options.h"
#include "tools/report/format.h"

namespace gpulet::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kUnloadPollInterval = std::chrono::milliseconds(100);

struct ListOptions {
  TargetOptions target;
  bool json = false;
};

struct LoadOptions : ChangeOptions {
  std::string name;  // of an entry of the frontend's models file; empty: `file` is given
  std::string file;
};

struct UnloadOptions : ChangeOptions {
  std::string name;
};

nlohmann::json to_json(const std::vector<TensorSpec>& specs) {
  nlohmann::json list = nlohmann::json::array();
  for (const TensorSpec& spec : specs) {
    list.push_back({{"name", spec.name}, {"type", to_string(spec.type)}, {"shape", spec.shape}});
    if (spec.type == DataType::bytes) list.back()["max_bytes"] = spec.max_bytes;
  }
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
          {"version", short_version(model.version)},
          {"next", short_version(model.next)},
          {"reason", model.reason},
          {"inputs", to_json(model.inputs)},
          {"outputs", to_json(model.outputs)},
          {"slo_ms", model.slo_ms},
          {"max_batch", model.max_batch}};
}

void print_json(const ModelsReply& reply) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ModelInfo& model : reply.models) list.push_back(to_json(model));
  // Problems quote paths, which need not be UTF-8.
  std::cout << json_page(nlohmann::ordered_json({{"models", list}, {"problems", reply.problems}}));
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
    table.add_row({model.name, std::string(to_string(model.state)), short_version(model.version),
                   shortest(model.slo_ms, 2), std::to_string(model.max_batch),
                   to_text(model.inputs), to_text(model.outputs)});
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

// Reads the file here, so that the frontend needs no access to it.
Result<ModelsChange> load_change(const LoadOptions& options) {
  ModelsChange change;
  change.kind = ModelsChange::Kind::load;
  change.name = options.name;
  if (options.file.empty()) return change;
  std::ifstream stream(options.file, std::ios::binary);
  if (!stream)
    return Status(StatusCode::not_found,
                  options.file + ": cannot be read: " + std::generic_category().message(errno));
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  const std::string file = std::filesystem::absolute(options.file).string();
  // Finds errors before the frontend has to.
  if (const auto models = config::parse_models(text, file); !models.ok()) return models.status();
  return load_of(text, file);
}

int load_models(const LoadOptions& options, const load::Target& target) {
  const ChangeDeadline deadline = deadline_of(options);
  if (options.name.empty() == options.file.empty()) {
    return bad_input(
        Status(StatusCode::invalid, "name an entry of the models file to load, or give a --file"));
  }
  const Result<ModelsChange> change = load_change(options);
  if (!change.ok()) return bad_input(change.status());
  const auto affected = request_change(target, change.value(), deadline);
  if (!affected.ok()) return change_failed(affected.status());
  return await_and_report(options, target, affected.value(), deadline);
}

int unload_model(const UnloadOptions& options, const load::Target& target) {
  const ChangeDeadline deadline = deadline_of(options);
  ModelsChange change;
  change.kind = ModelsChange::Kind::unload;
  change.name = options.name;
  const auto affected = request_change(target, change, deadline);
  if (!affected.ok()) return change_failed(affected.status());
  bool gone = false;
  for (;;) {
    const Result<std::vector<ModelInfo>> models = load::fetch_models(target);
    if (!models.ok()) return run_failed(models.status());
    gone = std::none_of(models.value().begin(), models.value().end(),
                        [&](const ModelInfo& model) { return model.name == options.name; });
    if (gone || Clock::now() >= deadline) break;
    std::this_thread::sleep_for(kUnloadPollInterval);
  }
  const std::string message =
      gone ? "unloaded" : "takes no new requests; its gpulets finish the earlier ones";
  if (options.json) {
    std::cout << json_page(
        nlohmann::ordered_json({{"name", options.name}, {"unloaded", gone}, {"message", message}}));
  } else {
    std::cout << "model " << options.name << ": " << message << '\n';
  }
  return gone ? kSucceeded : kRunFailed;
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
  add_change_options(*command, *options);
}

void add_unload(CLI::App& models, Action& chosen) {
  const auto [command, options] =
      add_command(models, chosen, "unload",
                  "take a model out of service until it is loaded again or the frontend restarts",
                  unload_model);
  command->add_option("name", options->name, "the model")->required()->type_name(kModelName);
  add_change_options(*command, *options);
}

}  // namespace

void add_models_command(CLI::App& app, Action& chosen) {
  CLI::App* const models = app.add_subcommand("models", "the models of a running frontend");
  models->require_subcommand(1);
  add_list(*models, chosen);
  add_load(*models, chosen);
  add_models_add_command(*models, chosen);
  add_unload(*models, chosen);
}

}  // namespace gpulet::tools
