#include "tools/serve/example_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "gpulet/core/tensor.h"

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
  Json shape = Json::array();
  for (const std::int64_t dimension : batch_shape(spec, 1)) shape.push_back(dimension);
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

// Half precision has no form in JSON.
bool is_binary_only(const TensorSpec& spec) {
  return spec.type == DataType::fp16 || spec.type == DataType::bf16;
}

bool any_binary_only(const std::vector<TensorSpec>& specs) {
  return std::any_of(specs.begin(), specs.end(), is_binary_only);
}

Json named(const TensorSpec& input) {
  return {{"name", input.name}, {"datatype", to_string(input.type)}, {"shape", shape_of(input)}};
}

Json strings(const TensorSpec& input) { return Json(element_count(input), kString); }

// A request of zeros, whose tensors follow it in binary; strings are in the JSON.
struct BinaryRequest {
  Json json;
  std::size_t bytes = 0;  // of zeros after it
};

BinaryRequest binary_request(const config::ModelConfig& model) {
  BinaryRequest request;
  for (const TensorSpec& input : model.inputs) {
    Json tensor = named(input);
    if (input.type == DataType::bytes) {
      tensor["data"] = strings(input);
    } else {
      const std::size_t size = byte_size(input).value();
      tensor["parameters"] = {{"binary_data_size", size}};
      request.bytes += size;
    }
    request.json["inputs"].push_back(std::move(tensor));
  }
  return request;
}

// ---- Python, with tensors in binary

// The functions of the snippet that read an output.
std::string readers_of(const std::vector<TensorSpec>& outputs) {
  const bool brain = std::any_of(outputs.begin(), outputs.end(), [](const TensorSpec& output) {
    return output.type == DataType::bf16;
  });
  std::string text =
      "sizes = {\"BOOL\": \"?\", \"UINT8\": \"B\", \"INT8\": \"b\", \"INT16\": \"h\", "
      "\"INT32\": \"i\", \"INT64\": \"q\",\n"
      "         \"FP16\": \"e\", \"FP32\": \"f\", \"FP64\": \"d\"}\n";
  if (!brain) {
    return text +
           "def numbers(kind, data):\n"
           "    return [one for one, in struct.iter_unpack(\"<\" + sizes[kind], data)]\n";
  }
  return text +
         "def numbers(kind, data):\n"
         "    if kind == \"BF16\":  # the upper half of FP32\n"
         "        halves = [data[i:i + 2] for i in range(0, len(data), 2)]\n"
         "        kind, data = \"FP32\", b\"\".join(b\"\\0\\0\" + half for half in halves)\n"
         "    return [one for one, in struct.iter_unpack(\"<\" + sizes[kind], data)]\n";
}

std::string binary_snippet(const config::ModelConfig& model, const config::Endpoint& http) {
  BinaryRequest request = binary_request(model);
  for (const TensorSpec& output : model.outputs) {
    Json asked = {{"name", output.name}};
    if (output.type != DataType::bytes) asked["parameters"] = {{"binary_data", true}};
    request.json["outputs"].push_back(std::move(asked));
  }
  // Python reads the text as JSON does.
  return fmt::format(
      "import json, struct, urllib.request\n"
      "{readers}"
      "head = json.dumps(json.loads({json})).encode()\n"
      "request = urllib.request.Request(\"{url}\", head + bytes({bytes}),\n"
      "                                 {{\"Inference-Header-Content-Length\": str(len(head))}})\n"
      "reply = urllib.request.urlopen(request)\n"
      "body, at = reply.read(), int(reply.headers.get(\"Inference-Header-Content-Length\", 0))\n"
      "for output in json.loads(body[:at] if at else body)[\"outputs\"]:\n"
      "    size = output.get(\"parameters\", {{}}).get(\"binary_data_size\")\n"
      "    data = output[\"data\"] if size is None else numbers(output[\"datatype\"], "
      "body[at:at + size])\n"
      "    at += size or 0\n"
      "    print(output[\"name\"], output[\"shape\"], data[:5])\n",
      fmt::arg("readers", readers_of(model.outputs)),
      fmt::arg("json", Json(request.json.dump()).dump()), fmt::arg("url", url_of(model, http)),
      fmt::arg("bytes", request.bytes));
}

bool takes_a_photo(const config::ModelConfig& model) {
  return model.inputs.size() == 1 && model.inputs.front().image;
}

std::string photo_snippet(const config::ModelConfig& model, const config::Endpoint& http) {
  return fmt::format(
      "import json, urllib.request\n"
      "photo = open(\"photo.jpg\", \"rb\").read()\n"
      "request = urllib.request.Request(\"{}\", photo, {{\"Content-Type\": \"image/jpeg\"}})\n"
      "for output in json.load(urllib.request.urlopen(request))[\"outputs\"]:\n"
      "    print(output[\"name\"], output[\"shape\"], output[\"data\"][:5])\n",
      url_of(model, http));
}

}  // namespace

std::string curl_line(const config::ModelConfig& model, const config::Endpoint& http) {
  if (takes_a_photo(model)) return "curl -s -F image=@photo.jpg " + url_of(model, http);
  BinaryRequest request = binary_request(model);
  const bool into_file = any_binary_only(model.outputs);
  for (const TensorSpec& output : model.outputs) {
    Json asked = {{"name", output.name}};
    if (is_binary_only(output)) {
      asked["parameters"] = {{"binary_data", true}};
    } else if (is_row(output)) {
      asked["parameters"] = {{"classification", kClasses}};
    }
    request.json["outputs"].push_back(std::move(asked));
  }
  const std::string text = request.json.dump();
  const std::string curl =
      into_file ? "curl -s -o answer.bin -w 'HTTP %{http_code}: %{size_download} bytes in "
                  "answer.bin\n'"
                : "curl -s";
  if (request.bytes == 0)
    return fmt::format("{} -d '{}' {}", curl, quoted(text), url_of(model, http));
  return fmt::format(
      "(printf '%s' '{}'; head -c {} /dev/zero) | {} --data-binary @- \\\n"
      "    -H 'Inference-Header-Content-Length: {}' {}",
      quoted(text), request.bytes, curl, text.size(), url_of(model, http));
}

std::string python_snippet(const config::ModelConfig& model, const config::Endpoint& http) {
  if (takes_a_photo(model)) return photo_snippet(model, http);
  if (any_binary_only(model.inputs) || any_binary_only(model.outputs))
    return binary_snippet(model, http);
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
