// gpulet infer: one request to a running frontend, and its answer.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/load/call.h"
#include "tools/command.h"
#include "tools/command_line.h"
#include "tools/image.h"
#include "tools/infer_input.h"
#include "tools/table.h"
#include "tools/target_options.h"
#include "tools/tensor_values.h"

namespace gpulet::tools {
namespace {

using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

// On top of the request's own timeout: a model that sleeps has to wake.
constexpr Duration kPatience = std::chrono::seconds(30);
constexpr double kLongestTimeoutMs = 3600000;

struct InferOptions {
  TargetOptions target;
  std::string model;
  std::string input;
  std::string image;
  std::vector<double> mean;
  std::vector<double> deviation;
  double timeout_ms = 0;
  std::size_t top = 0;
  std::string labels;
  bool json = false;
};

struct Answer {
  serve::InferReply reply;
  double latency_ms = 0;
};

Result<serve::ModelInfo> find_model(const load::Target& target, const std::string& name) {
  Result<std::vector<serve::ModelInfo>> models = load::fetch_models(target);
  if (!models.ok()) return models.status();
  std::string names;
  for (serve::ModelInfo& model : models.value()) {
    if (model.name == name) return std::move(model);
    names += (names.empty() ? "" : ", ") + model.name;
  }
  return Status(StatusCode::not_found, config::to_string(target.endpoint) + ": has no model " +
                                           name + "; it has " + (names.empty() ? "none" : names));
}

Result<Bytes> payload_of(const InferOptions& options, const serve::ModelInfo& model) {
  if (options.image.empty()) return read_infer_input(options.input, model.inputs);
  if (model.inputs.size() != 1)
    return Status(StatusCode::invalid, "--image: model " + model.name + " has " +
                                           std::to_string(model.inputs.size()) +
                                           " inputs; give them with --input");
  const Result<Image> image = read_image(options.image);
  if (!image.ok()) return image.status();
  std::optional<Normalisation> normalisation;
  if (!options.mean.empty() || !options.deviation.empty()) {
    normalisation = Normalisation{options.mean.empty() ? std::vector{0.0} : options.mean,
                                  options.deviation.empty() ? std::vector{1.0} : options.deviation};
  }
  Result<Bytes> tensor = to_tensor(image.value(), model.inputs.front(), normalisation);
  if (!tensor.ok()) return tensor.status().within(options.image);
  return tensor;
}

Result<Answer> ask(const load::Target& target, const serve::InferRequest& request) {
  const Clock::time_point began = Clock::now();
  Result<serve::FrontendReply> reply = load::call(target, request, request.timeout + kPatience);
  if (!reply.ok()) return reply.status();
  auto* const infer = std::get_if<serve::InferReply>(&reply.value());
  if (infer == nullptr)
    return Status(StatusCode::malformed, config::to_string(target.endpoint) +
                                             ": answered something else than what was asked");
  if (!infer->status.ok()) {
    return Status(infer->status.code(), request.model + ": " + infer->status.to_string());
  }
  const std::chrono::duration<double, std::milli> taken = Clock::now() - began;
  return Answer{std::move(*infer), taken.count()};
}

Result<std::vector<std::string>> read_labels(const std::string& file) {
  std::vector<std::string> labels;
  if (file.empty()) return labels;
  std::ifstream stream(file);
  if (!stream) return Status(StatusCode::not_found, file + ": cannot be read");
  for (std::string line; std::getline(stream, line);) labels.push_back(line);
  return labels;
}

struct Class {
  std::size_t index = 0;
  double value = 0;
};

// The largest elements, the largest first; of equals the first.
std::vector<Class> largest(const TensorSpec& output, const Bytes& bytes, std::size_t count) {
  std::vector<Class> classes(bytes.size() / byte_size(output.type));
  for (std::size_t i = 0; i < classes.size(); ++i)
    classes[i] = {i, value_at(output.type, bytes.view(), i)};
  std::stable_sort(classes.begin(), classes.end(),
                   [](const Class& a, const Class& b) { return a.value > b.value; });
  classes.resize(std::min(count, classes.size()));
  return classes;
}

std::string label_of(const std::vector<std::string>& labels, std::size_t index) {
  return index < labels.size() ? labels[index] : std::string();
}

ordered_json document_of(const InferOptions& options, const Answer& answer,
                         const std::vector<std::string>& labels) {
  ordered_json outputs = ordered_json::array();
  for (std::size_t i = 0; i < answer.reply.outputs.size(); ++i) {
    const TensorSpec& spec = answer.reply.outputs[i];
    const Bytes& bytes = answer.reply.payload[i];
    ordered_json output = {
        {"name", spec.name}, {"datatype", to_string(spec.type)}, {"shape", spec.shape}};
    if (options.top == 0) {
      output["data"] = values_json(spec.type, bytes.view());
    } else {
      ordered_json top = ordered_json::array();
      for (const Class& one : largest(spec, bytes, options.top)) {
        top.push_back({{"class", one.index}, {"value", one.value}});
        if (!labels.empty()) top.back()["label"] = label_of(labels, one.index);
      }
      output["top"] = std::move(top);
    }
    outputs.push_back(std::move(output));
  }
  return {{"model_name", options.model},
          {"latency_ms", answer.latency_ms},
          {"queued_ms", to_ms(answer.reply.queued)},
          {"executed_ms", to_ms(answer.reply.executed)},
          {"batch_size", answer.reply.batch_size},
          {"outputs", std::move(outputs)}};
}

std::string top_text(const InferOptions& options, const Answer& answer,
                     const std::vector<std::string>& labels) {
  std::string text = options.model + " answered in " + fixed(answer.latency_ms, 1) + " ms\n";
  for (std::size_t i = 0; i < answer.reply.outputs.size(); ++i) {
    const TensorSpec& spec = answer.reply.outputs[i];
    Table table({{"class"}, {"value"}, {labels.empty() ? "" : "label", Table::Align::left}});
    for (const Class& one : largest(spec, answer.reply.payload[i], options.top))
      table.add_row({std::to_string(one.index), fixed(one.value, 4), label_of(labels, one.index)});
    text += '\n' + spec.name + ' ' + to_string(spec) + '\n' + table.to_string();
  }
  return text;
}

int infer(const InferOptions& options) {
  const Result<load::Target> target = find_target(options.target);
  if (!target.ok()) return bad_input(target.status());
  if (options.input.empty() == options.image.empty())
    return bad_input(Status(StatusCode::invalid, "give what to send with --input or --image"));
  const Result<std::vector<std::string>> labels = read_labels(options.labels);
  if (!labels.ok()) return bad_input(labels.status().within("--labels"));
  const Result<serve::ModelInfo> model = find_model(target.value(), options.model);
  if (!model.ok()) {
    const bool unknown = model.status().code() == StatusCode::not_found;
    return unknown ? bad_input(model.status()) : run_failed(model.status());
  }
  Result<Bytes> payload = payload_of(options, model.value());
  if (!payload.ok()) return bad_input(payload.status());

  serve::InferRequest request;
  request.model = options.model;
  request.timeout = from_ms(options.timeout_ms);
  request.inputs = model.value().inputs;
  request.payload = std::move(payload).value();
  const Result<Answer> answer = ask(target.value(), request);
  if (!answer.ok()) return run_failed(answer.status());
  if (options.top > 0 && !options.json) {
    std::cout << top_text(options, answer.value(), labels.value());
  } else {
    std::cout << document_of(options, answer.value(), labels.value()).dump() << '\n';
  }
  return kSucceeded;
}

}  // namespace

void add_infer_command(CLI::App& app, Run& chosen) {
  CLI::App* const command =
      app.add_subcommand("infer", "send one request to a running frontend and print its answer");
  const auto options = std::make_shared<InferOptions>();
  add_target_options(*command, options->target);
  command->add_option("--model", options->model, "the model or application to ask")
      ->required()
      ->type_name(kModelName);
  auto* const input = command->add_option(
      "--input", options->input,
      "a .json file with the values of the inputs, as {\"NAME\":[...]} or as a request of the Open "
      "Inference Protocol; any other file holds the raw tensors one after another");
  command
      ->add_option("--image", options->image,
                   "an image (" + std::string(image_formats()) +
                       ") for a model with one input [C,H,W] or [H,W,C]: stretched to its size, "
                       "values from 0 to 1, for whole types 0 to 255")
      ->excludes(input);
  command
      ->add_option(
          "--mean", options->mean,
          "subtracted from the image's values: one number, or one a channel, as 0.5,0.5,0.5")
      ->delimiter(',');
  command
      ->add_option("--std", options->deviation,
                   "then they are divided by it: one number, or one a channel")
      ->delimiter(',');
  command
      ->add_option("--timeout-ms", options->timeout_ms,
                   "the request's deadline; 0: the model's objective")
      ->check(number_within(0, kLongestTimeoutMs))
      ->capture_default_str();
  command
      ->add_option("--top", options->top,
                   "print the K largest elements of each output instead of all")
      ->check(natural_number())
      ->type_name("K");
  command->add_option("--labels", options->labels, "a file with the name of a class on each line");
  command->add_flag("--json", options->json, "print one JSON document; without --top it always is");
  command->footer("Ends with 1 if the request was refused or failed.");
  command->callback([options, &chosen] { chosen = [options] { return infer(*options); }; });
}

}  // namespace gpulet::tools
