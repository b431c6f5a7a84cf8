// `gpulet simulate` as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
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
using ::testing::IsEmpty;
using ::testing::StartsWith;

class SimulateProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    folder_ = std::filesystem::path(::testing::TempDir()) / ("gpulet_simulate_" + name);
    std::filesystem::create_directories(folder_);
    std::string latency = "model,batch,partition,latency_ms\n";
    for (const int percent : {20, 40, 50, 60, 80, 100}) {
      for (const int batch : {1, 2, 4, 8, 16, 32}) {
        for (const std::string model : {"a", "b"}) {
          const double ms = (model == "a" ? 2 : 3) * (1 + 0.5 * batch) * 100 / percent;
          latency += model + ',' + std::to_string(batch) + ',' + std::to_string(percent) + ',' +
                     std::to_string(ms) + '\n';
        }
      }
    }
    const ProgramResult imported =
        run_gpulet({"profile", "import", "--name", "card", "--latency",
                    write("latency.csv", latency), "--out", (folder_ / "profiles").string()});
    ASSERT_EQ(imported.exit_code, 0) << imported.errors;
    cluster_ =
        write("cluster.json", R"({"nodes":[{"name":"n0","devices":[{"type":"card","count":2,)"
                              R"("partitioning":"mps"}]}]})");
    demand_ = write("demand.json", R"({"models":[{"name":"a","rate":100,"slo_ms":100},)"
                                   R"({"name":"b","rate":50,"slo_ms":120}]})");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& content) {
    std::ofstream(folder_ / name) << content;
    return (folder_ / name).string();
  }

  [[nodiscard]] ProgramResult simulate(const std::vector<std::string>& further) const {
    std::vector<std::string> arguments = {
        "simulate", "--cluster", cluster_, "--profiles", (folder_ / "profiles").string(),
        "--demand", demand_};
    arguments.insert(arguments.end(), further.begin(), further.end());
    return run_gpulet(arguments);
  }

  std::filesystem::path folder_;
  std::string cluster_;
  std::string demand_;
};

TEST_F(SimulateProgram, PrintsTheSameDocumentEveryTime) {
  const ProgramResult first = simulate({"--seconds", "10", "--seed", "7", "--json"});
  ASSERT_EQ(first.exit_code, 0) << first.errors;
  EXPECT_EQ(simulate({"--seconds", "10", "--seed", "7", "--json"}).output, first.output);
  const auto document = nlohmann::json::parse(first.output);
  ASSERT_EQ(document["models"].size(), 2U);
  for (const auto& model : document["models"]) {
    EXPECT_EQ(model["offered"], model["served"].get<int>() + model["dropped"].get<int>() +
                                    model["errors"].get<int>());
    for (const char* key : {"name", "late", "p50_ms", "p99_ms", "slo_ms", "violation"}) {
      EXPECT_TRUE(model.contains(key)) << key;
    }
  }
  EXPECT_GE(document["devices_used"], 1);
  EXPECT_LT(document["violation"], 0.01);
  EXPECT_TRUE(document["schedulable"]);
  EXPECT_TRUE(names(simulate({"--seconds", "10"}).output, "violation"));
}

TEST_F(SimulateProgram, FollowsATraceAndWritesASeries) {
  const std::string trace = write("trace.csv", "time_s,model,rate\n0,a,50\n30,a,400\n60,a,20\n");
  const std::string series = (folder_ / "series.csv").string();
  const ProgramResult result =
      simulate({"--seconds", "100", "--trace", trace, "--series", series, "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_GT(nlohmann::json::parse(result.output)["plans"], 1);
  std::ifstream file(series);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_THAT(text.str(), StartsWith("time_s,devices,share_percent,offered,violations,a offered,a "
                                     "violations,b offered,b violations,a batch planned,a batch "
                                     "run,a batch rate,b batch planned,b batch run,b batch rate,a "
                                     "response_ms,b response_ms\n0,"));
}

TEST_F(SimulateProgram, ScenariosDoNotDependOnTheNumberOfThreads) {
  const std::string rows = write("rows.csv", "a,b\n100,0\n0,50\n100000,0\n50,50\n");
  const ProgramResult one =
      simulate({"--seconds", "5", "--scenarios", rows, "--jobs", "1", "--json"});
  ASSERT_EQ(one.exit_code, 0) << one.errors;
  const ProgramResult three =
      simulate({"--seconds", "5", "--scenarios", rows, "--jobs", "3", "--json"});
  EXPECT_EQ(three.output, one.output);
  const auto document = nlohmann::json::parse(one.output);
  EXPECT_EQ(document["scenarios"], 4);
  EXPECT_EQ(document["schedulable"], 3);
  EXPECT_EQ(document["over_1_percent"], 0);
  ASSERT_EQ(document["rows"].size(), 4U);
  EXPECT_EQ(document["rows"][0]["row"], 1);
  EXPECT_FALSE(document["rows"][2]["schedulable"]);
  EXPECT_LT(document["rows"][3]["worst"], 0.01);
}

// The plan is made for 50 requests/s, and ten times as many arrive.
TEST_F(SimulateProgram, ScenariosMayOfferOtherRatesThanThePlanned) {
  const std::string planned = write("planned.csv", "a,b\n50,0\n");
  const std::string offered = write("offered.csv", "a,b\n500,0\n");
  const ProgramResult as_planned =
      simulate({"--seconds", "5", "--scenarios", planned, "--no-spare", "--json"});
  ASSERT_EQ(as_planned.exit_code, 0) << as_planned.errors;
  const ProgramResult more = simulate(
      {"--seconds", "5", "--scenarios", planned, "--offered", offered, "--no-spare", "--json"});
  ASSERT_EQ(more.exit_code, 0) << more.errors;
  EXPECT_EQ(nlohmann::json::parse(as_planned.output)["over_1_percent"], 0);
  EXPECT_EQ(nlohmann::json::parse(more.output)["over_1_percent"], 1);
}

// Plans know no interference; in the simulated world a neighbour costs threefold.
TEST_F(SimulateProgram, SimulatedInterferenceMayBeThatOfOtherProfiles) {
  std::string together =
      "model,batch,partition,other_model,other_batch,other_partition,latency_ms\n";
  std::string use = "model,batch,partition,l2_util,dram_util\n";
  for (const int batch : {1, 2, 4, 8, 16, 32}) {
    for (const std::string model : {"a", "b"}) {
      const std::string cell = model + ',' + std::to_string(batch) + ",50";
      const double alone_ms = (model == "a" ? 2 : 3) * (1 + 0.5 * batch) * 2;
      use += cell + ",0.5,0.5\n";
      for (const std::string other : {"a", "b"}) {
        together += cell + ',' + other + ',' + std::to_string(batch) + ",50," +
                    std::to_string(3 * alone_ms) + '\n';
      }
    }
  }
  const std::string folder = (folder_ / "disturbed").string();
  const ProgramResult imported =
      run_gpulet({"profile", "import", "--name", "card", "--latency",
                  (folder_ / "latency.csv").string(), "--utilization", write("use.csv", use),
                  "--interference", write("together.csv", together), "--out", folder});
  ASSERT_EQ(imported.exit_code, 0) << imported.errors;
  const std::string rows = write("rows.csv", "a,b\n300,200\n");
  const std::vector<std::string> arguments{
      "--policy", "elastic-published", "--max-devices", "1", "--seconds", "5", "--scenarios", rows,
      "--json"};
  std::vector<std::string> disturbed = arguments;
  disturbed.insert(disturbed.end(), {"--simulated-interference", folder});
  const ProgramResult alone = simulate(arguments);
  ASSERT_EQ(alone.exit_code, 0) << alone.errors;
  const ProgramResult together_run = simulate(disturbed);
  ASSERT_EQ(together_run.exit_code, 0) << together_run.errors;
  const auto undisturbed = nlohmann::json::parse(alone.output)["rows"][0];
  ASSERT_EQ(undisturbed["schedulable"], true);
  EXPECT_GT(nlohmann::json::parse(together_run.output)["rows"][0]["violation"],
            undisturbed["violation"]);
}

class SimulateApplications : public SimulateProgram {
 protected:
  void SetUp() override {
    SimulateProgram::SetUp();
    demand_ =
        write("applications.json",
              R"({"models":[{"name":"a","rate":10,"slo_ms":200},)"
              R"({"name":"b","rate":0,"slo_ms":200}],"applications":[)"
              R"({"name":"game","rate":20,"slo_ms":150,)"
              R"("nodes":[{"name":"digits","model":"a","count":3},)"
              R"({"name":"scene","model":"b"}]},)"
              R"({"name":"chain","rate":0,"slo_ms":300,"nodes":[{"name":"first","model":"a"},)"
              R"({"name":"second","model":"b","after":["first"]}]}]})");
  }
};

TEST_F(SimulateApplications, AreListedWithTheirOwnObjectives) {
  const ProgramResult result = simulate({"--seconds", "10", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const auto document = nlohmann::json::parse(result.output);
  ASSERT_EQ(document["applications"].size(), 2U);
  const auto& game = document["applications"][0];
  EXPECT_EQ(game["name"], "game");
  EXPECT_EQ(game["slo_ms"], 150);
  EXPECT_GT(game["offered"], 100);
  EXPECT_LT(game["violation"], 0.01);
  EXPECT_EQ(document["applications"][1]["offered"], 0);
  EXPECT_EQ(document["models"][1]["offered"], 0) << "calls are not requests of clients";
  EXPECT_EQ(document["requests"],
            document["models"][0]["offered"].get<int>() + game["offered"].get<int>());
  const std::string series = (folder_ / "series.csv").string();
  EXPECT_TRUE(names(simulate({"--seconds", "10", "--series", series}).output, "game"));
  std::ifstream file(series);
  std::string header;
  std::getline(file, header);
  EXPECT_TRUE(holds(header, ",b violations,game offered,game violations,chain offered,"));
  EXPECT_TRUE(holds(header, ",b response_ms,game response_ms,chain response_ms"));
  std::string row;
  std::getline(file, row);
  EXPECT_EQ(std::count(row.begin(), row.end(), ','), std::count(header.begin(), header.end(), ','));
}

TEST_F(SimulateApplications, TracesMayNameThem) {
  const std::string trace = write("trace.csv", "time_s,model,count\n0,chain,2\n1,game,3\n2,b,1\n");
  const ProgramResult result = simulate({"--seconds", "5", "--trace", trace, "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const auto document = nlohmann::json::parse(result.output);
  EXPECT_EQ(document["models"][1]["offered"], 1);
  EXPECT_EQ(document["applications"][0]["offered"], 3);
  EXPECT_EQ(document["applications"][1]["offered"], 2);
}

TEST_F(SimulateApplications, ScenariosMayNameThem) {
  const std::string rows = write("rows.csv", "a,game,chain\n0,20,0\n0,0,30\n10,100000,0\n");
  const ProgramResult result = simulate({"--seconds", "5", "--scenarios", rows, "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const auto document = nlohmann::json::parse(result.output);
  EXPECT_EQ(document["schedulable"], 2);
  EXPECT_EQ(document["over_1_percent"], 0);
  EXPECT_FALSE(document["rows"][2]["schedulable"]);
  EXPECT_NEAR(document["rows"][0]["requests"].get<double>(), 100, 50);
  EXPECT_NEAR(document["rows"][1]["requests"].get<double>(), 150, 60);

  const ProgramResult planned =
      run_gpulet({"schedule", "--cluster", cluster_, "--profiles", (folder_ / "profiles").string(),
                  "--demand", demand_, "--scenarios", rows, "--json"});
  ASSERT_EQ(planned.exit_code, 0) << planned.errors;
  EXPECT_EQ(nlohmann::json::parse(planned.output)["rows"],
            nlohmann::json::array({true, true, false}));
}

TEST_F(SimulateApplications, AnObjectiveThatNoPlanMeetsIsNamed) {
  demand_ = write("tight.json", R"({"models":[{"name":"a","rate":0,"slo_ms":200}],"applications":[)"
                                R"({"name":"tight","rate":1,"slo_ms":3,)"
                                R"("nodes":[{"name":"only","model":"a"}]}]})");
  const ProgramResult result = simulate({"--seconds", "5"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_TRUE(names(result.errors, "tight.json", "slo_ms"));
}

TEST_F(SimulateProgram, WrongInputExitsWithTwoAndIsNamed) {
  const std::string rows = write("rows.csv", "a\n1\n");
  const std::string two_rows = write("two_rows.csv", "a\n1\n2\n");
  const std::string unknown = write("unknown.csv", "time_s,model\n0,c\n");
  const std::string unknown_column = write("column.csv", "a,c\n1,2\n");
  const std::string back = write("back.csv", "time_s,model\n1,a\n0,a\n");
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--seconds", "0"}, "--seconds"},
      {{"--seconds", "nan"}, "--seconds"},
      {{"--policy", "magic"}, "magic"},
      {{"--trace", "/nowhere.csv"}, "/nowhere.csv"},
      {{"--trace", unknown}, "'c'"},
      {{"--trace", back}, "line 3"},
      {{"--scenarios", unknown_column}, "'c'"},
      {{"--scenarios", rows, "--trace", back}, "--scenarios"},
      {{"--offered", rows}, "--offered"},
      {{"--scenarios", rows, "--offered", two_rows}, "2 rows"},
      {{"--simulated-interference", "/nowhere"}, "/nowhere"},
      {{"--interference", "guessed"}, "--interference"},
      {{"--interference", "linear", "--no-interference"}, "--no-interference"},
      {{"--headroom", "some"}, "--headroom"},
      {{"--link-ms", "-1"}, "--link-ms"},
      {{"--noise", "loud"}, "--noise"},
      {{"--noise", "-0.1"}, "--noise"},
      {{"--noise", "9"}, "--noise"},
      {{"--margin", "0.5"}, "margin"}};
  for (const auto& [arguments, named] : cases) {
    const ProgramResult result = simulate(arguments);
    EXPECT_EQ(result.exit_code, 2) << arguments.front();
    EXPECT_THAT(result.output, IsEmpty());
    EXPECT_TRUE(names(result.errors, named));
  }
}

}  // namespace
}  // namespace gpulet::tools
