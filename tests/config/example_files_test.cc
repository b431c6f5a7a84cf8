// The files in config/ are documentation: they must stay true.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>

#include "gpulet/config/application_config.h"
#include "gpulet/config/cluster_config.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/config/model_config.h"
#include "gpulet/config/workload_config.h"

namespace gpulet::config {
namespace {

const std::filesystem::path kFolder = std::filesystem::path(GPULET_SOURCE_DIR) / "config";

TEST(ExampleFiles, AllLoad) {
  const auto expect_ok = [](const auto& loaded) {
    EXPECT_TRUE(loaded.ok()) << loaded.status().to_string();
  };
  expect_ok(load_models(kFolder / "models.json"));
  expect_ok(load_cluster(kFolder / "cluster.json"));
  expect_ok(load_demand(kFolder / "demand.json"));
  expect_ok(load_workload(kFolder / "workload.json"));
  expect_ok(load_frontend(kFolder / "frontend.json"));
  expect_ok(load_backend(kFolder / "backend-n0.json"));
  expect_ok(load_backend(kFolder / "backend-n1.json"));
}

TEST(ExampleFiles, TheModelsAreTheThirteenThatAreExported) {
  const auto models = load_models(kFolder / "models.json");
  ASSERT_TRUE(models.ok());
  EXPECT_EQ(models.value().size(), 13U);
  for (const ModelConfig& model : models.value()) {
    const std::filesystem::path expected =
        std::filesystem::path(GPULET_SOURCE_DIR) / "models" / (model.name + ".pt");
    EXPECT_EQ(model.file, expected.lexically_normal());
  }
}

TEST(ExampleFiles, DemandAndWorkloadAskForServedModelsWithTheirObjectives) {
  const auto models = load_models(kFolder / "models.json");
  ASSERT_TRUE(models.ok());
  const auto objective = [&models](const std::string& name) {
    const auto found =
        std::find_if(models.value().begin(), models.value().end(),
                     [&name](const ModelConfig& model) { return model.name == name; });
    return found == models.value().end() ? -1 : found->slo_ms;
  };
  const auto demands = load_demand(kFolder / "demand.json");
  ASSERT_TRUE(demands.ok());
  for (const DemandConfig& demand : demands.value()) {
    EXPECT_EQ(objective(demand.name), demand.slo_ms) << demand.name;
  }
  const auto workload = load_workload(kFolder / "workload.json");
  ASSERT_TRUE(workload.ok());
  for (const WorkloadModel& model : workload.value()) {
    EXPECT_EQ(objective(model.name), model.slo_ms) << model.name;
  }
}

TEST(ExampleFiles, WorkloadsAskForWhatIsServed) {
  const auto serving = load_serving(kFolder / "models.json");
  ASSERT_TRUE(serving.ok()) << serving.status().to_string();
  std::map<std::string, double> objectives;
  for (const ModelConfig& model : serving.value().models) objectives[model.name] = 0;
  for (const ApplicationConfig& one : serving.value().applications)
    objectives[one.name] = one.slo_ms;
  EXPECT_EQ(objectives.size(), 15U);
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder / "workloads")) {
    if (entry.path().extension() != ".json") continue;
    ++files;
    const auto workload = load_workload(entry.path());
    ASSERT_TRUE(workload.ok()) << workload.status().to_string();
    for (const WorkloadModel& model : workload.value()) {
      ASSERT_TRUE(objectives.contains(model.name)) << entry.path() << " " << model.name;
      // The papers' models have the papers' objectives.
      const double own = objectives[model.name];
      EXPECT_TRUE(own == 0 || own == model.slo_ms) << entry.path() << " " << model.name;
    }
  }
  EXPECT_EQ(files, 10U);
}

TEST(ExampleFiles, TheClusterIsWhatTheTwoBackendsAnnounce) {
  const auto cluster = load_cluster(kFolder / "cluster.json");
  ASSERT_TRUE(cluster.ok());
  for (const NodeConfig& node : cluster.value()) {
    const auto backend = load_backend(kFolder / ("backend-" + node.name + ".json"));
    ASSERT_TRUE(backend.ok()) << backend.status().to_string();
    EXPECT_EQ(backend.value().node, node.name);
    EXPECT_EQ(backend.value().devices, node.devices);
  }
}

}  // namespace
}  // namespace gpulet::config
