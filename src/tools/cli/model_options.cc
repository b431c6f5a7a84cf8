#include "tools/cli/model_options.h"

#include <fmt/format.h>

#include <filesystem>
#include <ostream>

#include "tools/report/format.h"

namespace gpulet::tools {
namespace {

// Without LibTorch there is one program only.
Result<ProxyPrograms> find_proxies() {
  const auto onnx = find_program("gpulet-proxy-onnx");
  const auto torch = find_program("gpulet-proxy");
  if (!onnx.ok() && !torch.ok()) return torch.status();
  if (!onnx.ok()) return ProxyPrograms{.proxy = torch.value()};
  return ProxyPrograms{.proxy = torch.ok() ? torch.value() : onnx.value(), .onnx = onnx.value()};
}

}  // namespace

void add_model_file_options(CLI::App& command, ModelFileOptions& options) {
  command
      .add_option(
          "files", options.models.files,
          "model files (ONNX or TorchScript), folders as Triton has them, or a models file (.json)")
      ->required();
  command.add_option("--slo", options.slo,
                     "objective of all models, such as 50ms (default: proposed from a measurement, "
                     "or as in the models file)");
  command.add_option("--name", options.models.name, "name of the model (default: of its file)");
  command.add_option("--input", options.models.inputs,
                     "an input of a TorchScript file, such as image:FP32:3,224,224");
  command.add_option("--output", options.models.outputs,
                     "an output of a TorchScript file, such as logits:FP32:1000");
  command.add_option("--shape", options.models.shapes,
                     "sizes that an ONNX file leaves open, such as tokens:128");
  command
      .add_option("--buckets", options.models.buckets,
                  "lengths to which requests are padded with zeros in a dimension that a file "
                  "leaves open, such as 32,64,128")
      ->delimiter(',');
  add_checked(command, "--max-batch", options.models.max_batch,
              "largest number of requests that are computed together", CLI::Range(1, 1024));
  add_checked(command, "--measure-seconds", options.measure_seconds,
              "time to measure all models that are not in the cache", number_within(1, 3600));
  command.add_flag("--measure-again", options.measure_again,
                   "measure models that are in the cache, too");
  command.add_option("--cache", options.cache,
                     "folder of measurements (default: ~/.cache/gpulet/measured)");
}

Result<std::vector<config::ModelConfig>> find_models(const ModelFileOptions& options) {
  auto models = describe_models(options.models);
  if (!models.ok()) return models;
  for (config::ModelConfig& model : models.value()) model.measured.clear();  // measured here
  if (options.slo.empty()) return models;
  const auto parsed = parse_milliseconds(options.slo);
  if (!parsed.ok()) return parsed.status().within("--slo");
  for (config::ModelConfig& model : models.value()) model.slo_ms = parsed.value();
  return models;
}

Result<QuickMeasurement> measurement_for(const ModelFileOptions& options,
                                         const std::vector<config::ModelConfig>& models,
                                         const std::string& device) {
  const auto proxies = find_proxies();
  if (!proxies.ok()) return proxies.status();
  return QuickMeasurement{
      .models = config::with_buckets(models),
      .device = device,
      .cache = options.cache.empty() ? default_cache() : std::filesystem::path(options.cache),
      .budget = from_seconds(options.measure_seconds),
      .again = options.measure_again,
      .proxies = proxies.value()};
}

void propose_objectives(const profile::Profile& measured, std::vector<config::ModelConfig>& models,
                        std::ostream& out) {
  for (config::ModelConfig& model : models) {
    if (model.slo_ms > 0) continue;
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
}

}  // namespace gpulet::tools
