#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/names.h"
#include "tests/support/onnx_file.h"
#include "tests/support/torchscript_archive.h"
#include "tests/tools/program_run.h"

namespace gpulet::tools {
namespace {

using support::Names;
using support::names;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

// No server listens on port 1 of the loopback address.
constexpr const char* kNobody = "127.0.0.1:1";

class Program : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    folder_ = std::filesystem::path(::testing::TempDir()) / ("gpulet_program_" + name);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& content) {
    std::ofstream(folder_ / name) << content;
    return (folder_ / name).string();
  }

  std::filesystem::path folder_;
};

TEST_F(Program, EveryProgramPrintsItsVersion) {
  const std::filesystem::path programs = std::filesystem::path(GPULET_PROGRAM).parent_path();
  for (const std::string name : {"gpulet", "gpulet-frontend", "gpulet-backend", "gpulet-proxy-onnx",
                                 "gpulet-proxy-simulated"}) {
    const ProgramResult version = run_program_at(programs / name, {"--version"});
    EXPECT_EQ(version.exit_code, 0) << version.errors;
    EXPECT_THAT(version.output, StartsWith(name + " 0."));
    EXPECT_THAT(version.output,
                ContainsRegex("\ncommit: ([0-9a-f]{12}(-dirty)?|none)\nbuilt with: Boost 1"));
    EXPECT_TRUE(names(version.output, "protobuf", "gRPC", "OpenSSL", "libcurl", "nlohmann/json",
                      "spdlog", "ONNX Runtime", "LibTorch"));
  }
}

TEST_F(Program, PrintsHelp) {
  const ProgramResult help = run_gpulet({"load", "--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_TRUE(names(help.output, "--workload"));
}

TEST_F(Program, WrongArgumentsExitWithTwo) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{},
                                             {"fly"},
                                             {"load"},
                                             {"load", "--seconds", "1"},
                                             {"load", "--target", kNobody, "--workload", "w.json"},
                                             {"status", "--colour"}}) {
    const ProgramResult result = run_gpulet(arguments);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.output, IsEmpty());
    EXPECT_NE(result.errors, "");
  }
  EXPECT_TRUE(names(run_gpulet({"load"}).errors, "--seconds"));
  EXPECT_TRUE(names(run_gpulet({"load", "--seconds", "1"}).errors, "--workload", "--trace"));
}

TEST_F(Program, SuggestsCorrections) {
  struct Case {
    std::vector<std::string> arguments;
    std::string named;
    std::string meant;
  };
  for (const auto& [arguments, named, meant] :
       std::vector<Case>{{{"statsu"}, "statsu", "status"},
                         {{"log"}, "log", "logs"},
                         {{"models", "lod"}, "lod", "load"},
                         {{"status", "--tagret", kNobody}, "--tagret", "--target"},
                         {{"load", "--tagret=x"}, "--tagret", "--target"},
                         {{"completion", "fsh"}, "fsh", "fish"}}) {
    const ProgramResult result = run_gpulet(arguments);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_TRUE(names(result.errors, named, meant));
  }
  const ProgramResult strange = run_gpulet({"fly"});
  EXPECT_TRUE(names(strange.errors, "fly"));
  for (const char* const command : {"load", "logs", "status", "top"})
    EXPECT_FALSE(names(strange.errors, command)) << "none is near";
  EXPECT_TRUE(names(run_gpulet({"models"}).errors, "list", "load", "add", "unload"));
}

TEST_F(Program, WrongValuesAreQuotedWithFlagAndRange) {
  struct Case {
    std::vector<std::string> arguments;
    std::string flag;
    std::string written;
    std::string accepted;
  };
  const std::vector<std::string> load = {"load", "--target", kNobody, "--workload", "w.json"};
  const auto with = [&load](const std::vector<std::string>& rest) {
    std::vector<std::string> arguments = load;
    arguments.insert(arguments.end(), rest.begin(), rest.end());
    return arguments;
  };
  for (const auto& [arguments, flag, written, accepted] : std::vector<Case>{
           {with({"--seconds", "nan"}), "--seconds", "nan", "0"},
           {with({"--seconds", "1e-3x"}), "--seconds", "1e-3x", "0"},
           {with({"--seconds", "1", "--rate-scale", "-0.000"}), "--rate-scale", "-0.000", "0"},
           {with({"--seconds", "1", "--connections", "1.5"}), "--connections", "1.5", "1024"},
           {with({"--seconds", "1", "--seed", "-1"}), "--seed", "-1", "0"},
           {{"top", "--interval", "0.0001"}, "--interval", "0.0001", "3600"},
           {{"trace", "--format", "video"}, "--format", "video", "applications"}}) {
    const ProgramResult result = run_gpulet(arguments);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_TRUE(names(result.errors, flag, written, accepted));
  }
}

TEST_F(Program, WaitExitsWithOneWithoutAFrontend) {
  const ProgramResult result = run_gpulet({"wait", "--target", kNobody, "--timeout", "0.3"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(names(result.errors, kNobody));
  EXPECT_EQ(run_gpulet({"wait", "--target", kNobody, "--timeout", "soon"}).exit_code, 2);
  EXPECT_EQ(run_gpulet({"logs", "--target", kNobody}).exit_code, 1);
}

TEST_F(Program, TargetsOfAllCommandsComeFromTheEnvironment) {
  const std::string workload =
      write("w.json", R"({"models":[{"name":"lenet","rate":4,"slo_ms":50}]})");
  ::setenv("GPULET_TARGET", kNobody, 1);
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"load", "--workload", workload, "--seconds", "1"},
                                             {"status"},
                                             {"logs"},
                                             {"models", "list"},
                                             {"wait", "--timeout", "0.3"},
                                             {"infer", "--model", "lenet", "--input", workload},
                                             {"trace", "--seconds", "0"}}) {
    const ProgramResult result = run_gpulet(arguments);
    EXPECT_EQ(result.exit_code, 1) << arguments[0];
    EXPECT_TRUE(names(result.errors, kNobody));
    EXPECT_THAT(run_gpulet({arguments[0], "--help"}).output,
                AnyOf(Names("GPULET_TARGET"), Names("Subcommands")));
  }
  ::unsetenv("GPULET_TARGET");
  EXPECT_EQ(run_gpulet({"trace", "--http", "nowhere", "--seconds", "0"}).exit_code, 2);
}

TEST_F(Program, WrongNumbersAndTargetsExitWithTwo) {
  const std::string workload =
      write("w.json", R"({"models":[{"name":"lenet","rate":1,"slo_ms":50}]})");
  const auto load = [&](const std::string& option, const std::string& value) {
    std::vector<std::string> arguments = {"load",   "--target",  kNobody, "--workload",
                                          workload, "--seconds", "1"};
    for (std::size_t i = 1; i < arguments.size(); i += 2) {
      if (arguments[i] == option) arguments[i + 1] = value;
    }
    if (std::find(arguments.begin(), arguments.end(), option) == arguments.end()) {
      arguments.insert(arguments.end(), {option, value});
    }
    return run_gpulet(arguments);
  };
  for (const auto& [option, value] :
       std::vector<std::pair<std::string, std::string>>{{"--seconds", "0"},
                                                        {"--seconds", "nan"},
                                                        {"--seconds", "soon"},
                                                        {"--rate-scale", "-1"},
                                                        {"--slo-scale", "0"},
                                                        {"--connections", "0"},
                                                        {"--target", "nowhere"}}) {
    const ProgramResult result = load(option, value);
    EXPECT_EQ(result.exit_code, 2) << option << ' ' << value << ": " << result.errors;
    EXPECT_TRUE(names(result.errors, option)) << value;
  }
}

TEST_F(Program, ErrorsOfAWorkloadNameFileAndPlace) {
  const std::string workload =
      write("w.json", R"({"models":[{"name":"lenet","rate":-4,"slo_ms":50}]})");
  const ProgramResult result =
      run_gpulet({"load", "--target", kNobody, "--workload", workload, "--seconds", "1"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_TRUE(names(result.errors, workload, "/models/0/rate", "-4"));
}

TEST_F(Program, ExitsWithOneWithoutAFrontend) {
  const std::string workload =
      write("w.json", R"({"models":[{"name":"lenet","rate":4,"slo_ms":50}]})");
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"load", "--target", kNobody, "--workload", workload, "--seconds", "1", "--json"},
           {"status", "--target", kNobody},
           {"models", "list", "--target", kNobody},
           {"top", "--target", kNobody},
           {"infer", "--target", kNobody, "--model", "lenet", "--input", workload}}) {
    const ProgramResult result = run_gpulet(arguments);
    EXPECT_EQ(result.exit_code, 1) << arguments[0];
    EXPECT_THAT(result.output, IsEmpty());
    EXPECT_TRUE(names(result.errors, kNobody));
  }
}

TEST_F(Program, ChecksAConfigurationFile) {
  const std::string good =
      write("demand.json", R"({"models":[{"name":"lenet","rate":4,"slo_ms":50}]})");
  const ProgramResult result = run_gpulet({"config", "check", good, "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(nlohmann::json::parse(result.output)["kind"], "demand");

  const std::string bad = write("bad.json", R"({"models":[{"name":"lenet","rate":4,"slo":50}]})");
  const ProgramResult refused = run_gpulet({"config", "check", bad});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_TRUE(names(refused.errors, bad, "slo"));
  EXPECT_EQ(run_gpulet({"config", "check", (folder_ / "missing.json").string()}).exit_code, 2);
}

TEST_F(Program, ConfigCheckWarnsOfFullBatchesBeyondALimit) {
  write("a.pt", support::archive(support::kMembers, true));
  const std::string latency =
      write("latency.csv", "model,batch,partition,latency_ms\na,1,100,0.1\n");
  ASSERT_EQ(run_gpulet({"profile", "import", "--name", "cpu", "--latency", latency, "--out",
                        (folder_ / "profiles").string()})
                .exit_code,
            0);
  write("models.json", R"({"models":[{"name":"a","file":"a.pt","slo_ms":5,"max_batch":32,)"
                       R"("inputs":[{"name":"i","type":"UINT8","shape":[1000]}],)"
                       R"("outputs":[{"name":"o","type":"FP32","shape":[1]}]}]})");
  const auto check = [this](const std::string& limits) {
    const std::string file = write(
        "f.json", R"({"models":"models.json","profiles":"profiles","limits":{)" + limits + "}}");
    return run_gpulet({"config", "check", file, "--json"});
  };
  const ProgramResult warned = check(R"("max_payload_bytes":31999)");
  EXPECT_EQ(warned.exit_code, 0) << warned.errors;
  EXPECT_EQ(nlohmann::json::parse(warned.output)["warnings"].size(), 1U);
  const ProgramResult fits = check(R"("max_payload_bytes":32000)");
  EXPECT_EQ(nlohmann::json::parse(fits.output)["warnings"].size(), 0U);
}

TEST_F(Program, ConfigCheckComparesOnnxFilesWithTheirTensors) {
  namespace onnx = support::onnx;
  const onnx::Model file{.inputs = {{"i", onnx::kFloat, {{"batch", 4}}}},
                         .outputs = {{"o", onnx::kFloat, {{"batch", 2}}}}};
  write("a.onnx", encode(file));
  const auto check = [this](const std::string& size) {
    return run_gpulet(
        {"config", "check",
         write("models.json", R"({"models":[{"name":"a","file":"a.onnx","slo_ms":5,)"
                              R"("inputs":[{"name":"i","type":"FP32","shape":[)" +
                                  size +
                                  R"(]}],"outputs":[{"name":"o","type":"FP32","shape":[2]}]}]})")});
  };
  EXPECT_EQ(check("4").exit_code, 0) << check("4").errors;
  EXPECT_EQ(check("5").exit_code, 1);
}

TEST_F(Program, ConfigCheckFindsErrors) {
  const std::string tensor = R"([{"name":"x","type":"FP32","shape":[1]}])";
  const auto model = [&tensor](const std::string& name, const std::string& slo_ms) {
    return R"({"name":")" + name + R"(","file":")" + name + R"(.pt","slo_ms":)" + slo_ms +
           R"(,"inputs":)" + tensor + R"(,"outputs":)" + tensor + "}";
  };
  write("slow.pt", support::archive(support::kMembers, true));
  write("fine.pt", support::archive(support::kMembers, true));
  write("unknown.pt", support::archive(support::kMembers, true));
  write("text.pt", "no model");
  write("models.json", R"({"models":[)" + model("slow", "19") + "," + model("fine", "50") + "," +
                           model("unknown", "50") + "," + model("text", "50") + "]}");
  const std::string latency = write("latency.csv",
                                    "model,batch,partition,latency_ms\nslow,1,20,40\n"
                                    "slow,1,100,10\nfine,1,100,10\ntext,1,100,10\n");
  const std::string profiles = (folder_ / "profiles").string();
  ASSERT_EQ(
      run_gpulet({"profile", "import", "--name", "cpu", "--latency", latency, "--out", profiles})
          .exit_code,
      0);
  const auto check = [this](const std::string& text) {
    const ProgramResult result = run_gpulet({"config", "check", write("f.json", text), "--json"});
    auto document = nlohmann::json::parse(result.output);
    EXPECT_EQ(result.exit_code, document["errors"].empty() ? 0 : 1);
    EXPECT_EQ(document["valid"], document["errors"].empty());
    return std::pair(document["errors"].get<std::vector<std::string>>(),
                     document["warnings"].get<std::vector<std::string>>());
  };
  const auto [errors, warnings] = check(
      R"({"models":"models.json","profiles":"profiles","policy":"best","interference":"learned"})");
  EXPECT_THAT(errors, UnorderedElementsAre(Names("/policy: "), Names("/interference: "),
                                           Names("/models/3/file: ")));
  const auto [slow, unmeasured] = check(R"({"models":"models.json","profiles":"profiles"})");
  EXPECT_THAT(slow, UnorderedElementsAre(Names("/models/0/slo_ms: "), Names("/models/3/file: ")));
  EXPECT_THAT(unmeasured, ElementsAre(Names("/models/2: unknown")));
  const auto [none, quiet] =
      check(R"({"models":"models.json","profiles":"profiles","model_format":"any","margin":1,
                "policy":"roma"})");
  EXPECT_THAT(none, IsEmpty()) << "files of any format, and no rounds to wait for";
  std::filesystem::create_directories(folder_ / "empty");
  const auto [empty, ignored] = check(R"({"models":"models.json","profiles":"empty"})");
  EXPECT_THAT(empty, UnorderedElementsAre(Names("/profiles: "), Names("/models/3/file: ")));
}

TEST_F(Program, ConfigCheckComparesABackendWithThisMachine) {
  const std::string file = write("backend.json", R"({"node":"n","model_store":"store","devices":[
    {"type":"cpu","partitioning":"cpu_quota","cores":[4000],"memory_mb":1e9}]})");
  const ProgramResult result = run_gpulet({"config", "check", file});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(names(result.errors, "/devices/0/cores", "4000", "1000000000 MB"));
  EXPECT_TRUE(names(result.errors, "2 errors", "0 warnings"));
  EXPECT_EQ(run_gpulet({"config", "check", file, "--elsewhere"}).exit_code, 0);
}

TEST_F(Program, BashCompletesCommandsOptionsAndChoices) {
  const ProgramResult printed = run_gpulet({"completion", "bash"});
  ASSERT_EQ(printed.exit_code, 0) << printed.errors;
  const std::string script = write("completion.bash", printed.output);
  EXPECT_EQ(bash_completions(script, "gpulet mo"), "models\n");
  EXPECT_EQ(bash_completions(script, "gpulet models l"), "list load\n");
  EXPECT_EQ(bash_completions(script, "gpulet models load --t"),
            "--target --tls-authority --token-file --timeout\n");
  EXPECT_EQ(bash_completions(script, "gpulet completion \"\""), "bash zsh fish models\n");
  // Empty: bash completes files.
  EXPECT_EQ(bash_completions(script, "gpulet infer --input mo"), "\n");
  EXPECT_EQ(run_gpulet({"completion", "tcsh"}).exit_code, 2);
}

}  // namespace
}  // namespace gpulet::tools
