#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gpulet/config/daemon_config.h"

namespace gpulet::config {
namespace {

using testing::HasSubstr;

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
  std::string kind_of(const std::string& text) {
    const auto kind = check_file(write("f.json", text));
    return kind.ok() ? kind.value() : kind.status().message();
  }

  std::filesystem::path folder_;
};

TEST_F(CheckFile, RecognisesEveryKind) {
  write("a.pt", "");
  write("m.json", kModels);
  std::filesystem::create_directories(folder_ / "profiles");
  EXPECT_EQ(kind_of(kModels), "models");
  EXPECT_EQ(kind_of(R"({"models":[{"name":"a","rate":1,"slo_ms":5}]})"), "demand");
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
  EXPECT_THAT(
      kind_of(R"({"models":[{"name":"a","fil":"a.pt","slo_ms":5,"inputs":[],"outputs":[]}]})"),
      HasSubstr(R"(/models/0/fil: unknown key "fil"; write "file")"));
  EXPECT_THAT(kind_of(R"({"node":"n","model_stores":"s","devices":[]})"),
              HasSubstr(R"(write "model_store")"));
}

TEST_F(CheckFile, AStrangeFileIsToldTheKinds) {
  EXPECT_THAT(kind_of(R"({"colour":"red"})"),
              HasSubstr("demand, workload, models, cluster, frontend, backend, control"));
  EXPECT_THAT(kind_of("[]"), HasSubstr("(top level)"));
}

TEST_F(CheckFile, AFrontendsModelsAreLoadedToo) {
  write("m.json", R"({"models":[{"name":"a","slo_ms":-5,"file":"a.pt"}]})");
  EXPECT_THAT(kind_of(R"({"models":"m.json","profiles":"p"})"), HasSubstr("m.json: /models/0/"));
  write("m.json", kModels);
  EXPECT_THAT(kind_of(R"({"models":"m.json","profiles":"p"})"),
              HasSubstr("a.pt does not exist; export it"));
  write("a.pt", "");
  EXPECT_THAT(kind_of(R"({"models":"m.json","profiles":"p"})"),
              HasSubstr("f.json: /profiles: " + (folder_ / "p").string() +
                        " does not exist; measure one with"));
}

TEST_F(CheckFile, NamedFilesMustExist) {
  EXPECT_THAT(kind_of(R"({"models":[{"name":"a","rate":1,"slo_ms":5,"input":{"file":"x"}}]})"),
              HasSubstr("/models/0/input/file: " + (folder_ / "x").string() + " does not exist"));
  EXPECT_THAT(
      kind_of(
          R"({"node":"n","model_store":"s","proxy":"x","devices":[{"type":"t","partitioning":"mps"}]})"),
      HasSubstr("/proxy: " + (folder_ / "x").string() + " does not exist"));
}

}  // namespace
}  // namespace gpulet::config
