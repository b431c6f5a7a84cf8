// gpulet models list|load|unload: what a running frontend serves, and what it is to serve.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "gpulet/config/model_config.h"
#include "gpulet/load/call.h"
#include "gpulet/serve/load_outcome.h"
#include "gpulet/serve/served_model.h"
#include "tools/command.h"
#include "tools/command_line.h"
#include "tools/table.h"
#include "tools/target_options.h"

namespace gpulet::tools {
namespace {

using serve::ModelInfo;
using serve::ModelState;
using Clock = std::chrono::steady_clock;

constexpr auto kLookEvery = std::chrono::milliseconds(100);
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
  for (const TensorSpec& spec : specs) {
    list.push_back({{"name", spec.name}, {"type", to_string(spec.type)}, {"shape", spec.shape}});
  }
  return list;
}

std::string to_text(const std::vector<TensorSpec>& specs) {
  std::string text;
  for (const TensorSpec& spec : specs) {
    if (!text.empty()) text += ' ';
    text += spec.name + ' ' + to_string(spec);
  }
  return text;
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

void print_json(const serve::ModelsReply& reply) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ModelInfo& model : reply.models) list.push_back(to_json(model));
  std::cout << nlohmann::ordered_json({{"models", list}, {"problems", reply.problems}}).dump(2)
            << '\n';
}

void print_table(const serve::ModelsReply& reply) {
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

int list(const ListOptions& options) {
  const Result<load::Target> target = find_target(options.target);
  if (!target.ok()) return bad_input(target.status());
  const Result<serve::ModelsReply> models = load::fetch_model_list(target.value());
  if (!models.ok()) return run_failed(models.status());
  if (options.json) {
    print_json(models.value());
  } else {
    print_table(models.value());
  }
  return kSucceeded;
}

const ModelInfo* find(const std::vector<ModelInfo>& models, const std::string& name) {
  const auto found = std::find_if(models.begin(), models.end(),
                                  [&name](const ModelInfo& model) { return model.name == name; });
  return found == models.end() ? nullptr : &*found;
}

struct Outcome {
  std::string name;
  std::string version;
  std::optional<serve::LoadOutcome> decided;
  ModelInfo model;
};

// Looks until everything is decided or the time is up.
Result<std::vector<Outcome>> await_loaded(const load::Target& target,
                                          const std::vector<ModelInfo>& meant,
                                          Clock::time_point deadline) {
  std::vector<Outcome> outcomes;
  for (const ModelInfo& model : meant) {
    outcomes.push_back({model.name, serve::wanted_version(model), {}, model});
  }
  for (;;) {
    const Result<std::vector<ModelInfo>> models = load::fetch_models(target);
    if (!models.ok()) return models.status();
    bool all = true;
    for (Outcome& outcome : outcomes) {
      if (const ModelInfo* model = find(models.value(), outcome.name)) {
        outcome.model = *model;
        outcome.decided = serve::outcome_of_load(*model, outcome.version);
      } else {
        outcome.decided = serve::LoadOutcome{false, "it was unloaded meanwhile"};
      }
      all = all && outcome.decided;
    }
    if (all || Clock::now() >= deadline) return outcomes;
    std::this_thread::sleep_for(kLookEvery);
  }
}

Result<serve::ModelsChange> loading(const ChangeOptions& options) {
  serve::ModelsChange change;
  change.kind = serve::ModelsChange::Kind::load;
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

int failure_of(const Status& status) {
  const bool input = status.code() == StatusCode::invalid || status.code() == StatusCode::not_found;
  return input ? bad_input(status) : run_failed(status);
}

Duration left_until(Clock::time_point deadline) {
  return std::max<Duration>(load::kCallTimeout, deadline - Clock::now());
}

int load_models(const ChangeOptions& options) {
  const Clock::time_point deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(from_seconds(options.timeout_s));
  const Result<load::Target> target = find_target(options.target);
  if (!target.ok()) return bad_input(target.status());
  if (options.name.empty() == options.file.empty()) {
    return bad_input(
        Status(StatusCode::invalid, "name the entry of the models file to load, or a --file"));
  }
  const Result<serve::ModelsChange> change = loading(options);
  if (!change.ok()) return bad_input(change.status());
  const Result<std::vector<ModelInfo>> meant =
      load::change_models(target.value(), change.value(), left_until(deadline));
  if (!meant.ok()) return failure_of(meant.status());
  const Result<std::vector<Outcome>> outcomes =
      await_loaded(target.value(), meant.value(), deadline);
  if (!outcomes.ok()) return run_failed(outcomes.status());

  bool all_serve = true;
  nlohmann::ordered_json document = nlohmann::ordered_json::array();
  for (const Outcome& outcome : outcomes.value()) {
    const serve::LoadOutcome decided = outcome.decided.value_or(serve::LoadOutcome{
        false, "still " + std::string(to_string(outcome.model.state)) + " after " +
                   shortest(options.timeout_s, 1) + " s; `gpulet models list` tells more"});
    all_serve = all_serve && decided.serves;
    document.push_back({{"name", outcome.name},
                        {"version", serve::short_version(outcome.version)},
                        {"serves", decided.serves},
                        {"state", to_string(outcome.model.state)},
                        {"message", decided.text}});
    const std::string line = "model " + outcome.name + ": " + decided.text + "\n";
    if (!options.json) (decided.serves ? std::cout : std::cerr) << line;
  }
  if (options.json) std::cout << nlohmann::ordered_json({{"models", document}}).dump(2) << '\n';
  return all_serve ? kSucceeded : kRunFailed;
}

int unload_model(const ChangeOptions& options) {
  const Clock::time_point deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(from_seconds(options.timeout_s));
  const Result<load::Target> target = find_target(options.target);
  if (!target.ok()) return bad_input(target.status());
  serve::ModelsChange change;
  change.kind = serve::ModelsChange::Kind::unload;
  change.name = options.name;
  const Result<std::vector<ModelInfo>> meant =
      load::change_models(target.value(), change, left_until(deadline));
  if (!meant.ok()) return failure_of(meant.status());
  bool gone = false;
  for (;;) {
    const Result<std::vector<ModelInfo>> models = load::fetch_models(target.value());
    if (!models.ok()) return run_failed(models.status());
    gone = find(models.value(), options.name) == nullptr;
    if (gone || Clock::now() >= deadline) break;
    std::this_thread::sleep_for(kLookEvery);
  }
  const std::string words = gone ? "unloaded" : "takes no requests, but its gpulets still finish";
  if (options.json) {
    std::cout << nlohmann::ordered_json(
                     {{"name", options.name}, {"unloaded", gone}, {"message", words}})
                     .dump(2)
              << '\n';
  } else {
    std::cout << "model " << options.name << ": " << words << '\n';
  }
  return gone ? kSucceeded : kRunFailed;
}

void add_common(CLI::App& command, ChangeOptions& options) {
  add_target_options(command, options.target);
  command.add_option("--timeout", options.timeout_s, "seconds to wait for what comes of it")
      ->check(number_within(0, 86400))
      ->capture_default_str();
  command.add_flag("--json", options.json, "print one JSON document");
}

void add_list(CLI::App& models, Run& chosen) {
  CLI::App* const command = models.add_subcommand("list", "print the models that it serves");
  const auto options = std::make_shared<ListOptions>();
  add_target_options(*command, options->target);
  command->add_flag("--json", options->json, "print one JSON document");
  command->callback([options, &chosen] { chosen = [options] { return list(*options); }; });
}

void add_load(CLI::App& models, Run& chosen) {
  CLI::App* const command = models.add_subcommand(
      "load", "register models, or a new version of one, and wait until they serve");
  const auto options = std::make_shared<ChangeOptions>();
  command
      ->add_option("name", options->name,
                   "an entry of the frontend's models file, which is read again")
      ->type_name(kModelName);
  command->add_option("--file", options->file,
                      "a models file whose entries serve until the frontend restarts; paths in it "
                      "are as the frontend sees them");
  add_common(*command, *options);
  command->callback([options, &chosen] { chosen = [options] { return load_models(*options); }; });
}

void add_unload(CLI::App& models, Run& chosen) {
  CLI::App* const command = models.add_subcommand(
      "unload", "take a model out of service until it is loaded, or the frontend restarts");
  const auto options = std::make_shared<ChangeOptions>();
  command->add_option("name", options->name, "the model")->required()->type_name(kModelName);
  add_common(*command, *options);
  command->callback([options, &chosen] { chosen = [options] { return unload_model(*options); }; });
}

}  // namespace

void add_models_command(CLI::App& app, Run& chosen) {
  CLI::App* const models = app.add_subcommand("models", "the models of a running frontend");
  models->require_subcommand(1);
  add_list(*models, chosen);
  add_load(*models, chosen);
  add_unload(*models, chosen);
}

}  // namespace gpulet::tools
