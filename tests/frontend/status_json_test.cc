// The status document is a contract: docs/status.md.
#include "frontend/status_json.h"

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
  gpulet.gpulet = {BackendId{1}, {"n0", 0}, Share{40}, {{"lenet", 8}}, serve::GpuletState::ready,
                   {},           false};
  gpulet.planned =
      schedule::PlannedGpulet{{"n0", 0}, Share{40}, 12.5, {{"lenet", 100, 5, 6.1, 1, 50}}};
  gpulet.statistics = {4, 10, {}, 20};
  status.gpulets.push_back(gpulet);
  serve::ModelStatus model;
  model.name = "lenet";
  model.counters = {12, 10, 3, 1, 1};
  status.models.push_back(model);
  status.events.push_back({Time(std::chrono::seconds(3)), "epoch 3 serves"});
  return status;
}

json document(const serve::FrontendStatus& status) {
  return json::parse(
      status_json(status, Time(std::chrono::seconds(1)), Time(std::chrono::seconds(5)), 2));
}

TEST(StatusJsonTest, HoldsEveryFieldOfTheContract) {
  const json told = document(serving_status());
  EXPECT_EQ(told["frontend"]["state"], "serving");
  EXPECT_EQ(told["frontend"]["epoch"], 3);
  EXPECT_EQ(told["frontend"]["clients"], 2);
  EXPECT_DOUBLE_EQ(told["frontend"]["uptime_s"], 4);
  const json& device = told["nodes"][0]["devices"][0];
  EXPECT_EQ(device["mechanism"], "cgroup v1");
  EXPECT_EQ(device["traits"]["change"], "new_process");
  EXPECT_EQ(device["traits"]["fault"], "process");
  const json& gpulet = device["gpulets"][0];
  EXPECT_EQ(gpulet["size"], 40);
  EXPECT_EQ(gpulet["instance"], "");
  EXPECT_EQ(gpulet["sms"], 0);
  EXPECT_EQ(gpulet["state"], "ready");
  EXPECT_DOUBLE_EQ(gpulet["mean_batch"], 2.5);
  EXPECT_DOUBLE_EQ(gpulet["batch_fill"], 0.5);
  EXPECT_EQ(gpulet["models"][0]["name"], "lenet");
  EXPECT_EQ(gpulet["models"][0]["batch"], 5);
  EXPECT_EQ(told["models"][0]["late"], 3);
  EXPECT_EQ(told["models"][0]["kind"], "model");
  EXPECT_EQ(told["models"][0]["violations"], 5);
  EXPECT_DOUBLE_EQ(told["events"][0]["at_s"], 2);
}

TEST(StatusJsonTest, TellsTheInstanceOfAGpulet) {
  serve::FrontendStatus status = serving_status();
  status.gpulets[0].gpulet.instance = partition::MigInstance{3, 4};
  EXPECT_EQ(document(status)["nodes"][0]["devices"][0]["gpulets"][0]["instance"], "3g@4");
}

TEST(StatusJsonTest, GpuletOutsideThePlanStillShowsItsModels) {
  serve::FrontendStatus status = serving_status();
  status.gpulets[0].planned.reset();
  status.gpulets[0].gpulet.retiring = true;
  const json told = document(status);
  const json& gpulet = told["nodes"][0]["devices"][0]["gpulets"][0];
  EXPECT_EQ(gpulet["state"], "retiring");
  EXPECT_EQ(gpulet["models"][0]["name"], "lenet");
}

TEST(StatusJsonTest, BackendThatHasNotSaidHelloIsNotShown) {
  serve::FrontendStatus status = serving_status();
  status.backends[BackendId{2}] = {};
  EXPECT_EQ(document(status)["nodes"].size(), 1U);
}

}  // namespace
}  // namespace gpulet::frontend
