// `gpulet profile` as a user runs it. The simulated proxy responds at once, so the tests check the
// steps of a measurement, not its numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>  // mkdtemp

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "gpulet/profile/store.h"
#include "tests/support/busy_child.h"
#include "tests/support/names.h"
#include "tests/tools/program_run.h"

namespace gpulet::tools {
namespace {

using support::names;

class ProfileCommand : public testing::Test {
 protected:
  ProfileCommand() : folder_(testing::TempDir() + "gpulet-profile-command-XXXXXX") {
    if (::mkdtemp(folder_.data()) == nullptr) throw std::runtime_error("no folder " + folder_);
    write("a.pt", "");
    write("b.pt", "");
    write("models.json", R"({"models":[)" + model("a", 4) + "," + model("b", 1) + "]}");
  }
  ~ProfileCommand() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  static std::string model(const std::string& name, int max_batch) {
    return R"({"name":")" + name + R"(","file":")" + name + R"(.pt","slo_ms":5,"max_batch":)" +
           std::to_string(max_batch) +
           R"(,"inputs":[{"name":"x","type":"FP32","shape":[3]},{"name":"y","type":"INT64","shape":[2]}],
               "outputs":[{"name":"o","type":"FP32","shape":[10]}]})";
  }
  [[nodiscard]] std::string at(const std::string& name) const { return folder_ + "/" + name; }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(at(name)) << text;
  }
  [[nodiscard]] ProgramResult pairs(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments{
        "profile",  "interference",         "--device",          "cpu:0",
        "--models", at("models.json"),      "--profile",         at("profiles/cpu-core"),
        "--proxy",  GPULET_SIMULATED_PROXY, "--seconds-per-run", "0.001"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_gpulet(arguments);
  }
  [[nodiscard]] ProgramResult measure(const std::vector<std::string>& more,
                                      const std::string& seconds_per_cell = "0.001") const {
    std::vector<std::string> arguments{"profile",
                                       "run",
                                       "--device",
                                       "cpu:0",
                                       "--models",
                                       at("models.json"),
                                       "--out",
                                       at("profiles"),
                                       "--proxy",
                                       GPULET_SIMULATED_PROXY,
                                       "--seconds-per-cell",
                                       seconds_per_cell,
                                       "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_gpulet(arguments);
  }

  std::string folder_;
};

TEST_F(ProfileCommand, RunMeasuresEveryCell) {
  const ProgramResult result = measure({"--sizes", "50,100", "--batches", "1,2,4,8"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const auto document = nlohmann::json::parse(result.output);
  EXPECT_EQ(document["profile"], "cpu-core");
  EXPECT_EQ(document["cells"], 2 * 3 + 2 * 1);
  const auto profile = profile::read_profile(at("profiles/cpu-core"));
  ASSERT_TRUE(profile.ok()) << profile.status().to_string();
  const profile::ModelProfile* measured = profile.value().find("a");
  ASSERT_NE(measured, nullptr);
  EXPECT_EQ(measured->latency.largest_batch(Share{50}), 4U);
  EXPECT_EQ(measured->latency.largest_batch(Share{100}), 4U);
  EXPECT_GT(measured->memory_mb.value_or(0), 0);
  for (const profile::LatencySample& sample : measured->latency.samples()) {
    EXPECT_GT(sample.p99_ms.value_or(0), 0);
  }
  EXPECT_EQ(profile.value().find("b")->latency.largest_batch(Share{100}), 1U);
  for (const std::string key : {"machine", "date", "partitioning", "device"}) {
    EXPECT_TRUE(profile.value().provenance.contains(key)) << key;
  }
}

TEST_F(ProfileCommand, RunAddsToTheExistingProfile) {
  ASSERT_EQ(measure({"--sizes", "100", "--batches", "1", "--only", "a"}).exit_code, 0);
  ASSERT_EQ(measure({"--sizes", "50,100", "--batches", "1,2", "--only", "b"}).exit_code, 0);
  ASSERT_EQ(measure({"--sizes", "50", "--batches", "1", "--only", "b", "--keep"}).exit_code, 0);
  const auto profile = profile::read_profile(at("profiles/cpu-core"));
  ASSERT_TRUE(profile.ok()) << profile.status().to_string();
  ASSERT_NE(profile.value().find("a"), nullptr);
  EXPECT_EQ(profile.value().find("a")->latency.largest_batch(Share{100}), 1U);
  ASSERT_NE(profile.value().find("b"), nullptr);
  EXPECT_EQ(profile.value().find("b")->latency.largest_batch(Share{50}), 1U);
  EXPECT_EQ(profile.value().find("b")->latency.largest_batch(Share{100}), 1U);
}

TEST_F(ProfileCommand, ReplaceStartsOverAndKeepsABackup) {
  ASSERT_EQ(measure({"--sizes", "100", "--batches", "1"}).exit_code, 0);
  const ProgramResult result =
      measure({"--sizes", "100", "--batches", "1", "--only", "b", "--replace"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const auto profile = profile::read_profile(at("profiles/cpu-core"));
  ASSERT_TRUE(profile.ok());
  EXPECT_EQ(profile.value().find("a"), nullptr);
  const std::string backup = nlohmann::json::parse(result.output)["backup"];
  EXPECT_TRUE(std::filesystem::exists(backup + "/latency.csv")) << backup;
  EXPECT_EQ(profile::read_profiles(at("profiles")).value().size(), 1U);
  EXPECT_EQ(measure({"--replace", "--keep"}).exit_code, 2);
}

TEST_F(ProfileCommand, RunFailsOnAnUnreadableProfile) {
  std::filesystem::create_directories(at("profiles/cpu-core"));
  write("profiles/cpu-core/profile.json", "{");
  const ProgramResult result = measure({"--sizes", "100", "--batches", "1"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_TRUE(names(result.errors, "--replace"));
  EXPECT_EQ(measure({"--sizes", "100", "--batches", "1", "--replace"}).exit_code, 0);
}

TEST_F(ProfileCommand, RunMarksCellsMeasuredWhileOthersUsedTheCore) {
  const support::BusyChild busy;
  cpu_set_t core;
  CPU_ZERO(&core);
  CPU_SET(0, &core);
  ASSERT_EQ(::sched_setaffinity(busy.pid(), sizeof core, &core), 0);
  const ProgramResult result = measure({"--sizes", "100", "--batches", "1", "--only", "a"}, "0.4");
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const auto doubts = nlohmann::json::parse(result.output)["in_doubt"];
  ASSERT_EQ(doubts.size(), 1U) << result.output;
  EXPECT_EQ(doubts[0]["doubt"], "busy");
  EXPECT_EQ(doubts[0]["model"], "a");
  EXPECT_TRUE(names(result.errors, "100 %", "busy"));

  const ProgramResult check =
      run_gpulet({"profile", "check", "--profiles", at("profiles"), "--json"});
  ASSERT_EQ(check.exit_code, 0) << check.errors;
  EXPECT_EQ(nlohmann::json::parse(check.output)["profiles"][0]["in_doubt"], doubts);
  EXPECT_TRUE(names(run_gpulet({"profile", "check", "--profiles", at("profiles")}).output, "100 %",
                    "busy"));
}

TEST_F(ProfileCommand, AnInterruptedRunKeepsTheModelsBefore) {
  // Ends the command when it starts to measure the second model.
  write("proxy", "#!/bin/sh\n[ ! -e '" + at("profiles/cpu-core") + "' ] || kill -9 $PPID\nexec '" +
                     GPULET_SIMULATED_PROXY + "' \"$@\"\n");
  std::filesystem::permissions(at("proxy"), std::filesystem::perms::owner_all);
  const ProgramResult result =
      run_gpulet({"profile", "run", "--device", "cpu:0", "--models", at("models.json"), "--out",
                  at("profiles"), "--proxy", at("proxy"), "--seconds-per-cell", "0.001", "--sizes",
                  "100", "--batches", "1"});
  EXPECT_EQ(result.exit_code, -1);
  const auto profile = profile::read_profile(at("profiles/cpu-core"));
  ASSERT_TRUE(profile.ok()) << profile.status().to_string();
  EXPECT_NE(profile.value().find("a"), nullptr);
  EXPECT_EQ(profile.value().find("b"), nullptr);
}

TEST_F(ProfileCommand, RunChecksBeforeItMeasuresWhetherItCanStore) {
  const ProgramResult result =
      run_gpulet({"profile", "run", "--device", "cpu:0", "--models", at("models.json"), "--out",
                  at("a.pt"), "--proxy", "/bin/false"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_TRUE(names(result.errors, "--out " + at("a.pt")));
}

TEST_F(ProfileCommand, RunNamesWrongArguments) {
  const auto refused = [this](const std::vector<std::string>& more) {
    const ProgramResult result = measure(more);
    EXPECT_EQ(result.exit_code, 2) << result.errors;
    EXPECT_EQ(result.output, "");
    return result.errors;
  };
  EXPECT_TRUE(names(refused({"--only", "c"}), "--only", "\"c\""));
  EXPECT_TRUE(names(refused({"--name", "a/b"}), "--name", "\"a/b\""));
  EXPECT_TRUE(names(refused({"--sizes", "0"}), "--sizes"));
  std::filesystem::remove(at("b.pt"));
  EXPECT_TRUE(names(refused({}), at("b.pt")));
  for (const std::string device : {"cuda:", "cpu:", "cpu:0,", "cpu:0,0", "cpu:x", "cpu:4000"}) {
    const ProgramResult result =
        run_gpulet({"profile", "run", "--device", device, "--models", at("models.json"), "--out",
                    at("p"), "--only", "a", "--proxy", GPULET_SIMULATED_PROXY});
    EXPECT_EQ(result.exit_code, 2) << device;
  }
}

TEST_F(ProfileCommand, ControllersNeedLatenciesOnACpu) {
  const auto refused = [this](const std::vector<std::string>& more) {
    const ProgramResult result = measure(more);
    EXPECT_EQ(result.exit_code, 2) << result.errors;
    return result.errors;
  };
  EXPECT_TRUE(names(refused({"--controller"}), "cpu-core"));
  ASSERT_EQ(measure({"--sizes", "100", "--batches", "1", "--only", "a"}).exit_code, 0);
  EXPECT_TRUE(names(refused({"--controller"}), "b"));
  const ProgramResult gpu =
      run_gpulet({"profile", "run", "--controller", "--device", "cuda:0", "--models",
                  at("models.json"), "--out", at("profiles"), "--proxy", GPULET_SIMULATED_PROXY});
  EXPECT_EQ(gpu.exit_code, 2);
  EXPECT_TRUE(names(gpu.errors, "--controller"));
}

TEST_F(ProfileCommand, RunFailsIfTheProxyDoes) {
  const ProgramResult result =
      run_gpulet({"profile", "run", "--device", "cpu:0", "--models", at("models.json"), "--out",
                  at("profiles"), "--proxy", "/bin/false"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(names(result.errors, "a", "exit code 1"));
  EXPECT_FALSE(std::filesystem::exists(at("profiles")));
}

TEST_F(ProfileCommand, ImportWritesAProfileThatReadsBack) {
  write("l.csv", "model,batch,partition,latency_ms\nresnet50,4,20,12.5\n");
  write("u.csv", "model,batch,partition,l2_util,dram_util\nbert,4,20,0.5,0.25\n");
  const ProgramResult result =
      run_gpulet({"profile", "import", "--name", "v100", "--latency", at("l.csv"), "--utilization",
                  at("u.csv"), "--out", at("profiles"), "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_TRUE(names(result.errors, "bert"));
  EXPECT_EQ(nlohmann::json::parse(result.output)["models"][0]["name"], "resnet50");
  const auto profile = profile::read_profile(at("profiles/v100"));
  ASSERT_TRUE(profile.ok()) << profile.status().to_string();
  EXPECT_EQ(profile.value().find("resnet50")->latency.latency_ms(4, Share{20}), 12.5);
}

TEST_F(ProfileCommand, ImportNamesFileAndLine) {
  write("l.csv", "model,batch,partition,latency_ms\nresnet50,4,20,fast\n");
  const ProgramResult result = run_gpulet(
      {"profile", "import", "--name", "v100", "--latency", at("l.csv"), "--out", at("profiles")});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_TRUE(names(result.errors, at("l.csv") + ": line 2"));
}

TEST_F(ProfileCommand, InterferenceMeasuresPairsAndKeepsTheirFit) {
  ASSERT_EQ(measure({"--sizes", "30,50,70", "--batches", "1,2,4"}).exit_code, 0);
  const ProgramResult result = pairs({"--seed", "4", "--sizes", "30,70"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_TRUE(names(result.errors, "30 %"));
  auto profile = profile::read_profile(at("profiles/cpu-core"));
  ASSERT_TRUE(profile.ok()) << profile.status().to_string();
  // Sides a30 a70 b30 b70; a has three batches, b one. Beside themselves at 30: 6 and 1, of which 3
  // and 1 are their own mirror; a30-a70 9, a30-b30 3, a30-b70 3, b30-a70 3, b30-b70 1.
  EXPECT_EQ(profile.value().pairs.size(), 9U + 1U + 2U * (9U + 3U + 3U + 3U + 1U));
  EXPECT_TRUE(profile.value().interference.has_value());
  EXPECT_TRUE(names(profile.value().provenance["interference"], "26"));
  for (const profile::PairSample& pair : profile.value().pairs)
    EXPECT_LE(pair.share.percent + pair.other_share.percent, 100);

  EXPECT_EQ(pairs({"--sizes", "50", "--only", "b", "--keep"}).exit_code, 0);
  profile = profile::read_profile(at("profiles/cpu-core"));
  EXPECT_EQ(profile.value().pairs.size(), 48U + 1U);
  EXPECT_TRUE(names(pairs({"--sizes", "70", "--only", "b"}).errors, "--sizes"));
}

TEST_F(ProfileCommand, PairsGoOnWhereAnEarlierRunStopped) {
  ASSERT_EQ(measure({"--sizes", "30,50", "--batches", "1,2"}).exit_code, 0);
  const auto stored = [this] { return profile::read_profile(at("profiles/cpu-core")).value(); };
  ASSERT_EQ(pairs({"--sizes", "30"}).exit_code, 0);
  const auto first = stored().pairs;
  ASSERT_EQ(pairs({}).exit_code, 0);
  const auto second = stored().pairs;
  EXPECT_GT(second.size(), first.size());
  for (const profile::PairSample& pair : first) EXPECT_THAT(second, testing::Contains(pair));
  // Nothing is left to measure.
  ASSERT_EQ(pairs({}).exit_code, 0);
  EXPECT_EQ(stored().pairs, second);
  ASSERT_EQ(pairs({"--sizes", "30", "--replace"}).exit_code, 0);
  EXPECT_EQ(stored().pairs.size(), first.size());
}

class ProfileCheck : public ProfileCommand {
 protected:
  // Three models at batches 1, 2, 4 and sizes 40, 60; the larger size suffers more.
  ProfileCheck() {
    std::string latency = "model,batch,partition,latency_ms\n";
    std::string utilization = "model,batch,partition,l2_util,dram_util\n";
    std::string pairs =
        "model,batch,partition,other_model,other_batch,other_partition,latency_ms\n";
    const std::vector<std::string> models{"a", "b", "c"};
    for (const std::string& model : models) {
      for (const int batch : {1, 2, 4}) {
        for (const int size : {40, 60}) {
          const std::string cell =
              model + "," + std::to_string(batch) + "," + std::to_string(size) + ",";
          latency += cell + std::to_string(batch + 1) + "\n";
          utilization += cell + "0." + std::to_string(batch) + ",0." +
                         std::to_string(batch * batch + size) + "\n";
          for (const std::string& other : models) {
            for (const int other_batch : {1, 2, 4}) {
              pairs += cell + other + "," + std::to_string(other_batch) + "," +
                       std::to_string(100 - size) + "," +
                       std::to_string((batch + 1) * (size == 60 ? 1.5 : 1.1)) + "\n";
            }
          }
        }
      }
    }
    write("l.csv", latency);
    write("u.csv", utilization);
    write("i.csv", pairs);
  }

  [[nodiscard]] ProgramResult import_pairs(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments{"profile",   "import",       "--name",         "v100",
                                       "--latency", at("l.csv"),    "--utilization",  at("u.csv"),
                                       "--out",     at("profiles"), "--interference", at("i.csv")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_gpulet(arguments);
  }
};

TEST_F(ProfileCheck, ReportsErrorsOnHeldOutPairs) {
  ASSERT_EQ(import_pairs({}).exit_code, 0);
  const ProgramResult result =
      run_gpulet({"profile", "check", "--profiles", at("profiles"), "--json", "--seed", "3"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const auto profiles = nlohmann::json::parse(result.output)["profiles"];
  ASSERT_EQ(profiles.size(), 1U);
  EXPECT_EQ(profiles[0]["name"], "v100");
  EXPECT_EQ(profiles[0]["pairs"], 3 * 3 * 2 * 3 * 3);
  EXPECT_EQ(profiles[0]["seed"], 3);
  std::vector<std::string> models;
  for (const auto& row : profiles[0]["models"]) {
    models.push_back(row["model"]);
    for (const std::string key : {"p50", "p90", "p95"}) EXPECT_TRUE(row[key].is_number()) << key;
    EXPECT_EQ(row["unseen_model_p90"].size(), 3U);
  }
  EXPECT_THAT(models, testing::ElementsAre("none", "linear", "learned", "measured", "inss"));
  EXPECT_LT(profiles[0]["models"][2]["p90"].get<double>(), 0.05);
  EXPECT_GT(profiles[0]["models"][0]["p90"].get<double>(), 0.3);
  EXPECT_TRUE(profiles[0]["inss"]["note"].is_string());
  EXPECT_EQ(profiles[0]["inss"]["beside"]["count"], 162 - 3 * 5);
  EXPECT_TRUE(profiles[0]["inss"]["alone"]["worst"].is_number());

  const ProgramResult text =
      run_gpulet({"profile", "check", "--profiles", at("profiles"), "--name", "v100"});
  EXPECT_EQ(text.exit_code, 0);
  for (const std::string part : {"v100", "162", "p90", "learned"}) {
    EXPECT_TRUE(names(text.output, part));
  }
}

TEST_F(ProfileCheck, WritesWhatInssPredictsForEveryMeasurement) {
  ASSERT_EQ(import_pairs({}).exit_code, 0);
  const ProgramResult result = run_gpulet({"profile", "check", "--profiles", at("profiles"),
                                           "--name", "v100", "--inss-cells", at("cells.csv")});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  std::ifstream file(at("cells.csv"));
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(line,
            "model,batch,partition,other_model,other_batch,other_partition,fitted,measured_ms,"
            "predicted_ms");
  int lines = 0;
  int fitted_pairs = 0;
  while (std::getline(file, line)) {
    ++lines;
    if (line.find(",,,,") == std::string::npos && line.find(",1,") != std::string::npos) {
      std::vector<std::string> fields;
      std::stringstream cells(line);
      for (std::string field; std::getline(cells, field, ',');) fields.push_back(field);
      fitted_pairs += fields[6] == "1" ? 1 : 0;
    }
  }
  EXPECT_EQ(lines, 3 * 3 * 2 + 162);
  EXPECT_EQ(fitted_pairs, 3 * 5);
}

TEST_F(ProfileCheck, ImportKeepsTheFitAndPrintsItsErrors) {
  const ProgramResult result = import_pairs({"--seed", "9", "--train-fraction", "0.5"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_TRUE(names(result.output, "p90", "none"));
  const auto profile = profile::read_profile(at("profiles/v100"));
  ASSERT_TRUE(profile.ok()) << profile.status().to_string();
  ASSERT_TRUE(profile.value().interference.has_value());
  EXPECT_EQ(profile.value().interference->seed, 9U);
  EXPECT_EQ(profile.value().interference->train_fraction, 0.5);
  EXPECT_TRUE(profile.value().interference->learned.has_value());
}

TEST_F(ProfileCheck, NamesErrors) {
  const auto refused = [this](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"profile", "check", "--profiles", at("profiles")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = run_gpulet(arguments);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.output, "");
    return result.errors;
  };
  EXPECT_TRUE(names(refused({}), at("profiles")));
  ASSERT_EQ(import_pairs({}).exit_code, 0);
  EXPECT_TRUE(names(refused({"--train-fraction", "1"}), "1.000000"));
  EXPECT_TRUE(names(refused({"--name", "a100"}), "a100"));
  EXPECT_TRUE(names(import_pairs({"--train-fraction", "0"}).errors, "0.000000"));
  write("i.csv", "model,batch,partition,other_model,other_batch,other_partition,latency_ms\n");
  ASSERT_EQ(import_pairs({}).exit_code, 0);
  const ProgramResult no_pairs =
      run_gpulet({"profile", "check", "--profiles", at("profiles"), "--json"});
  EXPECT_EQ(no_pairs.exit_code, 0) << no_pairs.errors;
  EXPECT_EQ(nlohmann::json::parse(no_pairs.output)["profiles"][0]["pairs"], 0);
}

TEST_F(ProfileCheck, ASimulatedDeviceIsMeasuredLikeAnother) {
  ASSERT_EQ(import_pairs({}).exit_code, 0);
  write("c.pt", "");
  write("models.json",
        R"({"models":[)" + model("a", 4) + "," + model("b", 4) + "," + model("c", 4) + "]}");
  const std::string device = "simulated:" + at("profiles/v100");
  const std::string place = at("measured/v100");
  const ProgramResult run =
      run_gpulet({"profile", "run", "--device", device, "--models", at("models.json"), "--out",
                  at("measured"), "--proxy", GPULET_SIMULATED_PROXY, "--sizes", "40,60",
                  "--batches", "1,2,4", "--seconds-per-cell", "0.001", "--no-counters"});
  ASSERT_EQ(run.exit_code, 0) << run.errors;
  const ProgramResult pairs = run_gpulet(
      {"profile", "interference", "--device", device, "--models", at("models.json"), "--profile",
       place, "--proxy", GPULET_SIMULATED_PROXY, "--batches", "1,2", "--seconds-per-run", "0.001"});
  ASSERT_EQ(pairs.exit_code, 0) << pairs.errors;
  const auto measured = profile::read_profile(place);
  ASSERT_TRUE(measured.ok()) << measured.status().to_string();
  for (const auto& [name, one] : measured.value().models)
    EXPECT_EQ(one.latency.samples().size(), 6U) << name;
  // Sides a40 b40 c40, each beside itself and the others, and beside a60 b60 c60.
  EXPECT_EQ(measured.value().pairs.size(), 3U * 4U + 3U * 8U + 9U * 8U);
  EXPECT_EQ(run_gpulet({"profile", "run", "--device", "simulated:", "--models", at("models.json"),
                        "--out", at("measured")})
                .exit_code,
            2);
}

}  // namespace
}  // namespace gpulet::tools
