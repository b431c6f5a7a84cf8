// `gpulet train` as a user runs it.
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

using support::holds;
using support::names;
using ::testing::StartsWith;

class TrainProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    folder_ = std::filesystem::path(::testing::TempDir()) / ("gpulet_train_" + name);
    std::filesystem::create_directories(folder_);
    std::string latency = "model,batch,partition,latency_ms\n";
    for (const int percent : {50, 100}) {
      for (const int batch : {1, 4, 16}) {
        latency += "a," + std::to_string(batch) + ',' + std::to_string(percent) + ',' +
                   std::to_string((1.0 + 0.5 * batch) * 100 / percent) + '\n';
      }
    }
    write("latency.csv", latency);
    write("cluster.json", R"({"nodes":[{"name":"n0","devices":[{"type":"card","count":1,)"
                          R"("partitioning":"mps"}]}]})");
    write("demand.json", R"({"models":[{"name":"a","rate":100,"slo_ms":100}]})");
    const ProgramResult imported = run_gpulet({"profile", "import", "--name", "card", "--latency",
                                               file("latency.csv"), "--out", file("profiles")});
    ASSERT_EQ(imported.exit_code, 0) << imported.errors;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string file(const std::string& name) const {
    return (folder_ / name).string();
  }
  void write(const std::string& name, const std::string& content) const {
    std::ofstream(folder_ / name) << content;
  }
  [[nodiscard]] std::string content(const std::string& name) const {
    std::ostringstream all;
    all << std::ifstream(folder_ / name, std::ios::binary).rdbuf();
    return all.str();
  }

  [[nodiscard]] ProgramResult train(const std::vector<std::string>& further) const {
    std::vector<std::string> arguments = {"train",
                                          "--cluster",
                                          file("cluster.json"),
                                          "--profiles",
                                          file("profiles"),
                                          "--demand",
                                          file("demand.json"),
                                          "--steps",
                                          "3"};
    arguments.insert(arguments.end(), further.begin(), further.end());
    return run_gpulet(arguments);
  }

  std::filesystem::path folder_;
};

TEST_F(TrainProgram, WritesAPolicyACurveAndACheckpointToResume) {
  const ProgramResult whole = train({"--episodes", "4", "--out", file("whole.policy"), "--json"});
  ASSERT_EQ(whole.exit_code, 0) << whole.errors;
  const auto document = nlohmann::json::parse(whole.output);
  EXPECT_EQ(document["episodes"], 4);
  EXPECT_EQ(document["interrupted"], false);
  EXPECT_EQ(document["policy"], file("whole.policy"));
  EXPECT_THAT(content("whole.svg"), StartsWith("<svg "));
  EXPECT_TRUE(holds(content("whole.csv"), "\n4,3,"));

  ASSERT_EQ(train({"--episodes", "2", "--out", file("half.policy")}).exit_code, 0);
  const ProgramResult resumed = train({"--episodes", "4", "--out", file("half.policy"), "--resume",
                                       file("half.checkpoint"), "--threads", "1"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.errors;
  EXPECT_THAT(resumed.output, StartsWith("4 episodes in "));
  EXPECT_EQ(content("half.checkpoint"), content("whole.checkpoint"));
  EXPECT_EQ(content("half.policy"), content("whole.policy"));
}

TEST_F(TrainProgram, NotesItsSettingsInThePolicy) {
  const ProgramResult trained = train({"--episodes", "1", "--out", file("one.policy"), "--headroom",
                                       "none", "--margin", "1.5", "--first-temperature", "0.25",
                                       "--steps-per-update", "2", "--step-seconds", "0.5"});
  ASSERT_EQ(trained.exit_code, 0) << trained.errors;
  const std::string policy = content("one.policy");
  const std::size_t header = policy.find('\n') + 1;
  const auto training =
      nlohmann::json::parse(policy.substr(header, policy.find('\n', header) - header))["training"];
  EXPECT_EQ(training["headroom"], "none");
  EXPECT_EQ(training["margin"], "1.5");
  EXPECT_EQ(training["first_temperature"], "0.25");
  EXPECT_EQ(training["steps_per_update"], "2");
  EXPECT_EQ(training["step_seconds"], "0.5");
}

TEST_F(TrainProgram, NamesWrongInput) {
  ASSERT_EQ(train({"--episodes", "1", "--out", file("one.policy")}).exit_code, 0);
  const ProgramResult other_seed =
      train({"--seed", "2", "--out", file("two.policy"), "--resume", file("one.checkpoint")});
  EXPECT_EQ(other_seed.exit_code, 2);
  EXPECT_TRUE(names(other_seed.errors, "one.checkpoint", "seed 1"));

  const ProgramResult other_headroom = train(
      {"--headroom", "none", "--out", file("two.policy"), "--resume", file("one.checkpoint")});
  EXPECT_EQ(other_headroom.exit_code, 2);
  EXPECT_TRUE(names(other_headroom.errors, "one.checkpoint"));

  const ProgramResult no_headroom = train({"--headroom", "some"});
  EXPECT_EQ(no_headroom.exit_code, 2);
  EXPECT_TRUE(names(no_headroom.errors, "--headroom"));

  const ProgramResult no_file = train({"--resume", file("none")});
  EXPECT_EQ(no_file.exit_code, 2);
  EXPECT_TRUE(names(no_file.errors, file("none")));

  const ProgramResult no_program = train({"--program", file("gpulet-train")});
  EXPECT_EQ(no_program.exit_code, 1);
  EXPECT_TRUE(names(no_program.errors, file("gpulet-train")));
}

}  // namespace
}  // namespace gpulet::tools
