// The commands that send a request to a running frontend, or trace requests: infer and trace.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "gpulet/base/text.h"
#include "gpulet/load/call.h"
#include "tools/cli/command.h"
#include "tools/cli/infer_call.h"
#include "tools/cli/infer_input.h"
#include "tools/cli/target_options.h"
#include "tools/report/format.h"
#include "tools/report/terminal.h"

namespace gpulet::tools {
namespace {

using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

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

Result<Bytes> payload_of(const InferOptions& options, ModelInfo& model) {
  if (options.image.empty()) return read_infer_input(options.input, model.inputs);
  std::optional<Normalisation> normalisation;
  if (!options.mean.empty() || !options.deviation.empty()) {
    normalisation = Normalisation{options.mean.empty() ? std::vector{0.0} : options.mean,
                                  options.deviation.empty() ? std::vector{1.0} : options.deviation};
  }
  return read_image_input(options.image, model, normalisation);
}

ordered_json response_json(const InferOptions& options, const InferResponse& response,
                           const std::vector<std::string>& labels) {
  ordered_json outputs = ordered_json::array();
  for (std::size_t i = 0; i < response.reply.outputs.size(); ++i) {
    const TensorSpec& spec = response.reply.outputs[i];
    const Bytes& bytes = response.reply.payload[i];
    ordered_json output = {
        {"name", spec.name}, {"datatype", to_string(spec.type)}, {"shape", spec.shape}};
    if (options.top == 0 || spec.type == DataType::bytes) {
      output["data"] = values_json(spec.type, bytes.view());
    } else {
      ordered_json top = ordered_json::array();
      for (const ClassScore& one : largest(spec, bytes, options.top)) {
        top.push_back({{"class", one.index}, {"value", one.value}});
        if (!labels.empty()) top.back()["label"] = label_of(labels, one.index);
      }
      output["top"] = std::move(top);
    }
    outputs.push_back(std::move(output));
  }
  return {{"model_name", options.model},
          {"latency_ms", response.latency_ms},
          {"queued_ms", to_ms(response.reply.queued)},
          {"executed_ms", to_ms(response.reply.executed)},
          {"batch_size", response.reply.batch_size},
          {"outputs", std::move(outputs)}};
}

// Strings of a model may be no UTF-8.
std::string text_of(const ordered_json& document) { return json_line(document); }

std::string top_text(const InferOptions& options, const InferResponse& response,
                     const std::vector<std::string>& labels) {
  std::string text = options.model + " responded in " + fixed(response.latency_ms, 1) + " ms\n";
  for (std::size_t i = 0; i < response.reply.outputs.size(); ++i) {
    const TensorSpec& spec = response.reply.outputs[i];
    if (spec.type == DataType::bytes) {
      text += '\n' + spec.name + ' ' + to_string(spec) + '\n' +
              text_of(values_json(spec.type, response.reply.payload[i].view())) + '\n';
      continue;
    }
    Table table({{"class"}, {"value"}, {labels.empty() ? "" : "label", Table::Align::left}});
    for (const ClassScore& one : largest(spec, response.reply.payload[i], options.top))
      table.add_row({std::to_string(one.index), fixed(one.value, 4), label_of(labels, one.index)});
    text += '\n' + spec.name + ' ' + to_string(spec) + '\n' + table.to_string();
  }
  return text;
}

int infer(const InferOptions& options, const load::Target& target) {
  if (options.input.empty() == options.image.empty())
    return bad_input(Status(StatusCode::invalid, "give the inputs with --input or --image"));
  const Result<std::vector<std::string>> labels = read_labels(options.labels);
  if (!labels.ok()) return bad_input(labels.status().within("--labels"));
  Result<ModelInfo> model = find_model(target, options.model);
  if (!model.ok()) {
    const bool unknown = model.status().code() == StatusCode::not_found;
    return unknown ? bad_input(model.status()) : run_failed(model.status());
  }
  Result<Bytes> payload = payload_of(options, model.value());
  if (!payload.ok()) return bad_input(payload.status());

  InferRequest request;
  request.model = options.model;
  request.timeout = from_ms(options.timeout_ms);
  request.inputs = model.value().inputs;
  request.payload = std::move(payload).value();
  const Result<InferResponse> response = send_request(target, request);
  if (!response.ok()) return run_failed(response.status());
  if (options.top > 0 && !options.json) {
    std::cout << top_text(options, response.value(), labels.value());
  } else {
    std::cout << text_of(response_json(options, response.value(), labels.value())) << '\n';
  }
  return kSucceeded;
}

// ---- trace

constexpr double kLongestTraceSeconds = 600;
// Added to the traced time, for the connection and a large response.
constexpr Duration kTraceGrace = std::chrono::seconds(60);
constexpr std::uint16_t kDefaultClientPort = 7000;
constexpr std::uint16_t kDefaultHttpPort = 8000;

struct TraceOptions {
  TargetOptions target;
  std::string http;  // empty: beside the target
  double seconds = 10;
  std::string format = "chrome";
  std::string out;
  bool json = false;
};

// Shows the elapsed time.
class TraceProgress {
 public:
  explicit TraceProgress(double seconds) : seconds_(seconds) {}

  void update() const {
    const double passed = std::chrono::duration<double>(Clock::now() - began_).count();
    const std::string text =
        passed < seconds_ ? fixed(passed, 1) + " of " + fixed(seconds_, 1) + " s; Ctrl-C cancels"
                          : "waiting for the response";
    line_.show("tracing: " + text);
  }

 private:
  const double seconds_;
  const ProgressLine line_;
  const Clock::time_point began_ = Clock::now();
};

Result<std::string> fetch_trace_at(const TraceOptions& options, const load::Target& target) {
  const std::string path = fmt::format("/gpulet/trace?seconds={}&format={}",
                                       shortest(options.seconds, 3), options.format);
  const TraceProgress progress(options.seconds);
  SignalWatch signals({SIGINT, SIGTERM});
  return load::fetch_page(target, path, from_seconds(options.seconds) + kTraceGrace, [&] {
    progress.update();
    return !signals.take().has_value();
  });
}

// Where to ask for a trace, which comes over HTTP. --target names the port for clients, as for all
// commands; the frontend's HTTP port in its place is taken, too.
Result<std::vector<load::Target>> trace_targets(const TraceOptions& options, load::Target target) {
  std::vector<load::Target> targets;
  if (options.http.empty()) {
    if (target.endpoint.port != kDefaultClientPort) targets.push_back(target);
    target.endpoint.port = kDefaultHttpPort;
  } else {
    Result<config::Endpoint> endpoint = config::parse_endpoint(options.http);
    if (!endpoint.ok()) return endpoint.status().within("--http");
    target.endpoint = std::move(endpoint).value();
  }
  targets.push_back(std::move(target));
  return targets;
}

Result<std::string> fetch_trace(const TraceOptions& options,
                                const std::vector<load::Target>& targets) {
  Result<std::string> text = fetch_trace_at(options, targets.front());
  for (std::size_t i = 1; i < targets.size(); ++i) {
    if (text.ok() || text.status().code() != StatusCode::malformed) break;
    text = fetch_trace_at(options, targets[i]);
  }
  return text;
}

Status cannot_write(const std::string& file) {
  return {StatusCode::invalid, "--out: " + file + " cannot be written"};
}

// Fails before tracing rather than after minutes of it.
Status check_writable(const std::string& file) {
  std::error_code ignored;
  const bool existed = std::filesystem::exists(file, ignored);
  const bool writable = std::ofstream(file, std::ios::app).is_open();
  if (!existed && writable) std::filesystem::remove(file, ignored);
  return writable ? Status() : cannot_write(file);
}

Status write_trace(const std::string& file, const std::string& text) {
  std::ofstream stream(file, std::ios::binary | std::ios::trunc);
  stream << text;
  stream.close();
  return stream ? Status() : cannot_write(file);
}

ordered_json trace_json(const TraceOptions& options, const std::string& text) {
  ordered_json document = {
      {"format", options.format}, {"seconds", options.seconds}, {"bytes", text.size()}};
  if (!options.out.empty()) {
    document["file"] = options.out;
    return document;
  }
  auto parsed = ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  const bool is_json = options.format == "chrome" && !parsed.is_discarded();
  document["trace"] = is_json ? std::move(parsed) : ordered_json(text);
  return document;
}

int trace(const TraceOptions& options, const load::Target& target) {
  if (!options.out.empty()) {
    if (const Status status = check_writable(options.out); !status.ok()) return bad_input(status);
  }
  const Result<std::vector<load::Target>> targets = trace_targets(options, target);
  if (!targets.ok()) return bad_input(targets.status());
  const Result<std::string> text = fetch_trace(options, targets.value());
  if (!text.ok()) return run_failed(text.status());
  if (!options.out.empty()) {
    if (const Status status = write_trace(options.out, text.value()); !status.ok())
      return run_failed(status);
  }
  if (options.json) {
    std::cout << trace_json(options, text.value()).dump() << '\n';
  } else if (options.out.empty()) {
    std::cout << text.value();
  } else {
    std::cerr << options.out << ": " << text.value().size() << " bytes\n";
  }
  return kSucceeded;
}

}  // namespace

void add_infer_command(CLI::App& app, Action& chosen) {
  const auto [command, options] = add_command(
      app, chosen, "infer", "send one request to a running frontend and print the response", infer);
  add_target_options(*command, options->target);
  command->add_option("--model", options->model, "the model or application")
      ->required()
      ->type_name(kModelName);
  auto* const input =
      command->add_option("--input", options->input,
                          "file with the inputs; a .json file holds {\"NAME\":[...]} or a request "
                          "of the Open Inference "
                          "Protocol, any other file the raw tensors one after another");
  command
      ->add_option(
          "--image", options->image,
          fmt::format("an image ({}) for a model with one input of shape [C,H,W] or "
                      "[H,W,C]; it is resized to the input, and its values range from 0 "
                      "to 1, or from 0 to 255 for integer types; a model of encoded images gets "
                      "the file, a JPEG or PNG, as it is",
                      image_formats()))
      ->excludes(input);
  command
      ->add_option("--mean", options->mean,
                   "subtract this from the image's values: one number, or one per channel "
                   "(0.5,0.5,0.5)")
      ->delimiter(',');
  command
      ->add_option("--std", options->deviation,
                   "divide the image's values by this, after --mean: one number, or one per "
                   "channel")
      ->delimiter(',');
  add_checked(*command, "--timeout-ms", options->timeout_ms,
              "milliseconds until the request's deadline; 0: the model's latency objective",
              number_within(0, kLongestTimeoutMs));
  command->add_option("--top", options->top, "print only the K largest elements of each output")
      ->check(natural_number())
      ->type_name("K");
  command->add_option("--labels", options->labels,
                      "file with the names of the classes, one per line");
  command->add_flag("--json", options->json, "print one JSON document (the default without --top)");
  command->footer("Exits with 1 if the request was refused or failed.");
}

void add_trace_command(CLI::App& app, Action& chosen) {
  const auto [command, options] = add_command(
      app, chosen, "trace", "trace all requests of a running frontend for some seconds", trace);
  add_target_options(*command, options->target);
  command->add_option("--http", options->http,
                      fmt::format("the frontend's address for HTTP (default: the host of --target, "
                                  "port {})",
                                  kDefaultHttpPort));
  add_checked(*command, "--seconds", options->seconds,
              "seconds to trace; 0: print the requests that the frontend has sampled so far (key "
              "trace_every)",
              number_within(0, kLongestTraceSeconds));
  add_checked(*command, "--format", options->format,
              "chrome: JSON for Perfetto and chrome://tracing; log: CSV of the requests to models; "
              "applications: CSV of the requests to applications",
              one_of({"chrome", "log", "applications"}));
  command->add_option("--out", options->out, "file to write (default: standard output)");
  command->add_flag("--json", options->json, "print one JSON document with the trace or its file");
  command->footer("This is an admin call: a frontend with admin tokens requires one.");
}

}  // namespace gpulet::tools
