// The status document is a contract: docs/status.md.
#include "frontend/observe/status_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace gpulet::frontend {
namespace {

using nlohmann::json;

serve::FrontendStatus serving_status() {
  serve::FrontendStatus status;
  status.state = "serving";
  status.policy = "elastic";
  status.epoch = Epoch{3};
  schedule::Device device;
  device.key = {"n0", 0};
  device.type = "cpu-core";
  device.partitioning = "cpu_quota";
  status.backends[BackendId{1}] = {"n0", {{device, "cgroup v1"}}, {}};
  serve::GpuletStatus gpulet;
  gpulet.id = GpuletId{17};
  gpulet.gpulet = {BackendId{1},       {"n0", 0}, Share{40}, {{"lenet", 8}},
                   GpuletState::ready, {},        false};
  gpulet.planned =
      schedule::PlannedGpulet{{"n0", 0}, Share{40}, 12.5, {{"lenet", 100, 5, 6.1, 1, 50}}};
  gpulet.planned->policy_choice = {Share{20}, 40, {{"lenet", 100, 5, 18, 1, 50}}};
  gpulet.statistics = {4, 10, {}, 20};
  status.gpulets.push_back(gpulet);
  serve::ModelStatus model;
  model.name = "lenet";
  model.counters = {12, 10, 3, 1, 1};
  status.models.push_back(model);
  status.events.push_back({Time(std::chrono::seconds(3)), "epoch 3 serves"});
  return status;
}

json parsed(const serve::FrontendStatus& status) {
  return json::parse(status_json(status, {.started = Time(std::chrono::seconds(1)),
                                          .now = Time(std::chrono::seconds(5)),
                                          .clients = 2,
                                          .pauses = {std::chrono::milliseconds(7), "a plan", 3}}));
}

TEST(StatusJsonTest, MarksEstimates) {
  serve::FrontendStatus status = serving_status();
  const auto of_plan = [&status] {
    return parsed(status)["nodes"][0]["devices"][0]["gpulets"][0]["models"][0]["estimated"];
  };
  EXPECT_EQ(of_plan(), false);
  status.estimates = {{"lenet", "gpu", "resnet18", 2}};
  EXPECT_EQ(of_plan(), false) << "of another type of device";
  status.estimates = {{"lenet", "cpu-core", "resnet18", 2}};
  EXPECT_EQ(of_plan(), true);
  const json estimate = parsed(status)["estimates"][0];
  EXPECT_EQ(estimate["model"], "lenet");
  EXPECT_EQ(estimate["type"], "cpu-core");
  EXPECT_EQ(estimate["nearest"], "resnet18");
  EXPECT_EQ(estimate["probes"], 2);
}

TEST(StatusJsonTest, ComparesModelsWithTheirProfiles) {
  serve::FrontendStatus status = serving_status();
  status.models[0].correction = 1.5;
  status.models[0].disturbs = "some of its batches take 300 ms";
  status.models[0].extra_headroom = 1.25;
  status.corrections = {{"lenet", "cpu-core", Share{40}, {"n0", 0}, 1.5, 30, 1000, 1.25}};
  const json document = parsed(status);
  const json& model = document["models"][0];
  EXPECT_EQ(model["correction"], 1.5);
  EXPECT_EQ(model["disturbs"], "some of its batches take 300 ms");
  EXPECT_EQ(model["extra_headroom"], 1.25);
  const json& correction = document["corrections"][0];
  EXPECT_EQ(correction["model"], "lenet");
  EXPECT_EQ(correction["type"], "cpu-core");
  EXPECT_EQ(correction["size"], 40);
  EXPECT_EQ(correction["factor"], 1.5);
  EXPECT_EQ(correction["planned"], 1.25);
  EXPECT_EQ(correction["tail"], 30);
  EXPECT_EQ(correction["batches"], 1000);
  EXPECT_EQ(correction["node"], "n0");
  EXPECT_EQ(correction["device"], 0);
}

TEST(StatusJsonTest, TellsHowGpuletsLoadedAndWhatTheyShareAndPrepare) {
  serve::FrontendStatus status = serving_status();
  serve::GpuletRecord& record = status.gpulets[0].gpulet;
  record.found.sms = 24;
  EXPECT_EQ(parsed(status)["nodes"][0]["devices"][0]["gpulets"][0]["sms"], 24);
  record.load_stages = {std::chrono::milliseconds(1), std::chrono::milliseconds(2),
                        std::chrono::milliseconds(3), std::chrono::milliseconds(4)};
  record.condition = {.sms = 16, .shared_sms = 8, .sizes_to_capture = 5};
  const json document = parsed(status);
  const json& gpulet = document["nodes"][0]["devices"][0]["gpulets"][0];
  EXPECT_EQ(gpulet["sms"], 16) << "now";
  EXPECT_EQ(gpulet["shared_sms"], 8);
  EXPECT_EQ(gpulet["sizes_to_capture"], 5);
  EXPECT_EQ(gpulet["loading_ms"],
            (json{{"read", 1.0}, {"copy", 2.0}, {"warm", 3.0}, {"capture", 4.0}}));
}

TEST(StatusJsonTest, HoldsEveryFieldOfTheContract) {
  const json document = parsed(serving_status());
  EXPECT_EQ(document["frontend"]["state"], "serving");
  EXPECT_EQ(document["frontend"]["epoch"], 3);
  EXPECT_EQ(document["frontend"]["clients"], 2);
  EXPECT_DOUBLE_EQ(document["frontend"]["uptime_s"], 4);
  EXPECT_DOUBLE_EQ(document["frontend"]["longest_pause_ms"], 7);
  EXPECT_EQ(document["frontend"]["longest_pause_ran"], "a plan");
  EXPECT_EQ(document["frontend"]["long_pauses"], 3);
  const json& device = document["nodes"][0]["devices"][0];
  EXPECT_EQ(device["mechanism"], "cgroup v1");
  EXPECT_EQ(device["traits"]["change"], "new_process");
  EXPECT_EQ(device["traits"]["fault"], "process");
  const json& gpulet = device["gpulets"][0];
  EXPECT_EQ(gpulet["size"], 40);
  EXPECT_EQ(gpulet["policy_size"], 20);
  EXPECT_EQ(gpulet["instance"], "");
  EXPECT_EQ(gpulet["sms"], 0);
  EXPECT_EQ(gpulet["state"], "ready");
  EXPECT_DOUBLE_EQ(gpulet["mean_batch"], 2.5);
  EXPECT_DOUBLE_EQ(gpulet["batch_fill"], 0.5);
  EXPECT_EQ(gpulet["models"][0]["name"], "lenet");
  EXPECT_EQ(gpulet["models"][0]["batch"], 5);
  EXPECT_EQ(document["models"][0]["late"], 3);
  EXPECT_EQ(document["models"][0]["kind"], "model");
  EXPECT_EQ(document["models"][0]["violations"], 5);
  EXPECT_DOUBLE_EQ(document["events"][0]["at_s"], 2);
}

TEST(StatusJsonTest, ListsExclusions) {
  serve::FrontendStatus status = serving_status();
  EXPECT_EQ(parsed(status)["nodes"][0]["ready"], true);
  EXPECT_TRUE(parsed(status)["exclusions"].empty());
  serve::Exclusion exclusion;
  exclusion.node = "n0";
  exclusion.cause = FailureCause::node_disk;
  exclusion.error = {StatusCode::unavailable, "no space left on device"};
  exclusion.failures = 2;
  exclusion.until = Time(std::chrono::seconds(12));
  status.exclusions.push_back(exclusion);
  json document = parsed(status);
  EXPECT_EQ(document["nodes"][0]["ready"], false);
  EXPECT_EQ(document["nodes"][0]["devices"][0]["excluded"], "no space left on device");
  EXPECT_TRUE(document["exclusions"][0]["device"].is_null());
  EXPECT_EQ(document["exclusions"][0]["cause"], "node_disk");
  EXPECT_EQ(document["exclusions"][0]["error"], "no space left on device");
  EXPECT_EQ(document["exclusions"][0]["failures"], 2);
  EXPECT_DOUBLE_EQ(document["exclusions"][0]["retry_in_s"], 7);

  status.exclusions[0].device = 1;  // the node has no such device here
  document = parsed(status);
  EXPECT_EQ(document["nodes"][0]["ready"], true);
  EXPECT_EQ(document["exclusions"][0]["device"], 1);
}

TEST(StatusJsonTest, ListsOutages) {
  serve::FrontendStatus status = serving_status();
  EXPECT_TRUE(parsed(status)["outages"].empty());
  status.outages.push_back({{"n0", 1}, {{12}, {14}}, {"a", "b"}, {18}, std::nullopt, false});
  json outage = parsed(status)["outages"][0];
  EXPECT_EQ(outage["node"], "n0");
  EXPECT_EQ(outage["device"], 1);
  EXPECT_EQ(outage["gpulets"], (std::vector<int>{12, 14}));
  EXPECT_EQ(outage["models"], (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(outage["replaced_by"], 18);
  EXPECT_EQ(outage["begun"], false);
  EXPECT_TRUE(outage["expected_s"].is_null());
  status.outages[0].expected = std::chrono::milliseconds(1700);
  status.outages[0].begun = true;
  outage = parsed(status)["outages"][0];
  EXPECT_EQ(outage["begun"], true);
  EXPECT_DOUBLE_EQ(outage["expected_s"], 1.7);
}

TEST(StatusJsonTest, ListsProblemsAndTheirCauses) {
  serve::FrontendStatus status = serving_status();
  serve::ModelStatus& model = status.models[0];
  model.state = ModelState::ready;
  model.last_minute = {100, 1, 24, 0};
  model.latest = {20, 1, 4, 0};
  model.rate_planned = 200;
  model.rate_unserved = 50;
  model.missing = schedule::UnservedDetail{"lenet", 50, schedule::UnservedCause::devices, 0.5};
  model.pace = 1.25;
  status.gpulets[0].pace = 1.5;
  status.events.push_back({Time(std::chrono::seconds(4)), "again", true});
  status.events.back().count = 3;
  const json document = parsed(status);
  ASSERT_EQ(document["problems"].size(), 1U);
  const json& problem = document["problems"][0];
  EXPECT_EQ(problem["cause"], "too_few_devices");
  EXPECT_EQ(problem["grave"], true);
  EXPECT_EQ(problem["model"], "lenet");
  EXPECT_TRUE(problem["device"].is_null());
  EXPECT_DOUBLE_EQ(problem["violated"], 0.25);
  EXPECT_FALSE(problem["text"].get<std::string>().empty());
  EXPECT_FALSE(problem["fix"].get<std::string>().empty());
  EXPECT_EQ(document["models"][0]["last_minute"],
            json::parse(R"({"answered": 100, "late": 1, "dropped": 24, "failed": 0})"));
  EXPECT_DOUBLE_EQ(document["models"][0]["pace"], 1.25);
  EXPECT_DOUBLE_EQ(document["nodes"][0]["devices"][0]["gpulets"][0]["pace"], 1.5);
  EXPECT_EQ(document["events"][1]["count"], 3);
  EXPECT_EQ(document["events"][1]["warning"], true);
}

TEST(StatusJsonTest, NamesTheMigInstanceOfAGpulet) {
  serve::FrontendStatus status = serving_status();
  status.gpulets[0].gpulet.instance = partition::MigInstance{3, 4};
  EXPECT_EQ(parsed(status)["nodes"][0]["devices"][0]["gpulets"][0]["instance"], "3g@4");
}

TEST(StatusJsonTest, ShowsTheModelsOfAGpuletOutsideThePlan) {
  serve::FrontendStatus status = serving_status();
  status.gpulets[0].planned.reset();
  status.gpulets[0].gpulet.retiring = true;
  const json document = parsed(status);
  const json& gpulet = document["nodes"][0]["devices"][0]["gpulets"][0];
  EXPECT_EQ(gpulet["state"], "retiring");
  EXPECT_EQ(gpulet["models"][0]["name"], "lenet");
}

TEST(StatusJsonTest, DescribesControlledModelsOnly) {
  serve::FrontendStatus status = serving_status();
  EXPECT_FALSE(parsed(status).contains("controlled_nodes"));
  EXPECT_FALSE(parsed(status)["models"][0].contains("control"));
  EXPECT_FALSE(parsed(status)["nodes"][0]["devices"][0]["gpulets"][0].contains("service"));
  status.gpulets[0].planned->service = schedule::Service::controlled;
  status.gpulets[0].cores = control::Cores{1.5, 1.25};
  status.models[0].control = serve::ModelControlStatus{40, 38.5, 0.75, 2.5, 2, 60, 3, 900, 300, 95};
  status.controlled_nodes = {{{"n0", 1}, 8, 4, 3.5, 0.875}};
  const json document = parsed(status);
  const json& gpulet = document["nodes"][0]["devices"][0]["gpulets"][0];
  EXPECT_EQ(gpulet["service"], "controlled");
  EXPECT_EQ(gpulet["cores"], json::parse(R"({"asked": 1.5, "given": 1.25})"));
  EXPECT_EQ(document["models"][0]["control"],
            json::parse(R"({"set_point_ms": 40.0, "response_ms": 38.5, "gpu_part": 0.75,
                            "cores_asked": 2.5, "cores_given": 2.0, "periods": 60,
                            "violated_periods": 3, "on_gpu": 900, "on_cpu": 300,
                            "core_seconds": 95.0})"));
  EXPECT_EQ(document["controlled_nodes"],
            json::parse(R"([{"node": "n0", "device": 1, "cores": 8.0, "asked": 4.0, "given": 3.5,
                             "contention": 0.875}])"));
  status.gpulets[0].planned->service = schedule::Service::by_need;
  EXPECT_EQ(parsed(status)["nodes"][0]["devices"][0]["gpulets"][0]["service"], "by_need");
}

TEST(StatusJsonTest, ReplacesTheBytesOfAPathThatAreNoUtf8) {
  serve::FrontendStatus status = serving_status();
  status.file_problems = {"models/\xff.pt: no such file"};
  EXPECT_EQ(parsed(status)["file_problems"][0], "models/\xef\xbf\xbd.pt: no such file");
}

TEST(StatusJsonTest, OmitsABackendBeforeHello) {
  serve::FrontendStatus status = serving_status();
  status.backends[BackendId{2}] = {};
  EXPECT_EQ(parsed(status)["nodes"].size(), 1U);
}

}  // namespace
}  // namespace gpulet::frontend
