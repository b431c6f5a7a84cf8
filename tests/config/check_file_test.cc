#include "gpulet/config/check_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "gpulet/config/cluster_config.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/config/model_config.h"
#include "tests/support/names.h"

namespace gpulet::config::check_file_test {
namespace {

using support::Names;
using support::names;
using ::testing::UnorderedElementsAre;

constexpr const char* kModels =
    R"({"models":[{"name":"a","file":"a.pt","slo_ms":5,"inputs":[{"name":"i","type":"FP32","shape":[1]}],
        "outputs":[{"name":"o","type":"FP32","shape":[1]}]}]})";

// A folder of its own for every test.
class CheckFile : public testing::Test {
 protected:
  CheckFile()
      : folder_(std::filesystem::path(testing::TempDir()) /
                (std::string("gpulet-check-file-") +
                 testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~CheckFile() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }
  std::vector<std::string> errors_of(const std::string& text) {
    const auto checked = check_file(write("f.json", text));
    if (!checked.ok()) return {checked.status().message()};
    std::vector<std::string> errors;
    for (const Status& error : checked.value().errors) errors.push_back(error.message());
    return errors;
  }
  // Or its errors.
  std::string kind_of(const std::string& text) {
    std::string errors;
    for (const std::string& error : errors_of(text)) errors += error + '\n';
    return errors.empty() ? check_file(folder_ / "f.json").value().kind : errors;
  }

  std::filesystem::path folder_;
};

TEST_F(CheckFile, RecognisesEveryKind) {
  write("a.pt", "");
  write("m.json", kModels);
  std::filesystem::create_directories(folder_ / "profiles");
  EXPECT_EQ(kind_of(kModels), "models");
  EXPECT_EQ(kind_of(R"({"models":[{"name":"a","rate":1,"slo_ms":5}]})"), "demand");
  EXPECT_EQ(kind_of(R"({"models":[{"name":"a","rate":1,"slo_ms":5}],"applications":[)"
                    R"({"name":"b","rate":1,"slo_ms":5,"nodes":[{"name":"n","model":"a"}]}]})"),
            "demand");
  EXPECT_EQ(kind_of(R"({"models":[{"name":"a","rate":1,"slo_ms":5,"arrivals":"uniform"}]})"),
            "workload");
  EXPECT_EQ(kind_of(R"({"nodes":[{"name":"n","devices":[{"type":"t","partitioning":"mps"}]}]})"),
            "cluster");
  EXPECT_EQ(kind_of(R"({"models":"m.json","profiles":"profiles"})"), "frontend");
  EXPECT_EQ(kind_of(R"({"cores":"steps","set_point":0.7})"), "control");
  EXPECT_EQ(
      kind_of(R"({"node":"n","model_store":"s","devices":[{"type":"t","partitioning":"mps"}]})"),
      "backend");
}

TEST_F(CheckFile, ASlipInOneKeyIsReportedForTheKindThatWasMeant) {
  EXPECT_TRUE(names(
      kind_of(R"({"models":[{"name":"a","fil":"a.pt","slo_ms":5,"inputs":[],"outputs":[]}]})"),
      "f.json: /models/0/fil", R"("file")"));
  EXPECT_TRUE(
      names(kind_of(R"({"node":"n","model_stores":"s","devices":[]})"), R"("model_store")"));
}

TEST_F(CheckFile, AFileOfNoKindGetsTheListOfKinds) {
  EXPECT_TRUE(names(kind_of(R"({"colour":"red"})"), "demand", "workload", "models", "cluster",
                    "frontend", "backend", "control"));
  EXPECT_TRUE(names(kind_of("[]"), "(top level)"));
}

TEST_F(CheckFile, AFrontendsModelsAreLoadedToo) {
  write("m.json", R"({"models":[{"name":"a","slo_ms":-5,"file":"a.pt"}]})");
  EXPECT_TRUE(names(kind_of(R"({"models":"m.json","profiles":"p"})"), "m.json: /models/0/"));
  write("m.json", kModels);
  EXPECT_TRUE(names(kind_of(R"({"models":"m.json","profiles":"p"})"), "m.json: /models/0/file",
                    (folder_ / "a.pt").string()));
  write("a.pt", "");
  EXPECT_TRUE(names(kind_of(R"({"models":"m.json","profiles":"p"})"), "f.json: /profiles",
                    (folder_ / "p").string()));
}

TEST_F(CheckFile, FilesInStoresAreNotLookedUp) {
  std::string models = kModels;
  const std::size_t file = models.find("a.pt");
  ASSERT_NE(file, std::string::npos);
  models.replace(file, 4, "https://store.invalid/a.pt");
  EXPECT_EQ(kind_of(models), "models");
}

TEST_F(CheckFile, LabelsAreReadToo) {
  write("a.pt", "");
  std::string models = kModels;
  models.replace(models.find("\"slo_ms\""), 0, R"("labels":{"o":"l.txt"},)");
  EXPECT_TRUE(names(kind_of(models), "f.json: /models/0/labels/o", (folder_ / "l.txt").string()));
  write("l.txt", "one\ntwo\n");
  EXPECT_TRUE(names(kind_of(models), "/models/0/labels/o: "));
  write("l.txt", "one\n");
  EXPECT_EQ(kind_of(models), "models");
}

TEST_F(CheckFile, ReportsAllErrorsAtOnce) {
  write("m.json", R"({"models":[
    {"name":"a","slo_ms":-5,"file":"a.pt","input":[],"outputs":[{"name":"o","type":"FP3","shape":[0]}]},
    {"name":"b","slo_ms":5,"file":"b.pt","inputs":[],"outputs":"none"}]})");
  EXPECT_THAT(errors_of(R"({"models":7,"profiles":"p","margin":0,"colour":1,"tls":{"key":"k"}})"),
              UnorderedElementsAre(Names("/models"), Names("/colour"), Names("/margin"),
                                   Names("/tls/certificate"), Names("/tls/key: "),
                                   Names("f.json: /profiles: ")));
  EXPECT_THAT(
      errors_of(R"({"models":"m.json","profiles":"p","model_root":"r","colour":1})"),
      UnorderedElementsAre(Names("f.json: /colour"), Names("m.json: /models/0/slo_ms"),
                           Names("m.json: /models/0/input"), Names("m.json: /models/0/inputs"),
                           Names("m.json: /models/0/outputs/0/type"),
                           Names("m.json: /models/0/outputs/0/shape/0"),
                           Names("m.json: /models/1/inputs"), Names("m.json: /models/1/outputs"),
                           Names("f.json: /profiles: "), Names("f.json: /model_root: ")));
}

TEST_F(CheckFile, WhatFollowsFromAnErrorIsNoErrorOfItsOwn) {
  EXPECT_THAT(errors_of(R"({"nodes":[{"name":"n","devices":[
                 {"type":"t","partitioning":"cpu_quotas","cores":[0],"count":0}]}]})"),
              UnorderedElementsAre(Names("/nodes/0/devices/0/partitioning"),
                                   Names("/nodes/0/devices/0/count")));
  EXPECT_THAT(
      errors_of(R"({"models":[{"name":"","rate":1,"slo_ms":1},{"name":"","rate":1,"slo_ms":1}]})"),
      UnorderedElementsAre(Names("/models/0/name"), Names("/models/1/name")));
}

TEST_F(CheckFile, NamedFilesMustExist) {
  EXPECT_TRUE(
      names(kind_of(R"({"models":[{"name":"a","rate":1,"slo_ms":5,"input":{"file":"x"}}]})"),
            "/models/0/input/file", (folder_ / "x").string()));
  EXPECT_TRUE(names(
      kind_of(
          R"({"node":"n","model_store":"s","proxy":"x","devices":[{"type":"t","partitioning":"mps"}]})"),
      "/proxy", (folder_ / "x").string()));
}

}  // namespace

// The files in config/ are documentation: they must stay true.

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
  expect_ok(load_frontend(kFolder / "waves/frontend.json"));
  expect_ok(load_backend(kFolder / "waves/backend.json"));
  expect_ok(load_models(kFolder / "waves/models.json"));
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

TEST(ExampleFiles, DemandAndWorkloadMatchTheServedModels) {
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
  for (const DemandConfig& demand : demands.value().models) {
    EXPECT_EQ(objective(demand.name), demand.slo_ms) << demand.name;
  }
  const auto workload = load_workload(kFolder / "workload.json");
  ASSERT_TRUE(workload.ok());
  for (const WorkloadModel& model : workload.value()) {
    EXPECT_EQ(objective(model.name), model.slo_ms) << model.name;
  }
}

TEST(ExampleFiles, WorkloadsNameServedModels) {
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

TEST(ExampleFiles, TheClusterMatchesTheBackends) {
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

}  // namespace gpulet::config::check_file_test
