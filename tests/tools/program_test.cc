#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "tests/tools/program_run.h"

namespace gpulet::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// Nobody listens on port 1 of the loopback address.
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

TEST_F(Program, TellsItsVersionAndHelp) {
  const ProgramResult version = run_gpulet({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_THAT(version.output, StartsWith("gpulet 0."));
  const ProgramResult help = run_gpulet({"load", "--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.output, HasSubstr("--workload"));
}

TEST_F(Program, BadArgumentsEndWithTwoAndAreNamed) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{},
                                             {"fly"},
                                             {"load"},
                                             {"load", "--target", kNobody, "--workload", "w.json"},
                                             {"status", "--colour"}}) {
    const ProgramResult result = run_gpulet(arguments);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.output, IsEmpty());
    EXPECT_NE(result.errors, "");
  }
  EXPECT_THAT(run_gpulet({"load"}).errors, HasSubstr("--target"));
}

TEST_F(Program, BadNumbersAndTargetsEndWithTwo) {
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
    EXPECT_THAT(result.errors, HasSubstr(option)) << value;
  }
}

TEST_F(Program, ABadWorkloadIsNamedByFileAndPlace) {
  const std::string workload =
      write("w.json", R"({"models":[{"name":"lenet","rate":-4,"slo_ms":50}]})");
  const ProgramResult result =
      run_gpulet({"load", "--target", kNobody, "--workload", workload, "--seconds", "1"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.errors, HasSubstr(workload));
  EXPECT_THAT(result.errors, HasSubstr("/models/0/rate"));
  EXPECT_THAT(result.errors, HasSubstr("-4"));
}

TEST_F(Program, ARunWithoutAFrontendFailsWithOneAndSaysWhere) {
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
    EXPECT_THAT(result.errors, HasSubstr(kNobody));
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
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.errors, HasSubstr(bad));
  EXPECT_THAT(refused.errors, HasSubstr("slo"));
  EXPECT_EQ(run_gpulet({"config", "check", (folder_ / "missing.json").string()}).exit_code, 2);
}

// What bash would offer behind these words, of which the last is being typed.
std::string completions(const std::string& script, const std::string& words) {
  const std::string command =
      ". " + script + "; COMP_WORDS=(" + words +
      "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _gpulet; echo \"${COMPREPLY[*]}\"";
  const std::unique_ptr<FILE, int (*)(FILE*)> shell(
      popen(("bash -c '" + command + "'").c_str(), "r"), pclose);
  std::array<char, 4096> line{};
  if (!shell || fgets(line.data(), line.size(), shell.get()) == nullptr) return "";
  return std::string(line.data());
}

TEST_F(Program, BashCompletesCommandsOptionsAndChoices) {
  const ProgramResult printed = run_gpulet({"completion", "bash"});
  ASSERT_EQ(printed.exit_code, 0) << printed.errors;
  const std::string script = write("completion.bash", printed.output);
  EXPECT_EQ(completions(script, "gpulet mo"), "models\n");
  EXPECT_EQ(completions(script, "gpulet models l"), "list load\n");
  EXPECT_EQ(completions(script, "gpulet models load --t"),
            "--target --tls-authority --token-file --timeout\n");
  EXPECT_EQ(completions(script, "gpulet completion \"\""), "bash zsh fish\n");
  // Files: bash's own.
  EXPECT_EQ(completions(script, "gpulet infer --input mo"), "\n");
  EXPECT_EQ(run_gpulet({"completion", "tcsh"}).exit_code, 2);
}

}  // namespace
}  // namespace gpulet::tools
