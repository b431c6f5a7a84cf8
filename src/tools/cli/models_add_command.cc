// gpulet models add: describes and measures model files, and registers them with a frontend.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/base/text.h"
#include "gpulet/load/call.h"
#include "gpulet/profile/estimate.h"
#include "tools/cli/command.h"
#include "tools/cli/model_changes.h"
#include "tools/cli/model_options.h"
#include "tools/measure/measured_device.h"
#include "tools/serve/serving_devices.h"
#include "tools/serve/serving_files.h"

namespace gpulet::tools {
namespace {

constexpr int kLowestPriority = 19;
// The name of the text in the frontend's errors.
constexpr const char* kTextName = "gpulet models add";

struct AddOptions : ChangeOptions {
  ModelFileOptions files;
  std::string device;
  std::string type;
  double rate = 1;
  bool estimate = false;
  bool no_wait = false;
  bool print = false;
};

// The types of the devices that the frontend has.
Result<std::set<std::string>> types_of_devices(const load::Target& target) {
  GPULET_TRY(const std::string text, load::fetch_status(target));
  const auto document = nlohmann::json::parse(text, nullptr, false);
  std::set<std::string> types;
  try {
    for (const auto& node : document.at("nodes")) {
      for (const auto& device : node.at("devices"))
        types.insert(device.at("type").get<std::string>());
    }
  } catch (const nlohmann::json::exception& error) {
    return Status(StatusCode::malformed,
                  fmt::format("the frontend's status lacks its devices: {}", error.what()));
  }
  return types;
}

Status check_names(const load::Target& target, const std::vector<config::ModelConfig>& models) {
  GPULET_TRY(const auto known, load::fetch_models(target));
  for (const config::ModelConfig& model : models) {
    const bool taken = std::any_of(known.begin(), known.end(),
                                   [&](const ModelInfo& one) { return one.name == model.name; });
    if (taken) {
      return {StatusCode::invalid,
              fmt::format("the frontend has a model {0} already; choose another name with --name, "
                          "or take it out first with `gpulet models unload {0}`",
                          model.name)};
    }
  }
  return {};
}

// The type of the frontend's devices for which the measurement on this machine holds.
Result<std::string> choose_type(const AddOptions& options, const load::Target& target,
                                const std::string& measured) {
  GPULET_TRY(const auto types, types_of_devices(target));
  const std::string& chosen = options.type.empty() ? measured : options.type;
  if (types.empty() || types.contains(chosen)) return chosen;
  return Status(
      StatusCode::invalid,
      fmt::format("the frontend has no device of type {}, only {}; name the one that is like {} of "
                  "this machine with --type, or run this command on a machine with such a device",
                  chosen, joined(std::vector<std::string>(types.begin(), types.end())), measured));
}

// The device that is measured, as `gpulet profile run --device` names it.
Result<std::string> device_for(const AddOptions& options,
                               const std::vector<config::ModelConfig>& models) {
  if (!options.device.empty()) return options.device;
  GPULET_TRY(const auto proxies, find_proxies());
  GPULET_TRY(const auto machine, devices_for(models, proxies, "auto", std::cerr));
  return device_to_measure(machine);
}

// The entries, each with its measurement for that type.
Result<std::string> measured_entries(const AddOptions& options, const load::Target& target,
                                     DescribedModels described) {
  GPULET_TRY(const std::string device, device_for(options, described.models));
  // Before the measurement, which takes its time.
  GPULET_TRY(const auto named, parse_device(device));
  GPULET_TRY(const auto measured_type, type_of(named));
  GPULET_TRY(const auto type, choose_type(options, target, measured_type));
  GPULET_TRY(auto request, measurement_for(options.files, described.models, device));
  request.beside_others = true;
  // The proxies inherit it. It counts where no cgroups divide the time.
  const int ignored = ::nice(kLowestPriority);
  static_cast<void>(ignored);
  GPULET_TRY(const auto measured, measure_models(request, described, std::cerr));
  if (Status settled = settle_objectives(measured, described, std::cerr); !settled.ok())
    return settled;
  for (config::ModelConfig& model : described.models) {
    if (model.rate <= 0) model.rate = options.rate;
    model.measured.emplace(type, profile::measurement_of(measured, model));
  }
  return models_text(described.models, described.applications);
}

// The entries without latencies: the frontend estimates them.
Result<std::string> entries_to_estimate(const AddOptions& options, DescribedModels described) {
  for (config::ModelConfig& model : described.models) {
    if (model.slo_ms <= 0) {
      return Status(StatusCode::invalid,
                    fmt::format("model {} has no objective, and --estimate measures nothing to "
                                "propose one; give it with --slo",
                                model.name));
    }
    if (model.rate <= 0) model.rate = options.rate;
  }
  return models_text(described.models, described.applications);
}

int report_registered(const AddOptions& options, const std::vector<ModelInfo>& models) {
  nlohmann::ordered_json document = nlohmann::ordered_json::array();
  for (const ModelInfo& model : models) {
    document.push_back({{"name", model.name}, {"state", to_string(model.state)}});
    if (!options.json) {
      std::cout << fmt::format("model {0}: registered; `gpulet wait {0}` waits until it serves\n",
                               model.name);
    }
  }
  if (options.json) std::cout << json_page(nlohmann::ordered_json({{"models", document}}));
  return kSucceeded;
}

// The frontend reads the files by itself.
Status explain_refusal(const Status& status) {
  if (status.code() != StatusCode::not_found) return status;
  return {status.code(), status.message() +
                             "; the frontend reads the file itself: put it at the same path on the "
                             "frontend's machine"};
}

// Takes the models out again that do not serve, so that the command can be repeated.
void take_out(const load::Target& target, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    ModelsChange change;
    change.kind = ModelsChange::Kind::unload;
    change.name = name;
    const auto changed = load::change_models(target, change, load::kCallTimeout);
    std::cerr << (changed.ok() ? fmt::format("model {}: taken out again\n", name)
                               : fmt::format("model {}: still registered: {}\n", name,
                                             changed.status().message()));
  }
}

int add_models(const AddOptions& options, const load::Target& target) {
  auto models = find_models(options.files, std::cerr);
  if (!models.ok()) return bad_input(models.status());
  if (!options.print) {
    if (Status names = check_names(target, models.value().models); !names.ok())
      return change_failed(names);
  }
  const auto text = options.estimate ? entries_to_estimate(options, std::move(models).value())
                                     : measured_entries(options, target, std::move(models).value());
  if (!text.ok()) return change_failed(text.status());
  if (options.print) {
    std::cout << text.value();
    return kSucceeded;
  }
  const ChangeDeadline deadline = deadline_of(options);
  const auto affected = request_change(target, load_of(text.value(), kTextName), deadline);
  if (!affected.ok()) return change_failed(explain_refusal(affected.status()));
  if (options.no_wait) return report_registered(options, affected.value());
  std::vector<std::string> failed;
  const int code = await_and_report(options, target, affected.value(), deadline, &failed);
  take_out(target, failed);
  return code;
}

}  // namespace

void add_models_add_command(CLI::App& models, Action& chosen) {
  const auto [command, options] = add_command(
      models, chosen, "add", "measure model files on this machine and register them", add_models);
  add_model_file_options(*command, options->files);
  add_checked(*command, "--rate", options->rate,
              "requests per second that the first plan expects of each", number_within(0, 1e9));
  command->add_flag(
      "--estimate", options->estimate,
      "measure nothing: the frontend runs a few batches, and estimates the other latencies");
  command
      ->add_option("--device", options->device,
                   "where to measure: cpu:CORE or cuda:GPU (default: the first GPU or core)")
      ->excludes(command->get_option("--estimate"));
  command->add_option("--type", options->type,
                      "type of the frontend's devices that are like that one (default: its own)");
  command->add_flag("--no-wait", options->no_wait, "do not wait until the models serve");
  command->add_flag("--print", options->print,
                    "print the entries for a models file instead of registering them");
  add_change_options(*command, *options);
  command->footer(
      "Measures on one device of this machine, with 25, 50, 75 and 100 % of it in turn, for about "
      "--measure-seconds and at a low priority: what serves there goes first. The cache is that of "
      "`gpulet serve`. The models serve until the frontend restarts; to keep them, add to its "
      "models file what --print prints. Paths are paths on the frontend's machine, too. "
      "Example: gpulet models add resnet50.onnx --slo 80ms");
}

}  // namespace gpulet::tools
