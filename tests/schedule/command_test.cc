// `gpulet schedule` as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/names.h"
#include "tests/tools/program_run.h"

namespace gpulet::tools {
namespace {

using nlohmann::json;
using support::names;
using ::testing::IsEmpty;

class ScheduleCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    folder_ = std::filesystem::path(::testing::TempDir()) / ("gpulet_schedule_" + name);
    std::filesystem::create_directories(folder_);
    cluster_ = write("cluster.json", R"({"nodes":[{"name":"n0","devices":[{"type":"gpu","count":2,
      "partitioning":"mps","sizes":[50,100],"max_partitions":2,"memory_mb":16384}]}]})");
    demand_ = write("demand.json", R"({"models":[
      {"name":"a","rate":100.0,"slo_ms":60,"max_batch":8},
      {"name":"b","rate":50.0,"slo_ms":90}]})");
    const std::string latency = write("latency.csv",
                                      "model,batch,partition,latency_ms\n"
                                      "a,1,50,3\na,8,50,10\na,1,100,2\na,8,100,6\n"
                                      "b,1,50,4\nb,8,50,20\nb,1,100,3\nb,8,100,11\n");
    profiles_ = (folder_ / "profiles").string();
    ASSERT_EQ(
        run_gpulet({"profile", "import", "--name", "gpu", "--latency", latency, "--out", profiles_})
            .exit_code,
        0);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& content) {
    std::ofstream(folder_ / name) << content;
    return (folder_ / name).string();
  }

  ProgramResult schedule(const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"schedule", "--cluster", cluster_, "--profiles",
                                       profiles_,  "--demand",  demand_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_gpulet(arguments);
  }

  std::filesystem::path folder_;
  std::string cluster_;
  std::string demand_;
  std::string profiles_;
};

TEST_F(ScheduleCommand, PrintsThePlanAsJson) {
  for (const char* policy : {"elastic", "sbp"}) {
    const ProgramResult result =
        schedule({"--policy", policy, "--margin", "1.2", "--no-interference", "--json"});
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    const json plan = json::parse(result.output);
    EXPECT_EQ(plan.at("policy"), policy);
    EXPECT_EQ(plan.at("schedulable"), true);
    EXPECT_EQ(plan.at("devices_used"), 1);
    EXPECT_TRUE(plan.at("plan_time_us").is_number());
    EXPECT_TRUE(plan.at("unserved").empty());
    const json& gpulet = plan.at("gpulets").at(0);
    EXPECT_EQ(gpulet.at("node"), "n0");
    EXPECT_EQ(gpulet.at("device"), 0);
    const json& assignment = gpulet.at("assignments").at(0);
    EXPECT_EQ(assignment.at("slowdown"), 1.0);
    EXPECT_EQ(assignment.at("slo_ms"), assignment.at("model") == "a" ? 60 : 90);
    EXPECT_LE(gpulet.at("duty_cycle_ms").get<double>() + assignment.at("latency_ms").get<double>(),
              assignment.at("slo_ms").get<double>());
    EXPECT_LE(assignment.at("rate").get<double>() * gpulet.at("duty_cycle_ms").get<double>() / 1000,
              assignment.at("batch").get<double>());
  }
}

TEST_F(ScheduleCommand, ADemandThatIsNotSchedulableFailsWithTheBestPlan) {
  demand_ = write("demand.json", R"({"models":[{"name":"a","rate":9000,"slo_ms":60}]})");
  const ProgramResult result = schedule({"--policy", "elastic", "--max-devices", "1", "--json"});
  EXPECT_EQ(result.exit_code, 1) << result.errors;
  const json plan = json::parse(result.output);
  EXPECT_EQ(plan.at("schedulable"), false);
  EXPECT_EQ(plan.at("devices_used"), 1);
  EXPECT_EQ(plan.at("unserved").at(0).at("model"), "a");
  EXPECT_GT(plan.at("unserved").at(0).at("rate"), 5000);
  EXPECT_TRUE(names(result.errors, "a"));
}

TEST_F(ScheduleCommand, SharesAShortageAsTheFrontendDoes) {
  demand_ = write("demand.json", R"({"models":[{"name":"a","rate":9000,"slo_ms":60,"max_batch":8},
    {"name":"b","rate":50,"slo_ms":90,"max_batch":8}]})");
  const ProgramResult result = schedule({"--policy", "elastic", "--json"});
  EXPECT_EQ(result.exit_code, 1) << result.errors;
  const json plan = json::parse(result.output);
  ASSERT_EQ(plan.at("unserved").size(), 1U)
      << "a small demand is served in full: " << result.output;
  EXPECT_EQ(plan.at("unserved").at(0).at("model"), "a");
  EXPECT_LT(plan.at("unserved").at(0).at("rate"), 8500) << "and the other gets the rest";
}

TEST_F(ScheduleCommand, PrintsATableAndWhyDemandIsUnserved) {
  demand_ =
      write("demand.json",
            R"({"models":[{"name":"a","rate":50,"slo_ms":60},{"name":"c","rate":1,"slo_ms":9}]})");
  const ProgramResult result = schedule({"--policy", "elastic"});
  EXPECT_EQ(result.exit_code, 1) << result.errors;
  EXPECT_TRUE(names(result.output, "n0/0", "1 of 2 devices", "1 requests/s", "'c'"));
}

TEST_F(ScheduleCommand, CountsScenarios) {
  const std::string scenarios = write("scenarios.csv", "a,b\n10,10\n0,20\n90000,10\n0,0\n");
  const ProgramResult result = schedule({"--policy", "sbp", "--scenarios", scenarios, "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const json count = json::parse(result.output);
  EXPECT_EQ(count.at("policy"), "sbp");
  EXPECT_EQ(count.at("scenarios"), 4);
  EXPECT_EQ(count.at("schedulable"), 3);
  EXPECT_EQ(count.at("rows"), json({true, true, false, true}));
  EXPECT_TRUE(count.at("plan_time_us").at("p50").is_number());
  EXPECT_TRUE(count.at("plan_time_us").at("p99").is_number());
}

TEST_F(ScheduleCommand, BadInputEndsWithTwoAndSaysWhere) {
  const std::string unknown = write("unknown.csv", "a,z\n1,1\n");
  const std::string other = write("other.json", R"({"nodes":[{"name":"n0","devices":[
    {"type":"tpu","count":1,"partitioning":"mps"}]}]})");
  struct Bad {
    std::vector<std::string> arguments;
    std::string value;  // that the message names
  };
  for (const Bad& bad :
       {Bad{{"--policy", "best"}, "elastic"}, Bad{{"--margin", "0.9"}, "margin"},
        Bad{{"--scenarios", unknown}, "'z'"}, Bad{{"--scenarios", "absent.csv"}, "absent.csv"},
        Bad{{"--max-devices", "-1"}, "--max-devices"}}) {
    const ProgramResult result = schedule(bad.arguments);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.output, IsEmpty());
    EXPECT_TRUE(names(result.errors, bad.value));
  }
  cluster_ = other;
  const ProgramResult result = schedule({});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_TRUE(names(result.errors, "'tpu'"));
}

}  // namespace
}  // namespace gpulet::tools
