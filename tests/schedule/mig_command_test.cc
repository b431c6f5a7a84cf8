// `gpulet optimize` and `gpulet transition` as a user runs them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/names.h"
#include "tests/tools/program_run.h"

namespace gpulet::tools {
namespace {

using nlohmann::json;
using support::names;

class MigCommands : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    folder_ = std::filesystem::path(::testing::TempDir()) / ("gpulet_mig_" + name);
    std::filesystem::create_directories(folder_);
    write("cluster.json", R"({"nodes":[{"name":"n0","devices":[{"type":"a100","count":8,
      "partitioning":"simulated","geometry":"a100-80"}]}]})");
    write("day.json", R"({"models":[{"name":"a","rate":800,"slo_ms":100},
      {"name":"b","rate":400,"slo_ms":100}]})");
    write("night.json", R"({"models":[{"name":"a","rate":80,"slo_ms":100},
      {"name":"b","rate":420,"slo_ms":100}]})");
    std::ostringstream latency;
    latency << "model,batch,partition,latency_ms\n";
    for (const int slices : {1, 2, 3, 4, 7}) {
      for (const int batch : {1, 8, 32}) {
        latency << "a," << batch << ',' << slices << "g," << 2 + 20.0 * batch / 8 / slices << '\n'
                << "b," << batch << ',' << slices << "g," << 9 + 70.0 * batch / 8 / slices << '\n';
      }
    }
    write("latency.csv", latency.str());
    const ProgramResult imported = run_gpulet({"profile", "import", "--name", "a100", "--latency",
                                               path("latency.csv"), "--out", path("profiles")});
    ASSERT_EQ(imported.exit_code, 0) << imported.errors;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string path(const std::string& name) const {
    return (folder_ / name).string();
  }
  void write(const std::string& name, const std::string& content) const {
    std::ofstream(folder_ / name) << content;
  }

  [[nodiscard]] ProgramResult optimize(const std::string& demand,
                                       const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments{"optimize",   "--cluster",      path("cluster.json"),
                                       "--profiles", path("profiles"), "--demand",
                                       path(demand)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_gpulet(arguments);
  }

  // Plans of day and night, as files.
  void plan_both() const {
    for (const std::string when : {"day", "night"}) {
      const ProgramResult result = optimize(when + ".json", {"--json", "--seconds", "5"});
      ASSERT_EQ(result.exit_code, 0) << result.errors;
      write(when + ".plan", result.output);
    }
  }

  std::filesystem::path folder_;
};

TEST_F(MigCommands, OptimizePrintsAPlanWithInstances) {
  const ProgramResult one = optimize("day.json", {"--json", "--threads", "1", "--seed", "3"});
  ASSERT_EQ(one.exit_code, 0) << one.errors;
  const json plan = json::parse(one.output);
  EXPECT_EQ(plan.at("policy"), "mig-two-phase");
  EXPECT_EQ(plan.at("schedulable"), true);
  for (const json& gpulet : plan.at("gpulets")) {
    EXPECT_THAT(gpulet.at("profile").get<std::string>(), ::testing::MatchesRegex("[12347]g"));
    EXPECT_TRUE(gpulet.at("start").is_number_unsigned());
  }
  const ProgramResult two = optimize("day.json", {"--json", "--threads", "2", "--seed", "3"});
  EXPECT_EQ(json::parse(two.output).at("gpulets"), plan.at("gpulets"));
}

TEST_F(MigCommands, OptimizeSaysWhatDevicesAreFilledWithAndHowFarTheBoundIs) {
  const ProgramResult result = optimize("day.json");
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_TRUE(names(result.output, "FILLED WITH", "mig-two-phase"));
  EXPECT_THAT(result.output, ::testing::ContainsRegex(" [0-9]+\\.[0-9] "));
}

TEST_F(MigCommands, OptimizeTakesAnyPolicyAndRefusesNonsense) {
  const ProgramResult cover = optimize("day.json", {"--policy", "cover"});
  ASSERT_EQ(cover.exit_code, 0) << cover.errors;
  const ProgramResult document = optimize("day.json", {"--policy", "cover", "--json"});
  const auto bound = json::parse(document.output).at("lower_bound").get<std::uint32_t>();
  EXPECT_TRUE(names(cover.output, std::to_string(bound)));
  EXPECT_EQ(optimize("day.json", {"--seconds", "0"}).exit_code, 2);
  EXPECT_EQ(optimize("day.json", {"--policy", "mig"}).exit_code, 2);
}

TEST_F(MigCommands, TransitionPrintsActionsAndDrawsThem) {
  plan_both();
  const ProgramResult text =
      run_gpulet({"transition", "--from", path("day.plan"), "--to", path("night.plan"), "--cluster",
                  path("cluster.json"), "--picture", path("way.svg")});
  ASSERT_EQ(text.exit_code, 0) << text.errors;
  EXPECT_TRUE(names(text.output, "stage 1", "requests/s", "a"));
  std::ifstream picture(path("way.svg"));
  std::string first;
  std::getline(picture, first);
  EXPECT_TRUE(first.starts_with("<svg")) << first;

  const ProgramResult document =
      run_gpulet({"transition", "--from", path("day.plan"), "--to", path("night.plan"), "--json"});
  ASSERT_EQ(document.exit_code, 0) << document.errors;
  const json way = json::parse(document.output);
  EXPECT_GT(way.at("counts").at("removed").get<int>(), 0);
  for (const json& stage : way.at("stages")) {
    EXPECT_GE(stage.at("least_rate").at("a").get<double>(), 80 * (1 - 1e-6));
    EXPECT_GE(stage.at("least_rate").at("b").get<double>(), 400 * (1 - 1e-6));
    EXPECT_GT(stage.at("devices_in_use").get<int>(), 0);
  }
}

TEST_F(MigCommands, TransitionRefusesWhatIsNoPlan) {
  write("broken.plan", R"({"policy":"x","gpulets":[{"node":"n0","device":0,"size":42,
    "profile":"5x","start":0,"duty_cycle_ms":1,"assignments":[]}],"unserved":[]})");
  const ProgramResult result =
      run_gpulet({"transition", "--from", path("broken.plan"), "--to", path("broken.plan")});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_TRUE(names(result.errors, "/gpulets/0/profile"));
  EXPECT_EQ(run_gpulet({"transition", "--from", path("none"), "--to", path("none")}).exit_code, 2);
}

}  // namespace
}  // namespace gpulet::tools
