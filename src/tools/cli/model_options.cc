#include "tools/cli/model_options.h"

#include <fmt/format.h>

#include <filesystem>
#include <ostream>
#include <set>
#include <utility>

#include "tools/report/format.h"
#include "tools/serve/learned_shapes.h"
#include "tools/serve/proxy_formats.h"
#include "tools/serve/serving_devices.h"

namespace gpulet::tools {
void add_model_file_options(CLI::App& command, ModelFileOptions& options) {
  command
      .add_option("files", options.models.files,
                  "model files (ONNX, TorchScript or .pt2), folders as Triton has them, or a "
                  "models file (.json)")
      ->required();
  command.add_option("--slo", options.slo,
                     "objective of all models, such as 50ms (default: proposed from a measurement, "
                     "or as in the models file)");
  command.add_option("--name", options.models.name,
                     "name of the model (default: of its file or its folder)");
  // One value each, so that a file may follow.
  const auto repeated = [&command](const char* name, auto& values, const char* what) {
    return command.add_option(name, values, what)->allow_extra_args(false);
  };
  repeated("--input", options.models.inputs,
           "an input of a TorchScript or .pt2 file, such as image:FP32:3,224,224");
  repeated("--output", options.models.outputs,
           "an output of a TorchScript or .pt2 file, such as logits:FP32:1000");
  repeated("--shape", options.models.shapes,
           "sizes that a file leaves open: of a tensor or a dimension, such as tokens:128, or "
           "MODEL/tokens:128 for one model");
  repeated("--range", options.models.ranges,
           "least and greatest value of an input in samples and measurements, such as "
           "tokens:0,29999 (default: "
           "as far as the file tells it)");
  repeated("--uint8", options.models.byte_inputs,
           "an input for which clients send bytes, of which the model gets (x / 255 - MEAN) / STD: "
           "INPUT, INPUT:NHWC, INPUT:NHWC:imagenet or INPUT:NHWC:MEAN:STD");
  repeated("--optional", options.models.optional_inputs,
           "an input with a value in the file that requests may give or leave out");
  repeated("--buckets", options.models.buckets,
           "lengths to which requests are padded with zeros in a dimension that a file "
           "leaves open, such as 32,64,128")
      ->delimiter(',');
  add_checked(command, "--max-batch", options.models.max_batch,
              "largest number of requests that are computed together; 0: the model has no batch "
              "dimension, as is noticed where its file shows it",
              CLI::Range(0, 1024));
  add_checked(command, "--measure-seconds", options.measure_seconds,
              "time to measure all models that are not in the cache", number_within(1, 3600));
  command.add_flag("--measure-again", options.measure_again,
                   "measure models that are in the cache, too");
  add_proxy_options(command, options.native_models);
  command.add_option("--cache", options.cache,
                     "folder of measurements (default: ~/.cache/gpulet/measured)");
}

Result<DescribedModels> find_models(const ModelFileOptions& options, std::ostream& out) {
  const auto proxies = find_proxies();
  auto described = describe_models(options.models,
                                   proxies.ok() ? shape_learner(proxies.value()) : LearnShapes());
  if (!described.ok()) return described;
  out << limits_text(described.value());
  std::vector<config::ModelConfig>& models = described.value().models;
  for (config::ModelConfig& model : models) model.measured.clear();  // measured here
  if (options.slo.empty()) return described;
  const auto parsed = parse_milliseconds(options.slo);
  if (!parsed.ok()) return parsed.status().within("--slo");
  for (config::ModelConfig& model : models) model.slo_ms = parsed.value();
  return described;
}

Result<QuickMeasurement> measurement_for(const ModelFileOptions& options,
                                         const std::vector<config::ModelConfig>& models,
                                         const std::string& device) {
  GPULET_TRY(auto proxies, find_proxies());
  proxies.native_models = options.native_models;
  return QuickMeasurement{
      .models = config::with_buckets(models),
      .device = device,
      .cache = options.cache.empty() ? default_cache() : std::filesystem::path(options.cache),
      .budget = from_seconds(options.measure_seconds),
      .again = options.measure_again,
      .proxies = proxies};
}

namespace {

// Those of the models' files; a file that cannot be read fails later.
std::vector<FormatSupport> formats_of(const std::vector<config::ModelConfig>& models,
                                      std::vector<FormatSupport> all) {
  std::set<config::FileFormat> needed;
  for (const config::ModelConfig& model : models) {
    if (const auto format = config::format_of(model.file); format.ok())
      needed.insert(format.value());
  }
  std::erase_if(all, [&](const FormatSupport& one) { return !needed.contains(one.format); });
  return all;
}

}  // namespace

Result<MachineDevices> devices_for(const std::vector<config::ModelConfig>& models,
                                   const ProxyPrograms& proxies, const std::string& device,
                                   std::ostream& out) {
  MachineDevices machine = find_machine_devices();
  std::vector<FormatSupport> formats;
  if (!machine.gpus.empty()) formats = formats_of(models, supported_formats(proxies));
  auto chosen = choose_devices(std::move(machine), device, formats);
  if (!chosen.ok()) return chosen.status();
  if (!chosen.value().why_cores.empty())
    out << fmt::format("serving on the CPU cores: {}\n", chosen.value().why_cores);
  return std::move(chosen.value().machine);
}

namespace {

// Takes the model out where that is allowed, and says why; otherwise that is the failure.
Status take_out(const std::string& name, const Status& why, DescribedModels& described,
                std::ostream& out) {
  if (!described.may_be_left_out.contains(name)) return {StatusCode::invalid, why.message()};
  std::erase_if(described.models, [&name](const auto& model) { return model.name == name; });
  described.left_out.push_back({name, why});
  out << fmt::format("left out: {}\n", why.message());
  if (!described.models.empty()) return {};
  return {StatusCode::invalid, "no model can be served; each has a line above with the reason"};
}

void settle_objective(const profile::Profile& measured, config::ModelConfig& model,
                      std::ostream& out) {
  if (model.slo_ms > 0) return;
  // That of the longest requests.
  const std::string name = config::buckets_of(model).back().name;
  const ProposedObjective proposed = propose_objective(*measured.find(name));
  model.slo_ms = proposed.slo_ms;
  const std::string batch = fmt::format(
      "{} takes {} ms on a whole device",
      proposed.batch == 1 ? "one request" : fmt::format("a batch of {}", proposed.batch),
      shortest(proposed.batch_ms, 2));
  out << fmt::format("{}: objective {} ms, {}; choose another one with --slo\n", model.name,
                     shortest(proposed.slo_ms, 1),
                     proposed.slo_ms > kLeastProposedMs ? "2.5 times a batch: " + batch
                                                        : "the least that is proposed: " + batch);
}

}  // namespace

Result<profile::Profile> measure_models(const QuickMeasurement& request, DescribedModels& described,
                                        std::ostream& out) {
  auto measured = measure_quickly(request, out);
  if (!measured.ok()) return measured.status();
  const std::vector<config::ModelConfig> models = described.models;
  for (const config::ModelConfig& model : models) {
    for (const config::ModelConfig& bucket : config::buckets_of(model)) {
      const auto failed = measured.value().failures.find(bucket.name);
      if (failed == measured.value().failures.end()) continue;
      if (Status taken = take_out(model.name, failed->second, described, out); !taken.ok())
        return taken;
      break;
    }
  }
  return std::move(measured.value().profile);
}

Status settle_objectives(const profile::Profile& measured, DescribedModels& described,
                         std::ostream& out) {
  for (config::ModelConfig& model : described.models) settle_objective(measured, model, out);
  const std::vector<config::ModelConfig> models = described.models;
  for (const config::ModelConfig& model : models) {
    for (const config::ModelConfig& bucket : config::buckets_of(model)) {
      const Status kept = check_objective(*measured.find(bucket.name), model.slo_ms);
      if (kept.ok()) continue;
      if (Status taken = take_out(model.name, kept.within(bucket.name), described, out);
          !taken.ok()) {
        return taken;
      }
      break;
    }
  }
  return {};
}

}  // namespace gpulet::tools
