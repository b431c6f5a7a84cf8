// Names of devices, counters of kernels, and the choice of pairs.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/names.h"
#include "tests/support/temporary_folder.h"
#include "tools/measure/counters.h"
#include "tools/measure/measured_device.h"
#include "tools/measure/pair_plan.h"

namespace gpulet::tools {
namespace {

using support::holds;
using support::names;

constexpr const char* kHeader =
    R"("ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","dram__throughput.avg.pct_of_peak_sustained_elapsed","gpu__time_duration.sum","lts__t_sectors.avg.pct_of_peak_sustained_elapsed")";
constexpr const char* kUnits = R"("","","","","","","","","","","","%","ns","%")";

std::string kernel(const std::string& name, const std::string& dram, const std::string& duration,
                   const std::string& l2) {
  // clang-format off
  return R"("0","77","gpulet-kernels","127.0.0.1",")" + name +
         R"x(","1","7","(256, 1, 1)","(64, 1, 1)","0","9.0",")x" + dram + "\",\"" + duration +
         "\",\"" + l2 + "\"\n";
  // clang-format on
}

std::string report(const std::string& rows) {
  return std::string(
             "==PROF== Connected to process 77 (/usr/bin/gpulet-kernels)\n"
             "==PROF== Profiling \"gemm\": 0%....50%....100% - 2 passes\n") +
         R"({"model":"resnet50","batch":8})" + "\n" + "==PROF== Disconnected from process 77\n" +
         kHeader + "\n" + kUnits + "\n" + rows;
}

TEST(Counters, WeighsKernelsByTheirDuration) {
  const auto counters = parse_counters(
      report(kernel("void gemm<float, 4>(T1 *, \"\"const\"\" int)", "10.0", "3,000", "40.5") +
             kernel("relu", "90", "1,000.00", "0.5")),
      1);
  ASSERT_TRUE(counters.ok()) << counters.status().to_string();
  EXPECT_NEAR(counters.value().dram, 0.3, 1e-9);
  EXPECT_NEAR(counters.value().l2, 0.305, 1e-9);
}

TEST(Counters, IgnoresKernelsWithoutAllMetrics) {
  const auto counters = parse_counters(
      report(kernel("a", "10", "100", "20") + kernel("b", "n/a", "900", "90") + "\"1\",\"77\"\r\n"),
      1);
  ASSERT_TRUE(counters.ok());
  EXPECT_NEAR(counters.value().l2, 0.2, 1e-9);
}

TEST(Counters, CountsTheLaunchesOfABatch) {
  const auto counters =
      parse_counters(report(kernel("a", "10", "100", "20") + kernel("b", "n/a", "900", "90") +
                            kernel("a", "10", "100", "20") + kernel("b", "5", "900", "90")),
                     2);
  ASSERT_TRUE(counters.ok());
  EXPECT_EQ(counters.value().kernels, 2);
}

TEST(Bandwidth, IsTheLastLineOfTheProgramOutsideMps) {
  const support::TemporaryFolder folder;
  const auto program = [&](const std::string& body) {
    const auto file = folder.write("kernels", "#!/bin/sh\n" + body);
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
    return file;
  };
  const auto measured = measure_bandwidth(
      program(
          "echo loading\ntest \"$1 $CUDA_VISIBLE_DEVICES\" = \"bandwidth GPU-7\" && echo 24.5\n"),
      "GPU-7");
  ASSERT_TRUE(measured.ok()) << measured.status().to_string();
  EXPECT_EQ(measured.value(), 24.5);
  for (const char* const body : {"echo 24.5; exit 1\n", "echo -3\n", "echo fast\n", "true\n"})
    EXPECT_EQ(measure_bandwidth(program(body), "GPU-7").status().code(), StatusCode::unavailable);
}

TEST(Counters, FailsWithoutPermission) {
  const auto counters = parse_counters(
      "==PROF== Connected to process 77\n==ERROR== ERR_NVGPUCTRPERM - The user does not have "
      "permission to access NVIDIA GPU Performance Counters on the target device 0.\n",
      2);
  EXPECT_EQ(counters.status().code(), StatusCode::unavailable);
  EXPECT_TRUE(names(counters.status(), "NVreg_RestrictProfilingToAdminUsers=0"));
}

TEST(Counters, FailsWithNcusLastLineWithoutKernels) {
  const auto counters = parse_counters(report("") + "==WARNING== No kernels were profiled.\n", 2);
  EXPECT_EQ(counters.status().code(), StatusCode::malformed);
  EXPECT_TRUE(names(counters.status(), "No kernels were profiled"));
}

RC_GTEST_PROP(Counters, NeverExceedsOneForAnyText, (const std::vector<std::string>& lines)) {
  std::string text = std::string(kHeader) + "\n";
  for (const std::string& line : lines) text += "\"" + line + "\n";
  const auto counters = parse_counters(text, 1);
  if (counters.ok()) RC_ASSERT(counters.value().l2 >= 0 && counters.value().l2 <= 1);
}

TEST(Counters, FallWithTheShareAsTheLatencyGrows) {
  const auto latency = profile::LatencyTable::create({{4, Share{20}, 20},
                                                      {4, Share{50}, 10},
                                                      {4, Share{100}, 8},
                                                      {8, Share{20}, 40},
                                                      {8, Share{60}, 7.5},
                                                      {8, Share{100}, 8}});
  ASSERT_TRUE(latency.ok());
  EXPECT_EQ(scaled_to_sizes({4, Share{100}, 0.5, 0.25}, latency.value()),
            (std::vector<profile::Utilization>{{4, Share{100}, 0.5, 0.25},
                                               {4, Share{20}, 0.5 * 8 / 20, 0.25 * 8 / 20},
                                               {4, Share{50}, 0.5 * 8 / 10, 0.25 * 8 / 10}}));
  // A smaller gpulet is never busier.
  EXPECT_EQ(scaled_to_sizes({8, Share{100}, 0.5, 0.25}, latency.value())[2],
            (profile::Utilization{8, Share{60}, 0.5, 0.25}));
  // Nothing is known of the whole device at this batch.
  EXPECT_EQ(scaled_to_sizes({16, Share{100}, 0.5, 0.25}, latency.value()).size(), 1U);
}

TEST(CounterProgram, RunsNcuOnThatGpuOutsideMps) {
  const support::TemporaryFolder folder;
  const auto ncu =
      folder.write("ncu", "#!/bin/sh\necho \"$@\" >" + (folder.path() / "recorded").string() +
                              "\nenv >>" + (folder.path() / "recorded").string() +
                              "\ncat <<'END'\n" + report(kernel("a", "10", "100", "20")) + "END\n");
  std::filesystem::permissions(ncu, std::filesystem::perms::owner_all);
  const auto program = CounterProgram::find({ncu.string(), "/bin/true"});
  ASSERT_TRUE(program.ok()) << program.status().to_string();
  const auto counters = program.value().measure("models.json", "lenet", 4, "GPU-1");
  ASSERT_TRUE(counters.ok()) << counters.status().to_string();
  EXPECT_NEAR(counters.value().dram, 0.1, 1e-9);
  std::ostringstream recorded;
  recorded << std::ifstream(folder.path() / "recorded").rdbuf();
  const std::string call = recorded.str();
  for (const std::string part :
       {"--csv --page raw", "--profile-from-start off", "--clock-control none",
        "/bin/true run --models models.json --model lenet --batch 4", "CUDA_VISIBLE_DEVICES=GPU-1",
        "no-mps"})
    EXPECT_TRUE(holds(call, part));
}

TEST(CounterProgram, NeedsBothPrograms) {
  for (const CounterProgram::Programs& programs :
       {CounterProgram::Programs{"/nowhere/ncu", "/bin/true"},
        CounterProgram::Programs{"/bin/true", "/nowhere/k"}})
    EXPECT_EQ(CounterProgram::find(programs).status().code(), StatusCode::not_found);
}

TEST(DeviceName, IsCoresOrAGpu) {
  EXPECT_EQ(parse_device("cpu:0,3").value().cores, (std::vector<std::uint32_t>{0, 3}));
  EXPECT_EQ(parse_device("cuda:GPU-5c").value().gpu, "GPU-5c");
  for (const std::string wrong : {"cuda:", "cpu:", "cpu:0,", "cpu:0,0", "cpu:x", "gpu:0", ""})
    EXPECT_EQ(parse_device(wrong).status().code(), StatusCode::invalid) << wrong;
}

profile::Profile profile_of(const std::vector<std::string>& models, const std::vector<int>& sizes,
                            const std::vector<std::uint32_t>& batches) {
  profile::Profile profile;
  for (const std::string& name : models) {
    std::vector<profile::LatencySample> samples;
    for (const int size : sizes)
      for (const std::uint32_t batch : batches)
        samples.push_back({batch, Share{size}, 1.0 + batch});
    profile.models.emplace(
        name, profile::ModelProfile{profile::LatencyTable::create(samples).value(), {}, {}});
  }
  return profile;
}

TEST(PairPlan, HasEveryPairThatFitsOnTheDeviceOnce) {
  const auto profile = profile_of({"a", "b"}, {40, 60, 100}, {1, 4});
  const auto groups = plan_pairs(profile, {{"a", "b"}, {}, {}, 1});
  // Sides a40 a60 b40 b60. Beside themselves: a40, b40. Others: a40-a60, b40-b60, a40-b40, a40-b60,
  // a60-b40.
  EXPECT_EQ(groups.size(), 2U + 5U);
  std::set<std::tuple<PairSide, PairSide, std::uint32_t, std::uint32_t>> seen;
  std::size_t pairs = 0;
  for (const PairGroup& group : groups) {
    EXPECT_LE(group.first.share.percent + group.second.share.percent, 100);
    for (const auto& [one, other] : group.batches) {
      ++pairs;
      seen.insert({group.first, group.second, one, other});
      seen.insert({group.second, group.first, other, one});
    }
  }
  EXPECT_EQ(pairs, 2U * 3U + 5U * 4U);
  EXPECT_EQ(seen.size(), 2U * 4U + 5U * 8U);
}

TEST(PairPlan, FollowsTheChoiceAndItsSeed) {
  const auto profile = profile_of({"a", "b", "c"}, {20, 40}, {1, 2, 4});
  PairChoice choice{.models = {"a", "c"}, .batches = {2, 4}, .sizes = {Share{40}}, .seed = 5};
  const auto groups = plan_pairs(profile, choice);
  EXPECT_EQ(groups, plan_pairs(profile, choice));
  EXPECT_EQ(groups.size(), 3U);
  for (const PairGroup& group : groups) {
    EXPECT_NE(group.first.model, "b");
    EXPECT_EQ(group.second.share, Share{40});
    for (const auto& [one, other] : group.batches) EXPECT_GE(std::min(one, other), 2U);
  }
  const auto other_order = plan_pairs(profile, {{"a", "b", "c"}, {}, {}, 6});
  EXPECT_NE(other_order, plan_pairs(profile, {{"a", "b", "c"}, {}, {}, 7}));
}

TEST(PairPlan, LeavesOutPairsThatAreMeasuredInBothDirections) {
  const auto profile = profile_of({"a", "b"}, {40, 60}, {1, 4});
  const auto groups = plan_pairs(profile, {{"a", "b"}, {}, {}, 1});
  const std::size_t all = count_pairs(groups);
  std::vector<profile::PairSample> measured{{"a", 1, Share{40}, "b", 4, Share{60}, 3},
                                            {"a", 4, Share{40}, "a", 4, Share{40}, 3}};
  EXPECT_EQ(count_pairs(without_measured(groups, measured)), all - 1);
  measured.push_back({"b", 4, Share{60}, "a", 1, Share{40}, 3});
  EXPECT_EQ(count_pairs(without_measured(groups, measured)), all - 2);
}

TEST(PairRounds, LoadEveryGpuletOnceWhereAllFit) {
  const auto profile = profile_of({"a", "b"}, {40, 60}, {1, 4});
  const auto groups = plan_pairs(profile, {{"a", "b"}, {}, {}, 1});
  const auto need = [](const std::string&) { return 100.0; };
  const auto rounds = plan_rounds(groups, {48, 600}, need, 1);
  ASSERT_EQ(rounds.size(), 1U);
  EXPECT_EQ(rounds.front().gpulets.size(), 4U + 2U);  // a40 and b40 run beside themselves, too
  EXPECT_EQ(rounds, plan_rounds(groups, {48, 600}, need, 1));
  EXPECT_GT(plan_rounds(groups, {48, 599}, need, 1).size(), 1U);
  EXPECT_GT(plan_rounds(groups, {5, 0}, need, 1).size(), 1U);
}

RC_GTEST_PROP(PairRounds, HaveEveryPairOnceWithinTheSpace, ()) {
  const auto size = *rc::gen::inRange<std::size_t>(2, 49);
  const auto memory_mb = *rc::gen::inRange(0, 5000);
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const std::map<std::string, double> needs{{"a", *rc::gen::inRange(1, 900)},
                                            {"b", *rc::gen::inRange(1, 900)},
                                            {"c", *rc::gen::inRange(1, 900)}};
  const auto need = [&](const std::string& model) { return needs.at(model); };
  const auto profile = profile_of({"a", "b", "c"}, {20, 40, 60, 80}, {1, 4});
  const auto groups = plan_pairs(profile, {{"a", "b", "c"}, {}, {}, seed});
  std::set<std::tuple<PairGpulet, PairGpulet, std::uint32_t, std::uint32_t>> seen;
  std::size_t visits = 0;
  for (const PairRound& round :
       plan_rounds(groups, {size, static_cast<double>(memory_mb)}, need, seed)) {
    double sum_mb = 0;
    for (const PairGpulet& gpulet : round.gpulets) sum_mb += need(gpulet.side.model);
    RC_ASSERT(round.gpulets.size() <= size);
    RC_ASSERT(memory_mb == 0 || sum_mb <= memory_mb || round.gpulets.size() <= 4);
    for (const PairVisit& visit : round.visits) {
      RC_ASSERT(visit.first != visit.second);
      RC_ASSERT(round.gpulets.contains(visit.first) && round.gpulets.contains(visit.second));
      seen.insert({visit.first, visit.second, visit.first_batch, visit.second_batch});
      ++visits;
    }
  }
  RC_ASSERT(seen.size() == visits);
  RC_ASSERT(visits == count_pairs(groups));
}

}  // namespace
}  // namespace gpulet::tools
