// The parts of `gpulet serve`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "gpulet/config/daemon_config.h"
#include "gpulet/profile/store.h"
#include "tests/support/onnx_file.h"
#include "tools/serve/example_request.h"
#include "tools/serve/local_daemons.h"
#include "tools/serve/measured_models.h"
#include "tools/serve/model_arguments.h"
#include "tools/serve/serving_files.h"

namespace gpulet::tools::serve_test {
namespace {

namespace fs = std::filesystem;
namespace onnx = support::onnx;
using ::testing::HasSubstr;

class Folder : public ::testing::Test {
 protected:
  Folder() {
    std::string path = (fs::temp_directory_path() / "gpulet-serve-test-XXXXXX").string();
    folder_ = ::mkdtemp(path.data());
  }
  ~Folder() override { fs::remove_all(folder_); }

  fs::path write(const std::string& name, const std::string& content) {
    std::ofstream(folder_ / name, std::ios::binary) << content;
    return folder_ / name;
  }
  fs::path write(const std::string& name, std::vector<onnx::Dimension> input,
                 std::vector<onnx::Dimension> output) {
    onnx::Model model;
    model.inputs = {{"image", onnx::kFloat, std::move(input)}};
    model.outputs = {{"logits", onnx::kFloat, std::move(output)}};
    model.nodes = {{"Identity", {"image"}, {"logits"}}};
    return write(name, onnx::encode(model));
  }

  fs::path folder_;
};

// ---- arguments

TEST(ServeArguments, TensorsAndTimes) {
  const auto tensor = parse_tensor("image:FP32:3,224,224");
  ASSERT_TRUE(tensor.ok()) << tensor.status().message();
  EXPECT_EQ(tensor.value(), (TensorSpec{"image", DataType::fp32, {3, 224, 224}}));
  EXPECT_EQ(parse_tensor("a:b:INT64:7").value().name, "a:b");
  EXPECT_EQ(parse_tensor("scalar:FP32:").value().shape.size(), 0U);
  EXPECT_EQ(parse_tensor("tokens:INT64:-1,2").value().shape, (std::vector<std::int64_t>{-1, 2}));
  for (const char* const wrong :
       {"", "image", "image:FP32", ":FP32:3", "image:F32:3", "image:FP32:0", "image:FP32:3,x",
        "image:FP32:-2", "image:FP32:-1,-1", "image:FP32:3 4"})
    EXPECT_EQ(parse_tensor(wrong).status().code(), StatusCode::invalid) << wrong;
  EXPECT_EQ(parse_milliseconds("50ms").value(), 50);
  EXPECT_EQ(parse_milliseconds("0.05s").value(), 50);
  EXPECT_EQ(parse_milliseconds("50").value(), 50);
  for (const char* const wrong : {"", "ms", "-5ms", "0", "5m", "nan", "inf", "1e9s", "50 ms"})
    EXPECT_EQ(parse_milliseconds(wrong).status().code(), StatusCode::invalid) << wrong;
}

using ServeModels = Folder;

TEST_F(ServeModels, AnOnnxFileDescribesItself) {
  ModelArguments arguments;
  arguments.files = {write("digits.onnx", {"batch", 1, 28, 28}, {"batch", 10})};
  const auto models = describe_models(arguments);
  ASSERT_TRUE(models.ok()) << models.status().message();
  ASSERT_EQ(models.value().size(), 1U);
  const config::ModelConfig& model = models.value().front();
  EXPECT_EQ(model.name, "digits");
  EXPECT_EQ(model.inputs, (std::vector<TensorSpec>{{"image", DataType::fp32, {1, 28, 28}}}));
  EXPECT_EQ(model.outputs, (std::vector<TensorSpec>{{"logits", DataType::fp32, {10}}}));
  EXPECT_EQ(model.max_batch, 32U);
  EXPECT_TRUE(model.file.is_absolute());
}

TEST_F(ServeModels, ImagesAreRecognisedByTheirChannels) {
  const auto formats = [&](const std::vector<onnx::Dimension>& input) {
    ModelArguments arguments;
    arguments.files = {write("image.onnx", input, {"batch", 10})};
    return describe_models(arguments).value().front().formats;
  };
  using Formats = std::map<std::string, config::ImageFormat>;
  const Formats nchw = {{"image", config::ImageFormat::nchw}};
  const Formats nhwc = {{"image", config::ImageFormat::nhwc}};
  EXPECT_EQ(formats({"batch", 1, 28, 28}), nchw);
  EXPECT_EQ(formats({"batch", 3, 224, 224}), nchw);
  EXPECT_EQ(formats({"batch", 224, 224, 3}), nhwc);
  for (const auto& other : std::vector<std::vector<onnx::Dimension>>{
           {"batch", 28, 28}, {"batch", 3, 224, 3}, {"batch", 4, 28, 28}, {"batch", 3, 2, 8, 8}})
    EXPECT_EQ(formats(other), Formats());
}

TEST_F(ServeModels, StringsOfAnOnnxFileGetTheDefaultLimit) {
  ModelArguments arguments;
  const support::onnx::Model model{.inputs = {{"text", support::onnx::kString, {{"batch", 2}}}},
                                   .outputs = {{"words", support::onnx::kString, {{"batch", 2}}}}};
  arguments.files = {write("tokens.onnx", encode(model))};
  const auto models = describe_models(arguments);
  ASSERT_TRUE(models.ok()) << models.status().message();
  EXPECT_EQ(models.value().front().inputs,
            (std::vector<TensorSpec>{{"text", DataType::bytes, {2}, 512}}));
  arguments.files = {write("net.pt", std::string("PK\x03\x04", 4) + "...")};
  arguments.inputs = {"text:BYTES:1"};
  arguments.outputs = {"logits:FP32:10"};
  EXPECT_THAT(describe_models(arguments).status().message(), HasSubstr("TorchScript"));
}

TEST_F(ServeModels, ABatchOfOneIsKept) {
  ModelArguments arguments;
  arguments.files = {write("fixed.onnx", {1, 4}, {1, 4})};
  EXPECT_EQ(describe_models(arguments).value().front().max_batch, 1U);
  arguments.files = {write("fixed.onnx", {8, 4}, {8, 4})};
  EXPECT_THAT(describe_models(arguments).status().message(), HasSubstr("dynamic_axes"));
}

TEST_F(ServeModels, OpenDimensionsNeedAShape) {
  ModelArguments arguments;
  arguments.files = {write("open.onnx", {"batch", "length", 3}, {"batch", 2})};
  EXPECT_THAT(describe_models(arguments).status().message(), HasSubstr("--shape image:N,N"));
  arguments.shapes = {"image:128,3"};
  const auto models = describe_models(arguments);
  ASSERT_TRUE(models.ok()) << models.status().message();
  EXPECT_EQ(models.value().front().inputs.front().shape, (std::vector<std::int64_t>{128, 3}));
  for (const char* const wrong :
       {"image:128", "image:128,4", "image:0,3", "image", "other:128,3"}) {
    arguments.shapes = {wrong};
    EXPECT_EQ(describe_models(arguments).status().code(), StatusCode::invalid) << wrong;
  }
  arguments.shapes = {"image:128,3", "other:5"};
  EXPECT_EQ(describe_models(arguments).status().code(), StatusCode::invalid);
}

TEST_F(ServeModels, AnOpenDimensionMayHaveBuckets) {
  ModelArguments arguments;
  arguments.files = {write("open.onnx", {"batch", "length", 3}, {"batch", "length"})};
  arguments.buckets = {32, 64};
  const auto models = describe_models(arguments);
  ASSERT_TRUE(models.ok()) << models.status().message();
  const config::ModelConfig& model = models.value().front();
  EXPECT_EQ(model.inputs.front().shape, (std::vector<std::int64_t>{-1, 3}));
  EXPECT_EQ(model.outputs.front().shape, (std::vector<std::int64_t>{-1}));
  EXPECT_EQ(model.dynamic, (config::DynamicLength{{32, 64}, {0}}));
  const std::vector<std::vector<std::int64_t>> impossible = {{64, 32}, {32, 32}, {0, 8}, {-8}};
  for (const auto& wrong : impossible) {
    arguments.buckets = wrong;
    EXPECT_EQ(describe_models(arguments).status().code(), StatusCode::invalid);
  }
  arguments.buckets = {32};
  arguments.files = {write("two.onnx", {"batch", "height", "width"}, {"batch", 2})};
  EXPECT_EQ(describe_models(arguments).status().code(), StatusCode::invalid);
}

TEST_F(ServeModels, ATorchScriptFileNeedsItsTensors) {
  ModelArguments arguments;
  arguments.files = {write("net.pt", std::string("PK\x03\x04", 4) + "...")};
  EXPECT_THAT(describe_models(arguments).status().message(), HasSubstr("--input"));
  arguments.inputs = {"image:FP32:3,8,8"};
  arguments.outputs = {"logits:FP32:10"};
  arguments.name = "mine";
  const auto models = describe_models(arguments);
  ASSERT_TRUE(models.ok()) << models.status().message();
  EXPECT_EQ(models.value().front().name, "mine");
  EXPECT_EQ(models.value().front().outputs.front().shape, std::vector<std::int64_t>{10});
}

TEST_F(ServeModels, WrongFilesAreNamed) {
  ModelArguments arguments;
  arguments.files = {folder_ / "missing.onnx"};
  EXPECT_THAT(describe_models(arguments).status().message(), HasSubstr("missing.onnx"));
  arguments.files = {write("noise.onnx", "not a model at all")};
  EXPECT_THAT(describe_models(arguments).status().message(), HasSubstr("noise.onnx"));
  const fs::path one = write("one.onnx", {"n", 4}, {"n", 4});
  arguments.files = {one, one};
  EXPECT_THAT(describe_models(arguments).status().message(), HasSubstr("two files"));
  arguments.files = {one, write("two.onnx", {"n", 4}, {"n", 4})};
  EXPECT_EQ(describe_models(arguments).value().size(), 2U);
  arguments.name = "both";
  EXPECT_EQ(describe_models(arguments).status().code(), StatusCode::invalid);
}

// ---- models files

TEST_F(ServeModels, AModelsFileIsServedAsItIs) {
  write("net.onnx", {"n", 4}, {"n", 4});
  const fs::path listed = write("models.json", R"({"models":[{"name":"a","file":"net.onnx",
    "inputs":[{"name":"image","type":"FP32","shape":[4]},
      {"name":"picture","type":"UINT8","shape":[8,8,3],"format":"NHWC"}],
    "outputs":[{"name":"logits","type":"FP32","shape":[4]}],
    "slo_ms":70,"rate":3,"max_batch":8,"memory_mb":20,"largest_error":0.1,
    "measured":{"cpu-core":{"cells":[{"batch":1,"partition":50,"latency_ms":0.123456789},
      {"batch":2,"partition":50,"latency_ms":3,"p99_ms":4,"cv":0.25}],"memory_mb":30}},
    "queue":{"priority_levels":2,"default_priority_level":2,
      "default_policy":{"timeout_action":"delay","default_timeout_ms":20},
      "level_policies":{"1":{"allow_timeout_override":true,"max_queue_size":7}}}}]})");
  ModelArguments arguments;
  arguments.files = {listed};
  const auto models = describe_models(arguments);
  ASSERT_TRUE(models.ok()) << models.status().message();
  profile::Profile profile;
  profile.name = "cpu-core";
  profile.models.emplace(
      "a", profile::ModelProfile{
               profile::LatencyTable::create({{.batch = 1, .share = Share{100}, .latency_ms = 1}})
                   .value(),
               {},
               {}});
  const MachineDevices machine{{0}, "none", {}, {}, {}, Status(StatusCode::not_found, "none")};
  const fs::path out = folder_ / "out";
  fs::create_directories(out);
  const auto files = write_serving_files(out, models.value(), profile, machine, {});
  ASSERT_TRUE(files.ok()) << files.status().message();
  const auto read = config::load_models(out / "models.json");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read.value(), models.value());
  const auto user = [&](const ServingSettings& settings) {
    ServingPorts ports;
    ports.backends = {"127.0.0.1", 7001};
    const auto chosen = write_serving_files(out, models.value(), profile, machine, ports, settings);
    return config::load_backend(chosen.value().backend).value().proxy_user;
  };
  EXPECT_EQ(user({}), "");
  EXPECT_EQ(user({.proxies_as_root = true}), "root");
  const auto shares_memory = [&](const ServingSettings& settings) {
    ServingPorts ports;
    ports.clients = ports.backends = ports.http = ports.grpc = ports.metrics = {"127.0.0.1", 0};
    const auto chosen = write_serving_files(out, models.value(), profile, machine, ports, settings);
    return config::load_frontend(chosen.value().frontend).value().shared_memory;
  };
  EXPECT_FALSE(shares_memory({}));
  EXPECT_TRUE(shares_memory({.shared_memory = true}));
}

TEST_F(ServeModels, AModelsFileWithApplicationsIsRefused) {
  ModelArguments arguments;
  arguments.files = {write("models.json", R"({"models":[{"name":"a","file":"net.onnx",
    "inputs":[{"name":"x","type":"FP32","shape":[4]}],
    "outputs":[{"name":"y","type":"FP32","shape":[4]}],"slo_ms":70}],
    "applications":[{"name":"two","inputs":[{"name":"x","type":"FP32","shape":[4]}],
      "nodes":[{"name":"first","model":"a","inputs":["request.x"]}],
      "outputs":[{"name":"y","from":"first.y"}],"slo_ms":90}]})")};
  EXPECT_THAT(describe_models(arguments).status().message(), HasSubstr("applications"));
}

// ---- Triton's repositories

class ServeRepository : public Folder {
 protected:
  // A model with a version 1 and 2 of the file.
  void add(const std::string& name, const std::string& config,
           const std::string& file = "model.onnx") {
    for (const char* const version : {"1", "2", "notes"}) {
      fs::create_directories(folder_ / name / version);
      write(name + "/" + version + "/" + file, {"n", 4}, {"n", 4});
    }
    if (!config.empty()) write(name + "/config.pbtxt", config);
  }
  [[nodiscard]] Result<std::vector<config::ModelConfig>> describe() const {
    ModelArguments arguments;
    arguments.files = {folder_};
    return describe_models(arguments);
  }
};

TEST_F(ServeRepository, EachFolderIsAModel) {
  add("plain", "");
  add("configured",
      "name: \"configured\" platform: \"onnxruntime_onnx\" max_batch_size: 8\n"
      "instance_group [{count: 2 kind: KIND_CPU}] response_cache {enable: true}\n"
      "output [{name: \"logits\" data_type: TYPE_FP32 dims: [4] label_filename: \"l.txt\"}]");
  write("configured/l.txt", "cat\ndog\n");
  fs::create_directories(folder_ / "other");
  const auto models = describe();
  ASSERT_TRUE(models.ok()) << models.status().message();
  ASSERT_EQ(models.value().size(), 2U);
  const config::ModelConfig& model = models.value().front();
  EXPECT_EQ(model.name, "configured");
  EXPECT_EQ(model.max_batch, 8U);
  EXPECT_EQ(model.file, folder_ / "configured/2/model.onnx") << "the highest version";
  EXPECT_EQ(model.labels.at("logits"), folder_ / "configured/l.txt");
  EXPECT_EQ(models.value().back().max_batch, 32U);
}

TEST_F(ServeRepository, TorchScriptTensorsComeFromTheConfiguration) {
  add("net",
      "default_model_filename: \"net.pt\"\nmax_batch_size: 0\n"
      "input {name: \"x\" data_type: TYPE_INT64 dims: 1 dims: 7}\n"
      "output {name: \"y\" data_type: TYPE_FP32 dims: [-1, 2]}");
  write("net/2/net.pt", std::string("PK\x03\x04", 4) + "...");
  const auto models = describe();
  ASSERT_TRUE(models.ok()) << models.status().message();
  const config::ModelConfig& model = models.value().front();
  EXPECT_EQ(model.inputs, (std::vector<TensorSpec>{{"x", DataType::int64, {7}}}));
  EXPECT_EQ(model.outputs, (std::vector<TensorSpec>{{"y", DataType::fp32, {2}}}));
  EXPECT_EQ(model.max_batch, 1U);
}

TEST_F(ServeRepository, OtherFieldsAreSkippedHoweverTheyAreWritten) {
  const std::vector<std::string> fields = {
      "model_warmup [{name: \"w [\" batch_size: 1}, {name: 'it\\'s [' batch_size: 2}]",
      "model_warmup [ # a comment [\n {name: \"w\"}]",
      "batch_input [{kind: BATCH_ELEMENT_COUNT target_name: [\"a\", \"b\"]}]",
      "rate_limiter {resources [{name: \"R1\" count: 4}] priority: 2}",
      "optimization {execution_accelerators {gpu_execution_accelerator [{name: \"tensorrt\"}]}}",
      "version_policy: {specific {versions: [1, 2]}}",
      "parameters [{key: \"k\" value: {string_value: \"v\"}}]"};
  std::string all;
  for (const std::string& field : fields) {
    all += field + "\n";
    add("net", "max_batch_size: 4 " + field);
    const auto models = describe();
    ASSERT_TRUE(models.ok()) << field << ": " << models.status().message();
    EXPECT_EQ(models.value().front().max_batch, 4U) << field;
  }
  add("net", all + "max_batch_size: 8");
  EXPECT_EQ(describe().value().front().max_batch, 8U);
}

TEST_F(ServeRepository, WrongConfigurationsAreNamed) {
  EXPECT_EQ(describe().status().code(), StatusCode::invalid) << "an empty folder";
  for (const char* const wrong :
       {"name: 5", "max_batch_size: -1", "max_batch_size: 99999", "{", "ensemble_scheduling {}",
        "default_model_filename: \"../secret.onnx\"", "default_model_filename: \"none.onnx\"",
        "output {name: \"logits\" label_filename: \"../../etc/passwd\"}",
        "output {name: \"logits\" label_filename: \"none.txt\"}", "output {name: \"fc6_1\"}",
        "input {name: \"picture\"}", "input {name: \"image\" reshape {shape: [4]}}",
        "sequence_batching {direct {}}", "model_transaction_policy {decoupled: true}"}) {
    add("wrong", wrong);
    const auto models = describe();
    EXPECT_FALSE(models.ok()) << wrong;
    EXPECT_THAT(models.status().message(), HasSubstr("wrong")) << wrong;
  }
}

TEST_F(ServeRepository, AnOnnxFileOfAnyNameHasTheListedTensors) {
  const std::string config =
      "default_model_filename: \"net.bin\" max_batch_size: 4 "
      "input {name: \"image\" data_type: TYPE_FP32 dims: 4} "
      "output {name: \"fc6_1\" data_type: TYPE_FP32 dims: 4 label_filename: \"l.txt\"}";
  add("net", config, "net.bin");
  write("net/l.txt", "cat\n");
  EXPECT_THAT(describe().status().message(), HasSubstr("fc6_1"));
}

// ---- objectives

TEST(ServeObjective, LeavesTimeForTwoBatches) {
  const auto measured = [](double ms) {
    auto table =
        profile::LatencyTable::create({{.batch = 1, .share = Share{100}, .latency_ms = ms},
                                       {.batch = 4, .share = Share{100}, .latency_ms = 3 * ms},
                                       {.batch = 8, .share = Share{100}, .latency_ms = 6 * ms},
                                       {.batch = 1, .share = Share{25}, .latency_ms = 4 * ms}});
    return profile::ModelProfile{std::move(table).value(), {}, {}};
  };
  const ProposedObjective slow = propose_objective(measured(100));
  EXPECT_EQ(slow.batch, 4U);
  EXPECT_EQ(slow.batch_ms, 300);
  EXPECT_EQ(slow.slo_ms, 750);
  EXPECT_EQ(propose_objective(measured(0.1)).slo_ms, kLeastProposedMs);
}

// ---- example requests

TEST(ServeExample, TheCurlLineStatesTheLengthOfItsJson) {
  config::ModelConfig model;
  model.name = "two";
  model.inputs = {{"it's", DataType::fp32, {2, 3}}, {"tokens", DataType::int64, {4}}};
  model.outputs = {{"scores", DataType::fp32, {10}}, {"boxes", DataType::fp32, {5, 4}}};
  const std::string line = curl_line(model, {"0.0.0.0", 8000});
  EXPECT_THAT(line, HasSubstr("head -c 56 /dev/zero"));
  EXPECT_THAT(line, HasSubstr("http://localhost:8000/v2/models/two/infer"));
  // sh must see the JSON document whose length the header states.
  const std::string command = line.substr(1, line.find("; head") - 1);
  FILE* const out = ::popen(command.c_str(), "r");
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), out));
  ::pclose(out);
  EXPECT_THAT(text, HasSubstr(R"("name":"it's")"));
  EXPECT_THAT(line, HasSubstr("Content-Length: " + std::to_string(text.size()) + "'"));
  EXPECT_THAT(python_snippet(model, {"127.0.0.1", 8000}), HasSubstr("[0] * 6"));
}

TEST(ServeExample, StringsAreInTheJson) {
  config::ModelConfig model;
  model.name = "tokens";
  model.inputs = {{"text", DataType::bytes, {2}, 64}};
  model.outputs = {{"words", DataType::bytes, {16}, 64}};
  const std::string line = curl_line(model, {"0.0.0.0", 8000});
  EXPECT_THAT(line, HasSubstr(R"("datatype":"BYTES","shape":[1,2],"data":["text","text"])"));
  EXPECT_EQ(line.find("/dev/zero"), std::string::npos);
  EXPECT_EQ(line.find("classification"), std::string::npos);
  EXPECT_THAT(python_snippet(model, {"127.0.0.1", 8000}), HasSubstr(R"(["text"] * 2)"));
}

// ---- files and daemons

TEST(ServePorts, AnotherPortIfOneIsTaken) {
  const std::uint16_t port = free_port("127.0.0.1", 0).value();
  EXPECT_EQ(free_port("127.0.0.1", port).value(), port);
  EXPECT_EQ(free_port("no address", port).status().code(), StatusCode::invalid);
}

using ServeDaemons = Folder;

TEST_F(ServeDaemons, EndWithTheirOutput) {
  auto daemon =
      LocalDaemon::start("the test", "/bin/sh", {"-c", "echo broken; exit 3"}, folder_ / "log");
  ASSERT_TRUE(daemon.ok()) << daemon.status().message();
  while (!daemon.value().end()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(daemon.value().end(), "ended with exit code 3");
  EXPECT_FALSE(daemon.value().stop().ok());
  EXPECT_THAT(daemon.value().end_of_log(), HasSubstr("broken"));
}

TEST_F(ServeDaemons, StopOnSigterm) {
  auto daemon = LocalDaemon::start(
      "the test", "/bin/sh",
      {"-c", "trap 'exit 0' TERM; echo up; while :; do read -r x || sleep 0.01; done"},
      folder_ / "log");
  ASSERT_TRUE(daemon.ok()) << daemon.status().message();
  while (daemon.value().end_of_log().empty())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_FALSE(daemon.value().end());
  const Status stopped = daemon.value().stop();
  EXPECT_TRUE(stopped.ok()) << stopped.message();
}

TEST_F(ServeDaemons, AMissingProgramEnds) {
  auto daemon = LocalDaemon::start("the test", folder_ / "none", {}, folder_ / "log");
  ASSERT_TRUE(daemon.ok());
  EXPECT_FALSE(daemon.value().stop().ok());
}

}  // namespace
}  // namespace gpulet::tools::serve_test
