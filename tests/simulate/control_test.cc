// Instances with controlled cores, served by the whole engine in virtual time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "gpulet/schedule/policy.h"
#include "gpulet/simulate/simulation.h"

namespace gpulet::simulate {
namespace {

profile::ModelProfile latency_of(std::vector<profile::LatencySample> samples) {
  return {profile::LatencyTable::create(std::move(samples)).value(), {}, {}};
}

// Two nodes, each with a GPU that needs 25 ms for a request and six cores that need 0.1 s each.
struct TwoNodes {
  std::unique_ptr<schedule::Policy> policy;
  Knowledge knowledge;
  SimulationInput input;
  SimulationOptions options;

  explicit TwoNodes(const char* policy_name = "roma")
      : policy(schedule::make_policy(policy_name).value()) {
    profile::ProfileSet profiles;
    for (const char* model : {"a", "b"}) {
      profiles["card"].models.emplace(
          model, latency_of({{1, {100}, 25}, {4, {100}, 40}, {16, {100}, 100}}));
      profiles["processor"].models.emplace(
          model, latency_of({{1, {17}, 100}, {1, {50}, 36}, {1, {100}, 20}}));
    }
    knowledge.profiles = std::make_shared<const profile::ProfileSet>(std::move(profiles));
    knowledge.believed = std::make_shared<const profile::InterferenceSet>();
    knowledge.simulated = simulated_interference(*knowledge.profiles);
    knowledge.policy = policy.get();
    for (const char* node : {"n0", "n1"}) {
      for (std::uint32_t number = 0; number < 2; ++number) {
        schedule::Device& device = input.cluster.devices.emplace_back();
        device.key = {node, number};
        device.type = number == 0 ? "card" : "processor";
        device.partitioning = "simulated";
        device.sizes = {{17}, {50}, {100}};
        device.cores = number == 0 ? 0 : 6;
      }
    }
    options.control.least_cores = 0.25;
    options.control.set_point = 0.5;
  }

  void demand(double rate_a, double rate_b, double slo_ms = 400) {
    input.demands = {{"a", rate_a, slo_ms, 16}, {"b", rate_b, slo_ms, 16}};
  }
  [[nodiscard]] Outcome run() const { return simulate(knowledge, input, options).value(); }
};

double core_seconds(const Outcome& outcome) {
  return std::accumulate(
      outcome.models.begin(), outcome.models.end(), 0.0,
      [](double sum, const ModelOutcome& model) { return sum + model.control->core_seconds; });
}

TEST(ControlTest, CoresFallToTheMinimumWhereGpusSuffice) {
  TwoNodes nodes;
  nodes.demand(15, 15);
  nodes.options.seconds = 120;
  nodes.options.series_step = std::chrono::seconds(10);
  const Outcome outcome = nodes.run();
  for (const ModelOutcome& model : outcome.models) {
    EXPECT_EQ(model.served, model.offered);
    EXPECT_GT(model.control->on_gpu, 3 * model.control->on_cpu);
    EXPECT_LT(model.mean_ms, 200);
  }
  const std::vector<double>& at_end = outcome.series.back().cores;
  EXPECT_LT(at_end[0] + at_end[1], 1.5);  // four instances with at least a quarter each
}

TEST(ControlTest, CoresServeTheLoadBeyondTheGpus) {
  TwoNodes nodes;
  nodes.demand(60, 60);  // the GPUs serve 80
  nodes.options.seconds = 120;
  const Outcome outcome = nodes.run();
  EXPECT_LT(outcome.violation, 0.1);
  for (const ModelOutcome& model : outcome.models) {
    EXPECT_LT(model.control->violated_periods, 12U);  // before it reaches the set point
    EXPECT_GT(model.control->on_cpu, model.offered / 5);
  }
  // 40 requests per second need more than 4 cores, because one request uses several cores less
  // efficiently.
  EXPECT_GT(core_seconds(outcome), 120 * 4);
  EXPECT_LT(core_seconds(outcome), 120 * 10);
}

// The mean response time (ms) of each model in the last 150 s.
std::vector<double> settled_ms(TwoNodes& nodes, double seconds = 200) {
  nodes.demand(60, 60);  // the GPUs serve 80
  nodes.options.seconds = seconds;
  nodes.options.series_step = std::chrono::seconds(10);
  const Outcome outcome = nodes.run();
  const std::size_t rows = outcome.series.size();
  std::vector<double> means;
  for (std::size_t model = 0; model < 2; ++model) {
    double sum_ms = 0;
    for (std::size_t row = rows - 15; row < rows; ++row)
      sum_ms += outcome.series[row].response_ms[model];
    means.push_back(sum_ms / 15);
  }
  return means;
}

TEST(ControlTest, TheResponseTimeConvergesToTheSetPoint) {
  TwoNodes nodes;
  for (const double mean_ms : settled_ms(nodes)) EXPECT_NEAR(mean_ms, 200, 40);
}

TEST(ControlTest, TheResponseTimeConvergesWithAWindowOfSeveralPeriods) {
  TwoNodes nodes;
  nodes.options.control.window = std::chrono::seconds(2);
  // It takes longer than with one period: the gains are smaller.
  for (const double mean_ms : settled_ms(nodes, 900)) EXPECT_NEAR(mean_ms, 200, 40);
}

TEST(ControlTest, TheOverheadCountsTowardsTheSetPoint) {
  TwoNodes nodes;
  nodes.options.control.set_point = 0.75;
  nodes.options.control.overhead = std::chrono::milliseconds(100);
  for (const double mean_ms : settled_ms(nodes)) EXPECT_NEAR(mean_ms, 200, 40);
}

// Without it, the GPUs would go to both models alike.
TEST(ControlTest, TheOverheadCountsTowardsTheNeedForAGpu) {
  TwoNodes nodes;
  nodes.demand(55, 55, 400);
  nodes.input.demands[0].slo_ms = 150;
  nodes.options.control.cores = control::CoreRule::least;
  nodes.options.seconds = 60;
  const Outcome without = nodes.run();
  nodes.options.control.overhead = std::chrono::milliseconds(100);
  const Outcome with = nodes.run();
  EXPECT_LT(with.models[0].mean_ms, without.models[0].mean_ms);
  EXPECT_GT(with.models[1].mean_ms, without.models[1].mean_ms);
}

TEST(ControlTest, OverloadQueuesRequestsInsteadOfDroppingThem) {
  TwoNodes nodes;
  nodes.demand(250, 250);
  nodes.options.seconds = 5;
  const Outcome outcome = nodes.run();
  for (const ModelOutcome& model : outcome.models) {
    EXPECT_EQ(model.dropped, 0U);
    EXPECT_GT(model.control->violated_periods, 1U);
  }
  EXPECT_LE(core_seconds(outcome), 5 * 12 + 1e-6);
}

TEST(ControlTest, EqualSeedsGiveEqualRuns) {
  TwoNodes nodes;
  nodes.demand(50, 40);
  nodes.options.seconds = 20;
  nodes.options.series_step = std::chrono::seconds(1);
  const Outcome once = nodes.run();
  const Outcome twice = nodes.run();
  EXPECT_EQ(once.models, twice.models);
  EXPECT_EQ(once.series, twice.series);
}

TEST(ControlTest, TheBaselineRulesAssignAllCoresOrTheMinimum) {
  TwoNodes nodes;
  nodes.demand(20, 20);
  nodes.options.seconds = 20;
  nodes.options.control.cores = control::CoreRule::all;
  nodes.options.control.gpu = control::GpuRule::round_robin;
  EXPECT_NEAR(core_seconds(nodes.run()), 20 * 12, 12);
  nodes.options.control.cores = control::CoreRule::least;
  EXPECT_NEAR(core_seconds(nodes.run()), 20 * 2, 2);
}

// A request takes 4 s on half of a core, which is longer than a backend waits for one that is
// expected sooner.
TEST(ControlTest, SlowRequestsOnFewCoresAreExpectedAndTheirProcessesNotTakenForHung) {
  TwoNodes nodes;
  profile::ProfileSet profiles = *nodes.knowledge.profiles;
  for (const char* model : {"a", "b"}) {
    profiles["processor"].models.insert_or_assign(
        model, latency_of({{1, {17}, 2000}, {1, {50}, 700}, {1, {100}, 400}}));
  }
  nodes.knowledge.profiles = std::make_shared<const profile::ProfileSet>(std::move(profiles));
  nodes.knowledge.simulated = simulated_interference(*nodes.knowledge.profiles);
  nodes.demand(45, 45);  // the GPUs serve 80
  nodes.options.seconds = 60;
  nodes.options.control.cores = control::CoreRule::least;
  nodes.options.control.gpu = control::GpuRule::round_robin;
  const Outcome outcome = nodes.run();
  EXPECT_GT(outcome.models[0].control->on_cpu, 10U);
  EXPECT_NEAR(core_seconds(outcome), 60 * 2, 2) << "a process that restarts has no cores";
}

TEST(ControlTest, BusyCoreSecondsAreThoseOfTheBatches) {
  constexpr double kRequestOnAllCores = 6 * 0.020;
  TwoNodes nodes;
  nodes.demand(20, 0);
  std::erase_if(nodes.input.demands, [](const auto& demand) { return demand.name == "b"; });
  nodes.options.seconds = 20;
  nodes.options.control.cores = control::CoreRule::all;
  const Outcome outcome = nodes.run();
  ASSERT_GT(outcome.models[0].control->on_cpu, 0U);
  EXPECT_NEAR(outcome.core_seconds_busy,
              static_cast<double>(outcome.models[0].control->on_cpu) * kRequestOnAllCores,
              kRequestOnAllCores);
  EXPECT_LT(outcome.core_seconds_busy, outcome.core_seconds);
}

// ---- CPUs in the plan

TEST(PlannedCpusTest, BusyCoreSecondsAreThoseOfTheBatches) {
  constexpr double kRequestOnAllCores = 6 * 0.020;
  TwoNodes nodes("auto");
  nodes.demand(20, 0);
  std::erase_if(nodes.input.demands, [](const auto& demand) { return demand.name == "b"; });
  std::erase_if(nodes.input.cluster.devices, [](const auto& one) { return one.cores == 0; });
  for (schedule::Device& device : nodes.input.cluster.devices) {
    device.key.device = 0;
    device.sizes = {{100}};
  }
  nodes.options.seconds = 20;
  const Outcome outcome = nodes.run();
  EXPECT_NEAR(outcome.core_seconds_busy,
              static_cast<double>(outcome.models[0].served) * kRequestOnAllCores,
              2 * kRequestOnAllCores);  // that of the last request is not over
  EXPECT_NEAR(outcome.core_seconds, 20 * 6 * outcome.devices_mean, 1e-6);
}

// The GPUs suffice, except for 20 s.
TEST(PlannedCpusTest, CoresAreGivenBackSoonAfterThePeak) {
  TwoNodes nodes("auto");
  nodes.demand(20, 20);
  nodes.options.seconds = 60;
  nodes.options.series_step = std::chrono::seconds(1);
  nodes.options.trace = std::make_shared<const config::Trace>(
      config::parse_trace("time_s,model,rate\n0,a,20\n20,a,340\n40,a,20\n0,b,20\n", "load.csv")
          .value());
  const Outcome outcome = nodes.run();
  EXPECT_GT(outcome.core_seconds, 0);
  std::uint32_t most = 0;
  for (const Reorganisation& move : outcome.reorganisations) most = std::max(most, move.devices);
  EXPECT_GT(most, 2U);
  // From 10 s after the peak on.
  for (std::size_t row = 50; row < 60; ++row) EXPECT_LE(outcome.series[row].devices, 2) << row;
}

// ---- processor sharing

// The mean response time (ms) of 60 requests/s on two CPUs, of which each request needs 20 ms.
double mean_ms_on_cpus(std::uint32_t requests_at_once) {
  TwoNodes nodes;
  profile::ProfileSet profiles;
  std::vector<profile::LatencySample> samples;
  for (const int percent : {10, 11, 12, 14, 17, 20, 25, 33, 50, 100})
    samples.push_back({1, {percent}, 2000.0 / percent});
  profiles["processor"].models.emplace("a", latency_of(std::move(samples)));
  nodes.knowledge.profiles = std::make_shared<const profile::ProfileSet>(std::move(profiles));
  nodes.knowledge.simulated = simulated_interference(*nodes.knowledge.profiles);
  std::erase_if(nodes.input.cluster.devices,
                [](const schedule::Device& device) { return !schedule::is_cpu(device); });
  for (schedule::Device& device : nodes.input.cluster.devices) device.key.device = 0;
  nodes.input.demands = {{"a", 60, 2000, 1}};
  nodes.options.seconds = 300;
  nodes.options.control.cores = control::CoreRule::all;
  nodes.options.control.requests_at_once = requests_at_once;
  const Outcome outcome = nodes.run();
  EXPECT_EQ(outcome.models[0].served, outcome.models[0].offered);
  return outcome.models[0].mean_ms;
}

// Two queues of processor sharing at 0.6 of their capacity: 20 / (1 - 0.6) ms, whatever the
// distribution of the work. One queue of two servers is faster: about 20 (1 + 0.3) ms.
TEST(ProcessorSharingTest, ResponseTimesAreThoseOfTheQueue) {
  EXPECT_NEAR(mean_ms_on_cpus(64), 50, 4);
  EXPECT_NEAR(mean_ms_on_cpus(1), 25, 3);
}

TEST(ProcessorSharingTest, GpusTakeWhatTheInstancesLeave) {
  TwoNodes nodes;
  nodes.demand(30, 30);
  nodes.options.seconds = 60;
  const Outcome one = nodes.run();
  nodes.options.control.requests_at_once = 4;
  const Outcome four = nodes.run();
  for (std::size_t model = 0; model < 2; ++model) {
    EXPECT_EQ(four.models[model].served, four.models[model].offered);
    EXPECT_GT(four.models[model].control->on_cpu, one.models[model].control->on_cpu);
  }
}

// ---- spill-over

TEST(SpillOverTest, CpusServeTheLoadBeyondTheGpulets) {
  TwoNodes nodes("elastic");
  nodes.demand(130, 20);
  nodes.options.seconds = 60;
  nodes.options.trace = std::make_shared<const config::Trace>(
      config::parse_trace("time_s,model,rate\n0,a,130\n20,a,420\n0,b,20\n", "load.csv").value());
  nodes.options.control.spill = true;
  const Outcome helped = nodes.run();
  std::erase_if(nodes.input.cluster.devices, schedule::is_cpu);
  for (schedule::Device& device : nodes.input.cluster.devices) device.key.device = 0;
  const Outcome alone = nodes.run();
  ASSERT_TRUE(helped.models[0].control.has_value());
  EXPECT_GT(helped.models[0].control->on_cpu, 100U);
  EXPECT_LT(helped.violation, alone.violation);
}

TEST(SpillOverTest, IsOffByDefault) {
  TwoNodes nodes("elastic");
  nodes.demand(40, 20);
  nodes.options.seconds = 10;
  const Outcome outcome = nodes.run();
  EXPECT_FALSE(outcome.models[0].control.has_value());
}

}  // namespace
}  // namespace gpulet::simulate
