#include "tools/serve/example_request.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "gpulet/core/bytes_tensor.h"

namespace gpulet::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kClasses = 3;
constexpr const char* kString = "text";  // of an example

// Where a client of this machine reaches a port that listens on all addresses.
std::string address_of(const config::Endpoint& endpoint) {
  return fmt::format("{}:{}", endpoint.host == "0.0.0.0" ? "localhost" : endpoint.host,
                     endpoint.port);
}

std::string url_of(const config::ModelConfig& model, const config::Endpoint& http) {
  return fmt::format("http://{}/v2/models/{}/infer", address_of(http), model.name);
}

Json shape_of(const TensorSpec& spec) {
  Json shape = {1};
  for (const std::int64_t dimension : spec.shape) shape.push_back(dimension);
  return shape;
}

// Inside single quotes of sh.
std::string quoted(const std::string& text) {
  std::string inside;
  for (const char letter : text)
    inside += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return inside;
}

bool is_row(const TensorSpec& spec) {
  return spec.type != DataType::bytes && spec.shape.size() == 1 && spec.shape.front() > kClasses;
}

}  // namespace

std::string curl_line(const config::ModelConfig& model, const config::Endpoint& http) {
  Json request;
  std::size_t bytes = 0;
  for (const TensorSpec& input : model.inputs) {
    if (input.type == DataType::bytes) {
      request["inputs"].push_back({{"name", input.name},
                                   {"datatype", to_string(input.type)},
                                   {"shape", shape_of(input)},
                                   {"data", Json(element_count(input), kString)}});
      continue;
    }
    const std::size_t size = byte_size(input).value();
    request["inputs"].push_back({{"name", input.name},
                                 {"datatype", to_string(input.type)},
                                 {"shape", shape_of(input)},
                                 {"parameters", {{"binary_data_size", size}}}});
    bytes += size;
  }
  for (const TensorSpec& output : model.outputs) {
    Json asked = {{"name", output.name}};
    if (is_row(output)) asked["parameters"] = {{"classification", kClasses}};
    request["outputs"].push_back(std::move(asked));
  }
  const std::string text = request.dump();
  if (bytes == 0) return fmt::format("curl -s -d '{}' {}", quoted(text), url_of(model, http));
  return fmt::format(
      "(printf '%s' '{}'; head -c {} /dev/zero) | curl -s --data-binary @- \\\n"
      "    -H 'Inference-Header-Content-Length: {}' {}",
      quoted(text), bytes, text.size(), url_of(model, http));
}

std::string python_snippet(const config::ModelConfig& model, const config::Endpoint& http) {
  std::string inputs;
  for (const TensorSpec& input : model.inputs) {
    const char* const value = input.type == DataType::boolean ? "False"
                              : input.type == DataType::bytes ? "\"text\""
                                                              : "0";
    inputs += fmt::format(
        "    {{\"name\": {}, \"datatype\": \"{}\", \"shape\": {}, \"data\": [{}] * {}}},\n",
        Json(input.name).dump(), to_string(input.type), shape_of(input).dump(), value,
        element_count(input));
  }
  return fmt::format(
      "import json, urllib.request\n"
      "request = {{\"inputs\": [\n{}]}}\n"
      "reply = urllib.request.urlopen(\"{}\", json.dumps(request).encode())\n"
      "for output in json.load(reply)[\"outputs\"]:\n"
      "    print(output[\"name\"], output[\"shape\"], output[\"data\"][:5])\n",
      inputs, url_of(model, http));
}

}  // namespace gpulet::tools
