#include "tests/conformance/conformance_test.h"

#include <numeric>
#include <stdexcept>

#include "tests/support/serve/world.h"

namespace gpulet::conformance {
namespace {

using nlohmann::json;

constexpr std::size_t kElements = 16;  // of a tensor of "simple"

json tensor(const std::string& name, const std::string& type, std::int64_t elements) {
  return {{"name", name}, {"type", type}, {"shape", {elements}}};
}

json model(const std::string& name, const std::string& type, std::int64_t elements,
           double rate = 20) {
  return {{"name", name},
          {"file", name + ".pt"},
          {"inputs", {tensor("x", type, elements)}},
          {"outputs", {tensor("y", type, elements)}},
          {"slo_ms", 3000},
          {"rate", rate},
          {"max_batch", 8}};
}

json simple_model() {
  json simple = model("simple", "INT32", kElements);
  simple["inputs"] = {tensor("INPUT0", "INT32", kElements), tensor("INPUT1", "INT32", kElements)};
  simple["outputs"] = {tensor("OUTPUT0", "INT32", kElements),
                       tensor("OUTPUT1", "INT32", kElements)};
  return simple;
}

json chain() {
  return {{"name", "chain"},
          {"inputs", {tensor("x", "FP32", 4)}},
          {"nodes",
           {{{"name", "first"}, {"model", "values"}, {"inputs", {"request.x"}}},
            {{"name", "second"}, {"model", "scores"}, {"inputs", {"first.y"}}}}},
          {"outputs", {{{"name", "y"}, {"from", "second.y"}}}},
          {"slo_ms", 6000},
          {"rate", 5}};
}

}  // namespace

testing::ClusterFiles conformance_files() {
  json scores = model("scores", "FP32", 4);
  scores["labels"] = {{"y", "labels.txt"}};
  json image = model("image", "FP32", 12);
  image["inputs"][0].update({{"shape", {3, 2, 2}}, {"format", "NCHW"}});
  const json models = {image,
                       simple_model(),
                       model("values", "FP32", 4),
                       model("flags", "BOOL", 4),
                       scores,
                       model("ordered", "UINT8", 4, 300),
                       model("spare", "UINT8", 2)};
  testing::ClusterFiles files;
  files.models = json{{"models", models}, {"applications", {chain()}}}.dump();
  files.beside["labels.txt"] = "cat\ndog\nbird\nfish\n";
  std::map<std::string, double> base_ms;
  for (const json& one : models) {
    base_ms[one["name"].get<std::string>()] = 1;
    files.beside[one["file"].get<std::string>()] = "stands for a model";
  }
  base_ms["ordered"] = 6;
  files.profile = serve::testing::card_profile(base_ms);
  return files;
}

void ConformanceTest::SetUpTestSuite() {
  testing::ClusterChanges changes;
  changes.frontend = [](config::FrontendConfig& config) { config.shared_memory = true; };
  server_ = std::make_unique<testing::Cluster>(conformance_files(), changes);
  server_->add_arithmetic_backend("n0", 4);
  server_->wait_until_serving();
}

void ConformanceTest::TearDownTestSuite() { server_.reset(); }

json ConformanceTest::get_json(const std::string& target) {
  const HttpAnswer answer = http().get(target);
  if (answer.status != 200)
    throw std::runtime_error(target + ": " + std::to_string(answer.status) + " " + answer.body);
  return json::parse(answer.body);
}

std::string ConformanceTest::version_of(const std::string& model) {
  return get_json("/v2/models/" + model).at("versions").at(0).get<std::string>();
}

std::vector<std::string> strings_of(const std::string& bytes) {
  std::vector<std::string> strings;
  for (std::size_t at = 0; at < bytes.size();) {
    std::uint32_t length = 0;
    if (bytes.size() - at < sizeof(length)) throw std::runtime_error("a length that is cut off");
    std::memcpy(&length, bytes.data() + at, sizeof(length));
    at += sizeof(length);
    if (bytes.size() - at < length) throw std::runtime_error("a string that is cut off");
    strings.push_back(bytes.substr(at, length));
    at += length;
  }
  return strings;
}

std::vector<std::int32_t> simple_input0() {
  std::vector<std::int32_t> values(kElements);
  std::iota(values.begin(), values.end(), 0);
  return values;
}

std::vector<std::int32_t> simple_input1() { return std::vector<std::int32_t>(kElements, 1); }

std::vector<std::int32_t> simple_sum() {
  std::vector<std::int32_t> values(kElements);
  std::iota(values.begin(), values.end(), 1);
  return values;
}

std::vector<std::int32_t> simple_difference() {
  std::vector<std::int32_t> values(kElements);
  std::iota(values.begin(), values.end(), -1);
  return values;
}

json simple_http_inputs(std::size_t rows) {
  json inputs = json::array();
  for (const char* name : {"INPUT0", "INPUT1"}) {
    inputs.push_back(
        {{"name", name},
         {"shape", {rows, kElements}},
         {"datatype", "INT32"},
         {"parameters", {{"binary_data_size", rows * kElements * sizeof(std::int32_t)}}}});
  }
  return inputs;
}

InferRequest simple_grpc_request() {
  InferRequest request;
  request.set_model_name("simple");
  // The C++ client adds this to every request.
  (*request.mutable_parameters())["triton_enable_empty_final_response"].set_bool_param(false);
  for (const char* name : {"INPUT0", "INPUT1"}) {
    Tensor& input = *request.add_inputs();
    input.set_name(name);
    input.set_datatype("INT32");
    input.add_shape(1);
    input.add_shape(kElements);
  }
  request.add_outputs()->set_name("OUTPUT0");
  request.add_outputs()->set_name("OUTPUT1");
  request.add_raw_input_contents(bytes_of(simple_input0()));
  request.add_raw_input_contents(bytes_of(simple_input1()));
  return request;
}

InferRequest grpc_request(const std::string& model, const std::string& datatype,
                          std::int64_t elements, const std::string& bytes) {
  InferRequest request;
  request.set_model_name(model);
  Tensor& input = *request.add_inputs();
  input.set_name("x");
  input.set_datatype(datatype);
  input.add_shape(1);
  input.add_shape(elements);
  request.add_raw_input_contents(bytes);
  return request;
}

}  // namespace gpulet::conformance
