// `gpulet profile` on a fake GPU: NVIDIA's libraries and the program of MPS are fakes, and a batch
// takes 4 ms on any share (tests/support/gpu).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "gpulet/profile/store.h"
#include "tests/support/gpu/fake_gpus.h"
#include "tests/support/gpu/fake_mps.h"
#include "tests/support/names.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/variable.h"
#include "tests/tools/program_run.h"

namespace gpulet::tools {
namespace {

using support::FakeGpus;
using support::FakeMps;
using support::names;
using support::TemporaryFolder;
using support::Variable;

constexpr const char* kMachine =
    "gpu\nuuid GPU-aaaa0000-0000-0000-0000-000000000000\nname NVIDIA A30\n"
    "gpu\nuuid GPU-bbbb0000-0000-0000-0000-000000000000\nname NVIDIA H200\nsm_mhz 1755\n";

class ProfileOnGpu : public testing::Test {
 protected:
  ProfileOnGpu() {
    install("nvidia-cuda-mps-control", GPULET_SOURCE_DIR "/tests/support/gpu/fake_mps_control.sh");
    folder_.write("a.pt", "");
    folder_.write("models.json",
                  R"({"models":[{"name":"a","file":"a.pt","slo_ms":50,"max_batch":2,
                      "inputs":[{"name":"x","type":"FP32","shape":[3]}],
                      "outputs":[{"name":"o","type":"FP32","shape":[10]}]}]})");
  }

  // Installs a program in PATH.
  void install(const std::string& name, const std::filesystem::path& program) const {
    const auto place = folder_.path() / "bin" / name;
    std::filesystem::create_directories(place.parent_path());
    std::filesystem::copy_file(program, place, std::filesystem::copy_options::overwrite_existing);
    std::filesystem::permissions(place, std::filesystem::perms::owner_all);
  }
  void install_ncu(const std::string& output) const {
    install("ncu", folder_.write("ncu", "#!/bin/sh\ncat <<'END'\n" + output + "\nEND\n"));
  }
  [[nodiscard]] ProgramResult measure(const std::vector<std::string>& more,
                                      const std::string& device = "cuda:1") const {
    std::vector<std::string> arguments{"profile",
                                       "run",
                                       "--device",
                                       device,
                                       "--models",
                                       at("models.json"),
                                       "--out",
                                       at("profiles"),
                                       "--proxy",
                                       GPULET_FAKE_GPU_PROXY,
                                       "--kernels",
                                       "/bin/true",
                                       "--sizes",
                                       "25,100",
                                       "--batches",
                                       "1,2",
                                       "--seconds-per-cell",
                                       "0.02"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_gpulet(arguments);
  }
  [[nodiscard]] std::string at(const std::string& name) const { return folder_.path() / name; }
  [[nodiscard]] Result<profile::Profile> written() const {
    return profile::read_profile(at("profiles/h200"));
  }
  [[nodiscard]] std::vector<std::string> left_over() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(at("t")))
      if (!entry.path().filename().string().starts_with("gpulet-test-"))
        names.push_back(entry.path().filename());
    return names;
  }

  const TemporaryFolder folder_;
  const Variable libraries_{"LD_LIBRARY_PATH", FakeGpus::libraries().string()};
  const Variable path_{"PATH", (folder_.path() / "bin").string() + ":/usr/bin:/bin"};
  const std::filesystem::path temporary_ = folder_.write("t/.keep", "");
  const Variable folder_of_temporaries_{"TMPDIR", temporary_.parent_path().string()};
  const FakeGpus machine_{kMachine};
  const FakeMps mps_;
};

TEST_F(ProfileOnGpu, SizesAreClientsOfADaemonThatEndsAfterwards) {
  const ProgramResult result = measure({"--no-counters"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const auto profile = written();
  ASSERT_TRUE(profile.ok()) << profile.status().to_string();
  const auto* const model = profile.value().find("a");
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->latency.samples().size(), 4U);
  for (const auto& sample : model->latency.samples()) EXPECT_GE(sample.latency_ms, 4.0);
  EXPECT_TRUE(model->utilization.empty());

  const auto& provenance = profile.value().provenance;
  const auto fact = [&provenance](const std::string& key) {
    const auto found = provenance.find(key);
    return found == provenance.end() ? std::string("nothing") : found->second;
  };
  EXPECT_EQ(fact("machine"), "NVIDIA H200");
  EXPECT_EQ(fact("device"), "GPU-bbbb0000-0000-0000-0000-000000000000");
  EXPECT_EQ(fact("driver"), "580.95.05");
  EXPECT_EQ(fact("cuda"), "13.0");
  EXPECT_EQ(fact("partitioning"), "mps");
  EXPECT_EQ(fact("sm_clock_mhz"), "1755");
  EXPECT_EQ(fact("sms_by_size"), "25 %: 33, 100 %: 132");
  EXPECT_THAT(fact("date"), testing::ContainsRegex("^[0-9]+-[0-9]+-[0-9]+T"));

  EXPECT_TRUE(mps_.received("quit"));
  EXPECT_TRUE(names(mps_.recorded("environment"), "GPU-bbbb0000"));
  EXPECT_THAT(left_over(), testing::ElementsAre(".keep"));
}

TEST_F(ProfileOnGpu, GreenSizesShareOneProcess) {
  const ProgramResult result = measure({"--no-counters", "--partitioning", "green"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const auto profile = written();
  ASSERT_TRUE(profile.ok()) << profile.status().to_string();
  EXPECT_EQ(profile.value().find("a")->latency.samples().size(), 4U);
  EXPECT_EQ(profile.value().provenance.find("partitioning")->second, "green");
  EXPECT_FALSE(mps_.received("quit"));
  EXPECT_THAT(left_over(), testing::ElementsAre(".keep"));
}

TEST_F(ProfileOnGpu, InterferenceRunsTwoClientsSideBySide) {
  ASSERT_EQ(measure({"--no-counters", "--sizes", "50"}).exit_code, 0);
  const auto clients = [this] {
    std::istringstream lines(mps_.recorded("clients"));
    return std::set<std::string>{std::istream_iterator<std::string>(lines), {}}.size();
  };
  const std::size_t before = clients();  // doubtful cells of the profile start more
  const ProgramResult result = run_gpulet(
      {"profile", "interference", "--device", "cuda:1", "--models", at("models.json"), "--profile",
       at("profiles/h200"), "--proxy", GPULET_FAKE_GPU_PROXY, "--seconds-per-run", "0.01"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(written().value().pairs.size(), 4U + 4U + 8U);  // 25 and 25, 50 and 50, 25 and 50
  // Each process was started once: those of 25 and 50, and one more of each to run beside itself.
  EXPECT_EQ(clients(), before + 4U);
  EXPECT_THAT(left_over(), testing::ElementsAre(".keep"));
}

TEST_F(ProfileOnGpu, GreenPairsHaveTwoStreamsAtATime) {
  ASSERT_EQ(measure({"--no-counters", "--partitioning", "green"}).exit_code, 0);
  const ProgramResult result =
      run_gpulet({"profile", "interference", "--device", "cuda:1", "--partitioning", "green",
                  "--models", at("models.json"), "--profile", at("profiles/h200"), "--proxy",
                  GPULET_FAKE_GPU_PROXY, "--seconds-per-run", "0.01"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(written().value().pairs.size(), 4U);  // 25 and 25
}

TEST_F(ProfileOnGpu, WritesCountersOfNcu) {
  install_ncu(
      R"("ID","Kernel Name","gpu__time_duration.sum","lts__t_sectors.avg.pct_of_peak_sustained_elapsed","dram__throughput.avg.pct_of_peak_sustained_elapsed")"
      "\n\"\",\"\",\"ns\",\"%\",\"%\"\n\"0\",\"k\",\"100\",\"20\",\"30\"");
  const ProgramResult result = measure({});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const auto profile = written();
  ASSERT_TRUE(profile.ok()) << profile.status().to_string();
  std::size_t whole = 0;
  for (const profile::Utilization& one : profile.value().find("a")->utilization) {
    if (one.share == Share{100}) {
      EXPECT_EQ(one, (profile::Utilization{one.batch, Share{100}, 0.2, 0.3}));
      ++whole;
    } else {  // scaled
      EXPECT_LE(one.l2, 0.2);
      EXPECT_NEAR(one.dram / one.l2, 1.5, 1e-6);
    }
  }
  EXPECT_EQ(whole, 2U);
  EXPECT_EQ(profile.value().find("a")->utilization.size(), 4U);
  EXPECT_TRUE(profile.value().provenance.contains("counters"));
}

TEST_F(ProfileOnGpu, CountersGoOnWhereAnEarlierRunStopped) {
  ASSERT_EQ(measure({"--no-counters"}).exit_code, 0);
  const auto counters = [this](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{
        "profile",         "counters",  "--device",          "cuda:1",    "--models",
        at("models.json"), "--profile", at("profiles/h200"), "--kernels", "/bin/true"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_gpulet(arguments);
  };
  const auto header =
      std::string(
          R"("ID","Kernel Name","gpu__time_duration.sum","lts__t_sectors.avg.pct_of_peak_sustained_elapsed","dram__throughput.avg.pct_of_peak_sustained_elapsed")") +
      "\n\"\",\"\",\"ns\",\"%\",\"%\"\n";
  EXPECT_EQ(counters({}).exit_code, 1);  // without ncu
  install_ncu(header + R"("0","k","100","20","30")");
  EXPECT_EQ(counters({"--batches", "2"}).exit_code, 0);
  EXPECT_EQ(written().value().find("a")->utilization.size(), 2U);
  install_ncu(header + R"("0","k","100","40","60")");
  EXPECT_EQ(counters({}).exit_code, 0);
  const auto after = written();
  for (const profile::Utilization& one : after.value().find("a")->utilization) {
    if (one.share == Share{100}) {
      EXPECT_EQ(one.l2, one.batch == 2 ? 0.2 : 0.4);
    }
  }
  EXPECT_EQ(after.value().find("a")->utilization.size(), 4U);
}

TEST_F(ProfileOnGpu, WorksWithoutPermissionForCounters) {
  install_ncu("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission");
  const ProgramResult result = measure({"--sizes", "100"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(names(result.errors, "L2", "ncu"));
  EXPECT_TRUE(written().value().find("a")->utilization.empty());
}

TEST_F(ProfileOnGpu, FailsWithoutTheGpuOrMps) {
  EXPECT_TRUE(names(measure({}, "cuda:GPU-cccc").errors, "GPU-cccc"));
  std::filesystem::remove(at("bin/nvidia-cuda-mps-control"));
  const ProgramResult result = measure({});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(names(result.errors, "nvidia-cuda-mps-control"));
  EXPECT_FALSE(std::filesystem::exists(at("profiles")));
}

TEST_F(ProfileOnGpu, RejectsAProxyOutsideMps) {
  mps_.set("outside");
  const ProgramResult result = measure({"--no-counters"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_FALSE(std::filesystem::exists(at("profiles")));
}

}  // namespace
}  // namespace gpulet::tools
