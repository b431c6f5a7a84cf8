// Targets, metadata, configuration, statistics, the repository and errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "gpulet/net/kserve/host.h"
#include "tests/net/kserve/kserve_case.h"
#include "tests/support/names.h"

namespace gpulet::net::kserve {
namespace {

using namespace testing;
using support::names;

TEST(TargetPath, NamesWhatItsPatternHas) {
  struct Case {
    const char* target;
    const char* pattern;
    const char* model = "";
    const char* version = "";
    const char* region = "";
  };
  const Case cases[] = {
      {"/v2", "v2"},
      {"/v2/", "v2/"},
      {"/v2?verbose=1", "v2"},
      {"http://host:8000/v2", "v2"},
      {"/v2/models/m", "v2/models/{M}", "m"},
      {"/v2/models/m/versions/12", "v2/models/{M}/versions/{V}", "m", "12"},
      {"/v2/models/a%20b%2Fc/infer", "v2/models/{M}/infer", "a b/c"},
      {"/s/region/r/status", "s/region/{R}/status", "", "", "r"},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.target);
    const std::optional<TargetPath> path = TargetPath::of(one.target);
    ASSERT_TRUE(path.has_value());
    const std::optional<Route> route = path->match(one.pattern);
    ASSERT_TRUE(route.has_value());
    EXPECT_EQ(route->model, one.model);
    EXPECT_EQ(route->version, one.version);
    EXPECT_EQ(route->region, one.region);
  }
}

TEST(TargetPath, HasNoOtherPattern) {
  const std::optional<TargetPath> path = TargetPath::of("/v2/models/m/versions/one");
  ASSERT_TRUE(path.has_value());
  for (const char* const pattern :
       {"v2", "v2/models/{M}", "v2/models/{M}/versions/{V}", "v2/models/{M}/versions/one/infer",
        "V2/models/{M}/versions/one"})
    EXPECT_FALSE(path->match(pattern).has_value()) << pattern;
}

TEST(TargetPath, IsNoneWhereTheTargetIsWronglyEncoded) {
  for (const char* const target : {"", "v2", "/v2/models/%", "/v2/models/%4", "/v2/models/%zz",
                                   "/v2/models/a%00b", "/v2/models/a/b/c/d/e/f/g", "http://host"})
    EXPECT_FALSE(TargetPath::of(target).has_value()) << target;
}

TEST(Route, AModelIsThereInItsOwnVersion) {
  const Model model = small_model();
  const auto check = [&](const Model* one, const char* version) {
    return check_model(one, {.model = "small", .version = version, .region = ""});
  };
  EXPECT_TRUE(check(&model, "").ok());
  EXPECT_TRUE(check(&model, "3").ok());
  EXPECT_TRUE(check(&model, "003").ok());
  EXPECT_EQ(
      check(&model, "4"),
      Status(StatusCode::not_found, "Request for unknown model: 'small' version 4 is not found"));
  EXPECT_EQ(check(nullptr, ""),
            Status(StatusCode::not_found, "Request for unknown model: 'small' is not found"));
}

TEST(Answer, TheServerTellsItsExtensions) {
  const Json json = json_of(server_metadata("1.2.3", false));
  EXPECT_EQ(json["name"], "gpulet");
  EXPECT_EQ(json["version"], "1.2.3");
  EXPECT_THAT(json["extensions"].get<std::vector<std::string>>(),
              ::testing::UnorderedElementsAre(
                  "classification", "model_repository", "model_configuration", "binary_tensor_data",
                  "parameters", "statistics", "schedule_policy", "trace", "logging"));
  EXPECT_THAT(json_of(server_metadata("1", true))["extensions"].get<std::vector<std::string>>(),
              ::testing::Contains("system_shared_memory"));
}

TEST(Answer, MetadataHasTheBatchInFrontAndConfigurationHasNot) {
  const Model model = wide_model();
  EXPECT_EQ(json_of(model_metadata(model)), Json::parse(R"({
    "name":"wide","versions":["3"],"platform":"pytorch_libtorch",
    "inputs":[{"name":"x","datatype":"FP32","shape":[-1,2]},
              {"name":"mask","datatype":"BOOL","shape":[-1,3]}],
    "outputs":[{"name":"y","datatype":"FP32","shape":[-1,2]},
               {"name":"count","datatype":"INT64","shape":[-1]},
               {"name":"half","datatype":"FP16","shape":[-1,2]}]})"));
  const Json config = json_of(model_config(model));
  EXPECT_EQ(config["max_batch_size"], 4);
  EXPECT_EQ(config["input"][0]["dims"], Json({2}));
  EXPECT_EQ(config["output"][1]["dims"], Json::array());
  EXPECT_EQ(model_config(model).headers, (http::Headers{{"Content-Type", "application/json"}}));
}

TEST(Answer, ThePlatformIsThatOfTheModelsFile) {
  Model model = wide_model();
  serve::ModelDescription description;
  description.format = config::FileFormat::onnx;
  model.description = std::make_shared<const serve::ModelDescription>(description);
  EXPECT_EQ(json_of(model_metadata(model))["platform"], "onnxruntime_onnx");
  const Json config = json_of(model_config(model));
  EXPECT_EQ(config["platform"], "onnxruntime_onnx");
  EXPECT_EQ(config["backend"], "onnxruntime");
}

TEST(Answer, AConfigurationHasEveryFieldThatClientsRead) {
  Model model = wide_model();
  serve::ModelDescription description;
  description.file_name = "wide.pt";
  description.labels = {{"classes.txt", {"cat", "dog"}}, {}, {}};
  model.description = std::make_shared<const serve::ModelDescription>(description);
  const auto defaults = [](const std::string& fields) {
    return "{" + fields +
           R"(,"is_shape_tensor":false,"allow_ragged_batch":false,"optional":false,)"
           R"("is_non_linear_format_io":false})";
  };
  const auto answered = [](const std::string& fields) {
    return "{" + fields + R"(,"is_shape_tensor":false,"is_non_linear_format_io":false})";
  };
  const std::string expected =
      R"({"name":"wide","platform":"pytorch_libtorch","backend":"pytorch","runtime":"",)"
      R"("version_policy":{"latest":{"num_versions":1}},"max_batch_size":4,"input":[)" +
      defaults(R"("name":"x","data_type":"TYPE_FP32","format":"FORMAT_NONE","dims":[2])") + "," +
      defaults(R"("name":"mask","data_type":"TYPE_BOOL","format":"FORMAT_NONE","dims":[3])") +
      R"(],"output":[)" +
      answered(R"("name":"y","data_type":"TYPE_FP32","dims":[2],"label_filename":"classes.txt")") +
      "," + answered(R"("name":"count","data_type":"TYPE_INT64","dims":[],"label_filename":"")") +
      "," + answered(R"("name":"half","data_type":"TYPE_FP16","dims":[2],"label_filename":"")") +
      R"(],"batch_input":[],"batch_output":[],)"
      R"("optimization":{"priority":"PRIORITY_DEFAULT","input_pinned_memory":{"enable":true},)"
      R"("output_pinned_memory":{"enable":true},"gather_kernel_buffer_threshold":0,)"
      R"("eager_batching":false},)"
      R"("dynamic_batching":{"preferred_batch_size":[],"max_queue_delay_microseconds":0,)"
      R"("preserve_ordering":false,"priority_levels":0,"default_priority_level":0,)"
      R"("priority_queue_policy":{}},)"
      R"("instance_group":[{"name":"wide","kind":"KIND_AUTO","count":1,"gpus":[],)"
      R"("secondary_devices":[],"profile":[],"passive":false,"host_policy":""}],)"
      R"("default_model_filename":"wide.pt","cc_model_filenames":{},"metric_tags":{},)"
      R"("parameters":{},"model_warmup":[]})";
  EXPECT_EQ(text_of(model_config(model)), expected) << "in the order that people know, too";
}

TEST(Answer, AConfigurationHasTheFormatsOfImages) {
  Model model = wide_model();
  const auto format_of = [&](config::ImageFormat format) {
    serve::ModelDescription description;
    description.formats = {config::ImageFormat::none, format};
    model.description = std::make_shared<const serve::ModelDescription>(description);
    const Json config = json_of(model_config(model));
    EXPECT_EQ(config["input"][0]["format"], "FORMAT_NONE");
    return config["input"][1]["format"];
  };
  EXPECT_EQ(format_of(config::ImageFormat::nchw), "FORMAT_NCHW");
  EXPECT_EQ(format_of(config::ImageFormat::nhwc), "FORMAT_NHWC");
  EXPECT_EQ(format_of(config::ImageFormat::none), "FORMAT_NONE");
}

// image -> detect -> cut (built in) -> name, whose first item is answered, and the boxes.
std::shared_ptr<const serve::Application> pipeline() {
  auto application = std::make_shared<serve::Application>();
  config::ApplicationConfig& graph = application->graph;
  const TensorSpec image{"image", DataType::fp32, {3, 8, 8}};
  graph.inputs = {image};
  graph.nodes.resize(3);
  graph.nodes[0] = {"detect",
                    config::ModelCall{"ssd"},
                    {{{}, 0, {}}},
                    {{"boxes", DataType::fp32, {5, 4}}, {"scores", DataType::fp32, {5}}},
                    {"pixels"}};
  graph.nodes[1] = {"cut", config::Step(config::CropStep{}), {{{}, 0, {}}, {0, 0, 2}}, {image}};
  graph.nodes[2] = {"name",
                    config::ModelCall{"googlenet"},
                    {{1, 0, {}}},
                    {{"logits", DataType::fp32, {10}}},
                    {"input"}};
  graph.answered = {{2, 0, {}}, {0, 0, {}}};
  graph.outputs = {{"label", DataType::fp32, {10}}, {"boxes", DataType::fp32, {5, 4}}};
  return application;
}

TEST(Answer, AnApplicationIsAnEnsembleOfTheModelsThatItCalls) {
  Model model = small_model();
  model.application = pipeline();
  const Json config = json_of(model_config(model));
  EXPECT_EQ(config["platform"], "ensemble");
  EXPECT_EQ(config["backend"], "");
  EXPECT_EQ(config["instance_group"], Json::array());
  EXPECT_FALSE(config.contains("dynamic_batching"));
  EXPECT_EQ(config["ensemble_scheduling"], Json::parse(R"({"step":[
    {"model_name":"ssd","model_version":-1,"input_map":{"pixels":"image"},
     "output_map":{"boxes":"boxes","scores":"detect.scores"},"model_namespace":""},
    {"model_name":"googlenet","model_version":-1,"input_map":{"input":"cut.image"},
     "output_map":{"logits":"label"},"model_namespace":""}]})"));
  EXPECT_EQ(config["parameters"],
            Json({{"step.cut", {{"string_value", "crop(image, detect.boxes[2])"}}}}));
  EXPECT_EQ(json_of(model_metadata(model))["platform"], "ensemble");
}

TEST(Answer, TheConfigurationTellsPrioritiesAndQueuePolicies) {
  Model model = small_model();
  model.queue = QueueRules{
      .priority_levels = 2,
      .default_priority_level = 2,
      .default_policy = {.default_timeout = std::chrono::milliseconds(20), .max_queue_size = 100},
      .level_policies = {
          {1, {.timeout_action = TimeoutAction::delay, .allow_timeout_override = true}}}};
  EXPECT_EQ(json_of(model_config(model))["dynamic_batching"], Json::parse(R"({
    "preferred_batch_size":[],"max_queue_delay_microseconds":0,"preserve_ordering":false,
    "priority_levels":2,"default_priority_level":2,
    "default_queue_policy":{"timeout_action":"REJECT","default_timeout_microseconds":20000,
                            "allow_timeout_override":false,"max_queue_size":100},
    "priority_queue_policy":{"1":{"timeout_action":"DELAY","default_timeout_microseconds":0,
                                  "allow_timeout_override":true,"max_queue_size":0}}})"));
}

TEST(Answer, StatisticsHaveEveryCountThatClientsRead) {
  ModelStatistics model;
  model.name = "small";
  model.version = "3";
  model.last_inference_ms = 1700;
  model.inference_count = 12;
  model.execution_count = 4;
  model.success = {10, 100};
  model.fail = {1, 11};
  model.queue = {2, 22};
  model.compute_input = {3, 33};
  model.compute_infer = {4, 44};
  model.compute_output = {5, 55};
  model.batches = {{.batch_size = 3,
                    .compute_input = {1, 2},
                    .compute_infer = {1, 3},
                    .compute_output = {1, 4}}};
  EXPECT_EQ(json_of(statistics(std::vector{model})), Json::parse(R"({"model_stats":[{
    "name":"small","version":"3","last_inference":1700,"inference_count":12,"execution_count":4,
    "inference_stats":{"success":{"count":10,"ns":100},"fail":{"count":1,"ns":11},
      "queue":{"count":2,"ns":22},"compute_input":{"count":3,"ns":33},
      "compute_infer":{"count":4,"ns":44},"compute_output":{"count":5,"ns":55},
      "cache_hit":{"count":0,"ns":0},"cache_miss":{"count":0,"ns":0}},
    "response_stats":{},
    "batch_stats":[{"batch_size":3,"compute_input":{"count":1,"ns":2},
      "compute_infer":{"count":1,"ns":3},"compute_output":{"count":1,"ns":4}}],
    "memory_usage":[]}]})"));
}

TEST(Answer, ReadinessIsAStatusAndPerhapsAReason) {
  EXPECT_EQ(ready(true, "").status, 200U);
  EXPECT_TRUE(text_of(ready(true, "ignored")).empty());
  EXPECT_EQ(ready(false, "").status, 400U);
  EXPECT_TRUE(text_of(ready(false, "")).empty());
  EXPECT_EQ(json_of(ready(false, "Model version not ready")),
            Json({{"error", "Model version not ready"}}));
}

TEST(Answer, AnErrorHasTheStatusThatClientsExpect) {
  const std::pair<StatusCode, unsigned> cases[] = {
      {StatusCode::invalid, 400},    {StatusCode::malformed, 400}, {StatusCode::not_found, 404},
      {StatusCode::cancelled, 499},  {StatusCode::internal, 500},  {StatusCode::unavailable, 503},
      {StatusCode::overloaded, 503}, {StatusCode::too_late, 503},  {StatusCode::timeout, 504}};
  for (const auto& [code, status] : cases) {
    const http::HttpResponse response = error(Status(code, "why"));
    EXPECT_EQ(response.status, status) << to_string(code);
    EXPECT_EQ(text_of(response), R"({"error":"why"})");
    EXPECT_EQ(http::find_header(response.headers, "content-TYPE"), "application/json");
  }
  EXPECT_EQ(json_of(error(405, "Method \"Not\" Allowed\n"))["error"], "Method \"Not\" Allowed\n");
  EXPECT_EQ(json_of(error(404, "caf\xc3\xa9 \xff"))["error"], "caf\xc3\xa9 \xef\xbf\xbd");
  EXPECT_EQ(json_of(error(Status(StatusCode::too_late, "")))["error"], "too_late");
}

TEST(Repository, ListsModelsByState) {
  std::vector<Model> models;
  for (const auto state : {ModelState::ready, ModelState::idle, ModelState::loading,
                           ModelState::unavailable, ModelState::leaving}) {
    models.push_back(small_model());
    models.back().name = to_string(state);
    models.back().state = state;
    models.back().reason = "because";
  }
  const Json all = json_of(repository_index(models, false));
  ASSERT_EQ(all.size(), 5U);
  EXPECT_EQ(all[0],
            Json::parse(R"({"name":"ready","version":"3","state":"READY","reason":"because"})"));
  EXPECT_EQ(all[1]["state"], "READY");
  EXPECT_EQ(all[2]["state"], "LOADING");
  EXPECT_EQ(all[3]["state"], "UNAVAILABLE");
  EXPECT_EQ(all[4]["state"], "UNLOADING");
  EXPECT_EQ(json_of(repository_index(models, true)).size(), 2U);
  EXPECT_EQ(text_of(repository_index({}, true)), "[]");
}

template <typename Read>
Status refusal(const Read& read, std::string body) {
  const Status status = read(http::bytes_of(std::move(body))).status();
  EXPECT_EQ(status.code(), StatusCode::invalid);
  return status;
}

TEST(Repository, AnIndexMayAskForWhatIsReadyOnly) {
  EXPECT_FALSE(read_repository_index({}).value());
  EXPECT_FALSE(read_repository_index(http::bytes_of("{}")).value());
  EXPECT_TRUE(read_repository_index(http::bytes_of(R"({"ready":true,"x":[{"ready":1}]})")).value());
  EXPECT_TRUE(names(refusal(read_repository_index, R"({"ready":1})"), "'ready'", "1"));
  EXPECT_FALSE(refusal(read_repository_index, "[]").ok());
  EXPECT_TRUE(names(refusal(read_repository_index, "7"), "7"));
  EXPECT_FALSE(refusal(read_repository_index, "{").ok());
  EXPECT_TRUE(names(refusal(read_repository_index, R"({"a":)" + std::string(1000, '[')), "100"));
}

TEST(Repository, ALoadBringsAConfigurationOrNothing) {
  EXPECT_EQ(read_repository_load({}).value(), "");
  EXPECT_EQ(read_repository_load(http::bytes_of("{}")).value(), "");
  EXPECT_EQ(read_repository_load(
                http::bytes_of(R"({"config":"no","parameters":{"config":"{\"models\":[]}"}})"))
                .value(),
            R"({"models":[]})");
  EXPECT_TRUE(names(refusal(read_repository_load, R"({"parameters":{"config":{}}})"),
                    "'parameters.config'"));
  EXPECT_TRUE(names(refusal(read_repository_load, R"({"parameters":{"config":3}})"),
                    "'parameters.config'", "3"));
  EXPECT_TRUE(names(refusal(read_repository_load, R"({"parameters":{"file:1/model.pt":"AAAA"}})"),
                    "'file:1/model.pt'"));
  EXPECT_TRUE(names(refusal(read_repository_load, R"({"parameters":{"max_batch_size":3}})"),
                    "'max_batch_size'", "'config'"));
}

TEST(Repository, AnUnloadMayNameItsParameterOnly) {
  EXPECT_TRUE(read_repository_unload({}).ok());
  for (const char* const body : {"{}", R"({"parameters":{"unload_dependents":false}})",
                                 R"({"parameters":{"unload_dependents":true,"other":{"a":[1]}}})"})
    EXPECT_TRUE(read_repository_unload(http::bytes_of(body)).ok()) << body;
  for (const char* const body : {"{", "[]", "7", R"({"parameters":{"unload_dependents":1}})",
                                 R"({"parameters":{"unload_dependents":[]}})"})
    EXPECT_EQ(read_repository_unload(http::bytes_of(body)).code(), StatusCode::invalid) << body;
}

// Two readers of one text could each take another of the values.
TEST(Repository, NoRequestHasAMemberTwice) {
  const auto bytes = [](const char* text) { return http::bytes_of(text); };
  EXPECT_TRUE(names(refusal(read_repository_index, R"({"ready":true,"ready":false})"), "'ready'"));
  EXPECT_TRUE(names(refusal(read_repository_load,
                            R"({"parameters":{"config":"{}","config":"{\"max_batch_size\":1}"}})"),
                    "'config'"));
  EXPECT_TRUE(
      names(refusal(read_repository_load, R"({"parameters":{},"parameters":{"config":"{}"}})"),
            "'parameters'"));
  EXPECT_TRUE(names(read_repository_unload(bytes(R"({"parameters":{"a":1,"a":1}})")), "'a'"));
  EXPECT_TRUE(names(
      read_register("r", bytes(R"({"key":"/a","byte_size":8,"offset":0,"offset":4})")).status(),
      "'offset'"));
  EXPECT_TRUE(names(
      read_configuration(small_model(), R"({"max_batch_size":2,"max_batch_size":1})").status(),
      "'max_batch_size'"));
  EXPECT_TRUE(
      names(read_configuration(small_model(), R"({"maxBatchSize":2,"max_batch_size":1})").status(),
            "'max_batch_size'"));
  EXPECT_EQ(loading("small", R"({"models":[],"models":[{"name":"small"}]})").status().code(),
            StatusCode::invalid);
}

TEST(Repository, AConfigurationIsOneOfAModelOrAModelsFile) {
  const auto configured = loading("small", R"({"max_batch_size":8})");
  ASSERT_TRUE(configured.ok());
  EXPECT_EQ(configured.value().name, "small");
  EXPECT_EQ(configured.value().configuration, R"({"max_batch_size":8})");
  EXPECT_TRUE(configured.value().text.empty());
  EXPECT_EQ(loading("small", R"({"models":[]})").status().code(), StatusCode::invalid);
  EXPECT_EQ(loading("small", "").value().configuration, "");
}

TEST(Repository, AConfigurationMayChangeTheLargestBatchAlone) {
  const Model model = small_model();
  const auto max_batch = [&](const std::string& text) {
    const auto read = read_configuration(model, text);
    EXPECT_TRUE(read.ok()) << text << ": " << read.status().to_string();
    return read.ok() ? read.value().max_batch : std::nullopt;
  };
  EXPECT_EQ(max_batch(R"({"max_batch_size":16})"), 16U);
  EXPECT_EQ(max_batch(R"({"maxBatchSize":"16"})"), 16U) << "as protobuf's JSON has it";
  EXPECT_EQ(max_batch("{}"), std::nullopt);
  EXPECT_EQ(max_batch(R"({"name":"small","platform":"pytorch_libtorch"})"), std::nullopt);
  EXPECT_EQ(max_batch(R"({"dynamic_batching":{"max_queue_delay_microseconds":"0"}})"),
            std::nullopt);
  EXPECT_EQ(max_batch(R"({"input":[{"name":"x","dims":["2","2"]}]})"), std::nullopt);
  EXPECT_EQ(max_batch(R"({"model_transaction_policy":{"decoupled":false}})"), std::nullopt)
      << "the default of a field that is not shown";
  EXPECT_EQ(max_batch(text_of(model_config(model))), 4U) << "all of it may come back";
}

TEST(Repository, AConfigurationThatCannotBeIsRefusedWithWhatIsAccepted) {
  const auto refused = [](const std::string& text) {
    const auto read = read_configuration(small_model(), text);
    EXPECT_EQ(read.status().code(), StatusCode::invalid) << text;
    return read.status().message();
  };
  for (const char* const text :
       {R"({"colour":"red"})", R"({"backend":"onnxruntime"})", R"({"instance_group":[]})",
        R"({"dynamic_batching":{"max_queue_delay_microseconds":100}})",
        R"({"input":[{"name":"x","dims":[3]}]})", R"({"input":{"name":"x"}})",
        R"({"version_policy":{"specific":{"versions":[1]}}})",
        R"({"sequence_batching":{"max_sequence_idle_microseconds":5}})"}) {
    EXPECT_TRUE(names(refused(text), "'max_batch_size'")) << text;
  }
  EXPECT_TRUE(names(refused(R"({"dynamic_batching":{"preserve_ordering":true}})"),
                    "'dynamic_batching.preserve_ordering'"));
  for (const char* const text :
       {R"({"max_batch_size":0})", R"({"max_batch_size":1025})", R"({"max_batch_size":"all"})",
        R"({"max_batch_size":[1]})", R"({"max_batch_size":null})", "[]", "3", "{", ""}) {
    EXPECT_NE(refused(text), "") << text;
  }
  EXPECT_NE(refused(R"({"a":)" + std::string(1000, '[')), "");
}

}  // namespace
}  // namespace gpulet::net::kserve
