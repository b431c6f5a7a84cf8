// The calls of perf_analyzer in their order, read as strictly as it reads them: it ends by SIGABRT
// where a field of the statistics is missing or has another type.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <sstream>

#include "tests/conformance/conformance_test.h"
#include "tests/conformance/shared_region.h"

namespace gpulet::conformance {
namespace {

using nlohmann::json;
using nlohmann::literals::operator""_json_pointer;

struct Counts {
  std::uint64_t inferences = 0;
  std::uint64_t executions = 0;
  std::uint64_t successes = 0;
  std::uint64_t queue_ns = 0;
  std::uint64_t input_ns = 0;
  std::uint64_t infer_ns = 0;
  std::uint64_t output_ns = 0;
};

class PerfAnalyzer : public ConformanceTest {
 protected:
  // Throws if a field is missing; fails if it has another type.
  Counts http_counts(const std::string& model) {
    const json entry = get_json("/v2/models/" + model + "/stats").at("model_stats").at(0);
    EXPECT_EQ(entry.at("name"), model);
    EXPECT_TRUE(entry.at("version").is_string());
    for (const char* name : {"last_inference", "inference_count", "execution_count"})
      EXPECT_TRUE(entry.at(name).is_number_unsigned()) << name;
    const json& durations = entry.at("inference_stats");
    for (const char* name : {"success", "fail", "queue", "compute_input", "compute_infer",
                             "compute_output", "cache_hit", "cache_miss"}) {
      for (const char* part : {"count", "ns"})
        EXPECT_TRUE(durations.at(name).at(part).is_number_unsigned()) << name << "." << part;
    }
    for (const json& batch : entry.at("batch_stats")) {
      EXPECT_TRUE(batch.at("batch_size").is_number_unsigned());
      for (const char* name : {"compute_input", "compute_infer", "compute_output"})
        EXPECT_TRUE(batch.at(name).at("ns").is_number_unsigned()) << name;
    }
    const auto ns = [&durations](const char* name) {
      return durations.at(name).at("ns").get<std::uint64_t>();
    };
    return {entry.at("inference_count").get<std::uint64_t>(),
            entry.at("execution_count").get<std::uint64_t>(),
            durations.at("success").at("count").get<std::uint64_t>(),
            ns("queue"),
            ns("compute_input"),
            ns("compute_infer"),
            ns("compute_output")};
  }
  Counts grpc_counts(const std::string& model) {
    Name request;
    request.set_name(model);
    const auto answer = grpc().call<StatisticsResponse>("ModelStatistics", request);
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    if (answer.message.model_stats_size() != 1) return {};
    const ModelStatistics& entry = answer.message.model_stats(0);
    const InferStatistics& durations = entry.inference_stats();
    EXPECT_EQ(entry.name(), model);
    return {entry.inference_count(),        entry.execution_count(),
            durations.success().count(),    durations.queue().ns(),
            durations.compute_input().ns(), durations.compute_infer().ns(),
            durations.compute_output().ns()};
  }
  static void expect_advanced(const Counts& before, const Counts& after, std::uint64_t by) {
    EXPECT_EQ(after.inferences - before.inferences, by);
    EXPECT_EQ(after.successes - before.successes, by);
    EXPECT_GE(after.executions, before.executions + 1);
    EXPECT_LE(after.executions, before.executions + by);
    EXPECT_GT(after.infer_ns, before.infer_ns);
    EXPECT_GT(after.input_ns, before.input_ns);
    EXPECT_GT(after.output_ns, before.output_ns);
  }
  // Reads the model, its scheduler and its tensors as perf_analyzer does.
  void http_parse_model(const std::string& model) {
    const json metadata = get_json("/v2/models/" + model);
    const json config = get_json("/v2/models/" + model + "/config");
    EXPECT_EQ(metadata.at("name"), model);
    for (const auto& [ours, theirs] :
         {std::pair{"inputs", "input"}, std::pair{"outputs", "output"}}) {
      for (const json& tensor : config.at(theirs)) {
        const auto same = [&tensor](const json& other) {
          return other.at("name") == tensor.at("name");
        };
        const json& all = metadata.at(ours);
        EXPECT_TRUE(std::any_of(all.begin(), all.end(), same)) << tensor;
        EXPECT_TRUE(tensor.value("optional", json(false)).is_boolean());
        EXPECT_TRUE(tensor.value("is_shape_tensor", json(false)).is_boolean());
      }
    }
    EXPECT_TRUE(config.at("max_batch_size").is_number_integer());
    EXPECT_FALSE(config.contains("sequence_batching"));
    EXPECT_FALSE(config.value("/model_transaction_policy/decoupled"_json_pointer, false));
    EXPECT_FALSE(config.value("/response_cache/enable"_json_pointer, false));
    const json extensions = get_json("/v2").at("extensions");
    EXPECT_TRUE(std::any_of(extensions.begin(), extensions.end(),
                            [](const json& one) { return one == "statistics"; }));
  }
};

TEST_F(PerfAnalyzer, RunsOverHttp) {
  constexpr int kRequests = 20;
  http_parse_model("simple");
  const Counts before = http_counts("simple");
  const json request = {{"id", "0"},
                        {"inputs", simple_http_inputs()},
                        {"outputs",
                         {{{"name", "OUTPUT0"}, {"parameters", {{"binary_data", true}}}},
                          {{"name", "OUTPUT1"}, {"parameters", {{"binary_data", true}}}}}}};
  const std::string tensors = bytes_of(simple_input0()) + bytes_of(simple_input1());
  for (int i = 0; i < kRequests; ++i) {
    const auto outputs = read_outputs(http().infer("simple", request, tensors));
    ASSERT_EQ(elements_of<std::int32_t>(outputs.at("OUTPUT0").bytes), simple_sum());
  }
  expect_advanced(before, http_counts("simple"), kRequests);
}

TEST_F(PerfAnalyzer, RunsOverGrpc) {
  constexpr int kRequests = 20;
  Name name;
  name.set_name("simple");
  EXPECT_TRUE(grpc().call<ModelMetadata>("ModelMetadata", name).status.ok());
  EXPECT_TRUE(grpc().call<ModelConfigResponse>("ModelConfig", name).status.ok());
  EXPECT_TRUE(grpc().call<ServerMetadata>("ServerMetadata", Empty()).status.ok());
  const Counts before = grpc_counts("simple");
  for (int i = 0; i < kRequests; ++i) {
    const auto answer = grpc().call<InferResponse>("ModelInfer", simple_grpc_request());
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  }
  expect_advanced(before, grpc_counts("simple"), kRequests);
}

TEST_F(PerfAnalyzer, RunsOverAGrpcStream) {
  constexpr int kRequests = 20;
  const Counts before = grpc_counts("simple");
  GrpcStream<InferRequest, StreamResponse> stream(grpc(),
                                                  std::string(kInference) + "ModelStreamInfer");
  InferRequest request = simple_grpc_request();
  (*request.mutable_parameters())["triton_enable_empty_final_response"].set_bool_param(true);
  for (int i = 0; i < kRequests; ++i) {
    request.set_id(std::to_string(i));
    stream.write(request);
    const auto response = stream.read();
    ASSERT_TRUE(response.has_value());
    ASSERT_EQ(response->error_message(), "");
    EXPECT_EQ(response->infer_response().id(), std::to_string(i));
    EXPECT_TRUE(response->infer_response().parameters().at("triton_final_response").bool_param());
  }
  expect_advanced(before, grpc_counts("simple"), kRequests);
}

TEST_F(PerfAnalyzer, CountsExecutionsOfAnApplication) {
  http_parse_model("chain");
  const Counts before = http_counts("chain");
  const auto answer = grpc().call<InferResponse>(
      "ModelInfer", grpc_request("chain", "FP32", 4, bytes_of(std::vector<float>{1, 2, 3, 4})));
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  const Counts after = http_counts("chain");
  EXPECT_EQ(after.inferences - before.inferences, 1U);
  EXPECT_GE(after.executions - before.executions, 1U);
}

TEST_F(PerfAnalyzer, RunsOverHttpWithSharedMemory) {
  http_parse_model("simple");
  EXPECT_EQ(http().post("/v2/systemsharedmemory/unregister").status, 200);
  EXPECT_EQ(http().post("/v2/cudasharedmemory/unregister").status, 200);
  const SharedRegion output0("output0", kSimpleBytes);
  const SharedRegion output1("output1", kSimpleBytes);
  const SharedRegion input0("input0", bytes_of(simple_input0()));
  const SharedRegion input1("input1", bytes_of(simple_input1()));
  json request = {{"id", "0"}, {"inputs", simple_http_inputs()}};
  for (const SharedRegion* region : {&output0, &output1, &input0, &input1}) {
    const json body = {{"key", region->key()}, {"offset", 0}, {"byte_size", kSimpleBytes}};
    const HttpAnswer answer =
        http().post("/v2/systemsharedmemory/region/" + region->name() + "/register", body.dump());
    ASSERT_EQ(answer.status, 200) << answer.body;
  }
  const auto where = [](const SharedRegion& region) {
    return json{{"shared_memory_region", region.name()}, {"shared_memory_byte_size", kSimpleBytes}};
  };
  request["inputs"][0]["parameters"] = where(input0);
  request["inputs"][1]["parameters"] = where(input1);
  request["outputs"] = {{{"name", "OUTPUT0"}, {"parameters", where(output0)}},
                        {{"name", "OUTPUT1"}, {"parameters", where(output1)}}};
  const Counts before = http_counts("simple");
  for (int i = 0; i < 5; ++i) {
    const auto outputs = read_outputs(http().infer("simple", request));
    EXPECT_FALSE(outputs.at("OUTPUT0").in_answer);
    EXPECT_FALSE(outputs.at("OUTPUT1").in_answer);
  }
  EXPECT_EQ(elements_of<std::int32_t>(output0.bytes()), simple_sum());
  EXPECT_EQ(elements_of<std::int32_t>(output1.bytes()), simple_difference());
  expect_advanced(before, http_counts("simple"), 5);
  EXPECT_EQ(http().post("/v2/systemsharedmemory/unregister").status, 200);
  EXPECT_EQ(http().post("/v2/cudasharedmemory/unregister").status, 200);
}

TEST_F(PerfAnalyzer, RunsOverGrpcWithSharedMemory) {
  EXPECT_TRUE(grpc().call<Empty>("SystemSharedMemoryUnregister", Name()).status.ok());
  EXPECT_TRUE(grpc().call<Empty>("CudaSharedMemoryUnregister", Name()).status.ok());
  const SharedRegion output0("output0", kSimpleBytes);
  const SharedRegion output1("output1", kSimpleBytes);
  const SharedRegion input0("input0", bytes_of(simple_input0()));
  const SharedRegion input1("input1", bytes_of(simple_input1()));
  for (const SharedRegion* region : {&output0, &output1, &input0, &input1}) {
    SystemRegion request;
    request.set_name(region->name());
    request.set_key(region->key());
    request.set_byte_size(kSimpleBytes);
    const auto answer = grpc().call<Empty>("SystemSharedMemoryRegister", request);
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  }
  const auto place = [](auto& parameters, const SharedRegion& region) {
    parameters["shared_memory_region"].set_string_param(region.name());
    parameters["shared_memory_byte_size"].set_int64_param(kSimpleBytes);
  };
  InferRequest request = simple_grpc_request();
  request.clear_raw_input_contents();
  place(*request.mutable_inputs(0)->mutable_parameters(), input0);
  place(*request.mutable_inputs(1)->mutable_parameters(), input1);
  place(*request.mutable_outputs(0)->mutable_parameters(), output0);
  place(*request.mutable_outputs(1)->mutable_parameters(), output1);
  const auto answer = grpc().call<InferResponse>("ModelInfer", request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  ASSERT_EQ(answer.message.outputs_size(), 2);
  // The C++ client reads a raw content for each output, also for one in shared memory.
  ASSERT_EQ(answer.message.raw_output_contents_size(), 2);
  EXPECT_EQ(answer.message.raw_output_contents(0), "");
  EXPECT_EQ(elements_of<std::int32_t>(output0.bytes()), simple_sum());
  EXPECT_EQ(elements_of<std::int32_t>(output1.bytes()), simple_difference());
  EXPECT_TRUE(grpc().call<Empty>("SystemSharedMemoryUnregister", Name()).status.ok());
}

// The value of the first sample of a metric, wherever its labels are.
std::optional<double> sample(const std::string& page, const std::string& name) {
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(name + "{", 0) == 0 || line.rfind(name + " ", 0) == 0)
      return std::stod(line.substr(line.rfind(' ') + 1));
  }
  return std::nullopt;
}

TEST_F(PerfAnalyzer, FindsTheMetricsOfTheServersModels) {
  ASSERT_TRUE(grpc().call<InferResponse>("ModelInfer", simple_grpc_request()).status.ok());
  HttpConnection metrics(server().metrics_port());
  const HttpAnswer answer = metrics.get("/metrics");
  ASSERT_EQ(answer.status, 200);
  for (const char* name :
       {"nv_inference_request_success", "nv_inference_count", "nv_inference_exec_count",
        "nv_inference_request_duration_us", "nv_inference_queue_duration_us",
        "nv_inference_compute_input_duration_us", "nv_inference_compute_infer_duration_us",
        "nv_inference_compute_output_duration_us", "nv_inference_pending_request_count"})
    EXPECT_TRUE(sample(answer.body, name).has_value()) << name;
  EXPECT_NE(answer.body.find("nv_inference_request_success{model=\"simple\",version=\""),
            std::string::npos);
}

TEST_F(PerfAnalyzer, FindsTheMetricsOfTheServersProcessors) {
  HttpConnection metrics(server().metrics_port());
  HttpAnswer answer = metrics.get("/metrics");
  // Utilisation covers the time since the last sample, so that the first one has none.
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!sample(answer.body, "nv_cpu_utilization") && std::chrono::steady_clock::now() < patience)
    answer = metrics.get("/metrics");
  const auto total = sample(answer.body, "nv_cpu_memory_total_bytes");
  const auto used = sample(answer.body, "nv_cpu_memory_used_bytes");
  ASSERT_TRUE(total.has_value());
  ASSERT_TRUE(used.has_value());
  EXPECT_GT(*total, *used);
  EXPECT_TRUE(sample(answer.body, "nv_cpu_utilization").has_value());
}

}  // namespace
}  // namespace gpulet::conformance
