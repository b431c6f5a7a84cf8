// gpulet models list: what a running frontend serves.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "gpulet/load/call.h"
#include "tools/command.h"
#include "tools/table.h"

namespace gpulet::tools {
namespace {

struct ListOptions {
  std::string target = "127.0.0.1:7000";
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

void print_json(const std::vector<serve::ModelInfo>& models) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const serve::ModelInfo& model : models) {
    list.push_back({{"name", model.name},
                    {"inputs", to_json(model.inputs)},
                    {"outputs", to_json(model.outputs)},
                    {"slo_ms", model.slo_ms},
                    {"max_batch", model.max_batch}});
  }
  std::cout << nlohmann::ordered_json({{"models", list}}).dump(2) << '\n';
}

void print_table(const std::vector<serve::ModelInfo>& models) {
  Table table({{"model", Table::Align::left},
               {"SLO ms"},
               {"max batch"},
               {"inputs", Table::Align::left},
               {"outputs", Table::Align::left}});
  for (const serve::ModelInfo& model : models) {
    table.add_row({model.name, shortest(model.slo_ms, 2), std::to_string(model.max_batch),
                   to_text(model.inputs), to_text(model.outputs)});
  }
  std::cout << table.to_string();
}

int list(const ListOptions& options) {
  const Result<config::Endpoint> target = config::parse_endpoint(options.target);
  if (!target.ok()) return bad_input(target.status().within("--target"));
  const Result<std::vector<serve::ModelInfo>> models = load::fetch_models(target.value());
  if (!models.ok()) return run_failed(models.status());
  if (options.json) {
    print_json(models.value());
  } else {
    print_table(models.value());
  }
  return kSucceeded;
}

}  // namespace

void add_models_command(CLI::App& app, Run& chosen) {
  CLI::App* const models = app.add_subcommand("models", "the models of a running frontend");
  models->require_subcommand(1);
  CLI::App* const command = models->add_subcommand("list", "print the models that it serves");
  const auto options = std::make_shared<ListOptions>();
  command->add_option("--target", options->target, "the frontend's address for clients")
      ->capture_default_str();
  command->add_flag("--json", options->json, "print one JSON document");
  command->callback([options, &chosen] { chosen = [options] { return list(*options); }; });
}

}  // namespace gpulet::tools
