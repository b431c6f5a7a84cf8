// What the frontend's core counts and traces of requests.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <map>
#include <numeric>

#include "gpulet/serve/values/frontend_status.h"
#include "tests/support/serve/traffic.h"

namespace gpulet::serve::statistics_test {
namespace {

using std::chrono::milliseconds;
using testing::at_s;
using testing::byte_model;
using testing::card_profile;
using testing::World;

ServedModel version(const std::string& name, const std::string& hash) {
  ServedModel model = byte_model(name, 100, 30);
  model.sha256 = hash;
  return model;
}

// a, then b.
config::ApplicationConfig chain() {
  config::ApplicationConfig graph;
  graph.name = "chain";
  graph.inputs = {{"x", DataType::uint8, {1}}};
  graph.slo_ms = 150;
  graph.nodes = {{"first", config::ModelCall{"a"}, {{{}, 0, {}}}, {{"y", DataType::uint8, {1}}}},
                 {"second", config::ModelCall{"b"}, {{0, 0, {}}}, {{"y", DataType::uint8, {1}}}}};
  graph.answered = {{1, 0, {}}};
  graph.outputs = {{"y", DataType::uint8, {1}}};
  return graph;
}

TEST(RecentOutcomes, CountTheOutcomesOfAMinute) {
  RecentOutcomes recent;
  recent.add_served(false, at_s(5));
  recent.add_served(true, at_s(5));
  recent.add_failure(true, at_s(40));
  recent.add_failure(false, at_s(40));
  EXPECT_EQ(recent.of_minute(at_s(45)), (Outcomes{4, 1, 1, 1}));
  EXPECT_EQ(recent.of_minute(at_s(45)).violations(), 3U);
  EXPECT_DOUBLE_EQ(recent.of_minute(at_s(45)).violated(), 0.75);
  EXPECT_EQ(recent.of_now(at_s(45)), (Outcomes{2, 0, 1, 1}));
  EXPECT_EQ(recent.of_minute(at_s(75)), (Outcomes{2, 0, 1, 1}));
  EXPECT_EQ(recent.of_minute(at_s(120)).violated(), 0);
}

TEST(RecentPace, NeedsAFewBatches) {
  RecentPace recent;
  for (int i = 0; i < 4; ++i) recent.add(milliseconds(15), milliseconds(10), at_s(1));
  EXPECT_EQ(recent.pace(at_s(2)), 0);
  recent.add(milliseconds(15), milliseconds(10), at_s(1));
  EXPECT_DOUBLE_EQ(recent.pace(at_s(2)), 1.5);
  EXPECT_DOUBLE_EQ(recent.pace(at_s(45)), 1.5)
      << "of the last minute, where there is nothing later";
  EXPECT_EQ(recent.pace(at_s(70)), 0);
}

// Devices take what the profile says, and plans reckon with the margin.
TEST(RecentPace, CoversAllBatchesOfAModelAndOfAGpulet) {
  FrontendOptions options;
  options.margin = 1.25;
  World world(options, {byte_model("a", 100, 50)}, card_profile({{"a", 4}}));
  world.add_backend("n0", 1);
  testing::load(world, "a", 50, 2, 20, 1, 1);
  world.run_until(at_s(20));
  const FrontendStatus status = world.status();
  EXPECT_NEAR(status.models.at(0).pace, 0.8, 0.01);
  EXPECT_NEAR(status.gpulets.at(0).pace, 0.8, 0.01);
  EXPECT_GT(status.models.at(0).last_minute.answered, 500U);
}

void check_sums(const ModelStatus& row) {
  const ModelCounters& counters = row.counters;
  const ModelStatistics& statistics = row.statistics;
  RC_ASSERT(counters.offered == counters.served + counters.dropped + counters.failed);
  RC_ASSERT(statistics.successes() == counters.served);
  RC_ASSERT(statistics.queued.count() == counters.served);
  RC_ASSERT(statistics.executed.count() == counters.served);
  RC_ASSERT(statistics.failed(StatusCode::too_late) + statistics.failed(StatusCode::overloaded) ==
            counters.dropped);
  RC_ASSERT(std::accumulate(statistics.failures.begin(), statistics.failures.end(),
                            std::uint64_t{0}) == counters.dropped + counters.failed);
  RC_ASSERT(statistics.failed(StatusCode::ok) == 0U);
  if (row.application) {
    RC_ASSERT(statistics.executions == counters.served);
    return;
  }
  std::uint64_t requests = 0;
  std::uint64_t batches = 0;
  for (std::size_t i = 0; i < statistics.batches.size(); ++i) {
    batches += statistics.batches[i].executed.count();
    requests += statistics.batches[i].executed.count() * (i + 1);
  }
  RC_ASSERT(requests == counters.served);
  RC_ASSERT(batches == statistics.executions);
  const double stages = statistics.queued.sum().seconds() + statistics.executed.sum().seconds() +
                        statistics.input.seconds() + statistics.output.seconds();
  RC_ASSERT(std::abs(statistics.latency.sum().seconds() - stages) < 1e-6);
}

TEST(StatisticsTest, InputAndOutputTimesAreSeparate) {
  BatchResult result;
  result.queued = milliseconds(7);
  result.received = milliseconds(5);
  result.executed = milliseconds(20);
  result.returning = at_s(1) - milliseconds(3);
  const BatchTimes times = times_of(result, milliseconds(34), at_s(1));
  EXPECT_EQ(times.queued, milliseconds(2));
  EXPECT_EQ(times.executed, milliseconds(20));
  EXPECT_EQ(times.input, milliseconds(7)) << "5 of receiving, half of the 4 that nobody measured";
  EXPECT_EQ(times.output, milliseconds(5));

  result.received = Duration();  // a backend that does not measure it
  result.returning = Time();
  const BatchTimes halves = times_of(result, milliseconds(34), at_s(1));
  EXPECT_EQ(halves.queued, milliseconds(7));
  EXPECT_EQ(halves.input, halves.output);
}

RC_GTEST_PROP(StatisticsProperty, TheTimesOfABatchAddUpForAnyReport, ()) {
  const auto any_time = [] { return milliseconds(*rc::gen::inRange(0, 1000)); };
  BatchResult result;
  result.queued = any_time();
  result.received = any_time();
  result.executed = any_time();
  if (*rc::gen::arbitrary<bool>()) result.returning = at_s(2) - any_time();
  const Duration under_way = any_time();
  const BatchTimes times = times_of(result, under_way, at_s(2));
  RC_ASSERT(times.queued + times.input + times.executed + times.output == under_way);
  RC_ASSERT(times.queued >= Duration::zero());
  if (under_way < result.queued + result.executed) return;
  RC_ASSERT(times.input >= Duration::zero());
  RC_ASSERT(times.output >= Duration::zero());
}

RC_GTEST_PROP(StatisticsProperty, OutcomesAddUpAndEachIsTraced, ()) {
  FrontendOptions options;
  options.max_queue_per_model = static_cast<std::uint32_t>(*rc::gen::inRange(2, 40));
  options.trace_every = 1;
  World world(options, {version("a", "a1"), version("b", "b1")},
              card_profile({{"a", 2}, {"b", 4}}));
  std::map<std::string, std::uint64_t> traced;
  world.observe([&](const FrontendEvent&, Time now, const FrontendEffects& effects) {
    for (const FrontendEffect& effect : effects) {
      const auto* one = std::get_if<RequestTraced>(&effect);
      if (one == nullptr) continue;
      ++traced[one->record.model];
      const RequestTrace& trace = one->record.trace;
      RC_ASSERT(trace.answered == now);
      RC_ASSERT(observe::stages_of(trace).all() == now - trace.arrived);
      if (one->record.outcome != StatusCode::ok || one->record.application) continue;
      RC_ASSERT(trace.batch_size > 0U);
      RC_ASSERT(one->record.share.valid());
    }
  });
  world.add_backend("n0", 1);
  world.add_backend("n1", 1);
  world.change_models_at(at_s(0.5), {version("a", "a1"), version("b", "b1")}, {}, {chain()});
  world.run_until(at_s(2));
  const auto requests = static_cast<std::uint64_t>(*rc::gen::inRange(1, 200));
  for (std::uint64_t tag = 1; tag <= requests; ++tag) {
    const Time time = at_s(2 + 0.001 * *rc::gen::inRange(0, 3000));
    world.request_at(time, *rc::gen::element("chain", "a", "b"), tag,
                     milliseconds(*rc::gen::element(0, 5, 60)));
  }
  if (*rc::gen::arbitrary<bool>())
    world.change_models_at(at_s(2.5), {version("a", "a2"), version("b", "b1")}, {}, {chain()});
  world.run_until(at_s(3));
  if (*rc::gen::arbitrary<bool>()) world.kill_backend("n1");
  world.kill_proxy("n0");
  world.run_until(at_s(30));
  std::uint64_t offered = 0;
  for (const ModelStatus& row : world.status().models) {
    check_sums(row);
    RC_ASSERT(row.counters.offered ==
              traced[row.name] + row.statistics.failed(StatusCode::cancelled));
    offered += row.counters.offered;
    if (row.application) {
      RC_ASSERT(row.statistics.batches.empty());
    }
  }
  RC_ASSERT(offered >= requests);
}

TEST(StatisticsTest, ANewVersionContinuesTheCounters) {
  World world({}, {version("a", "a1")}, card_profile({{"a", 4}}));
  world.add_backend("n0", 2);
  testing::load(world, "a", 40, 2, 12, 1, 3);
  world.run_until(at_s(5));
  const ModelStatistics before = world.status().models[0].statistics;
  EXPECT_GT(before.successes(), 50U);
  world.change_models_at(at_s(5), {version("a", "a2")});
  world.run_until(at_s(14));
  const ModelStatus after = world.status().models[0];
  EXPECT_EQ(short_version(after.version).substr(0, 2), "a2");
  EXPECT_EQ(after.number, 2U);
  EXPECT_EQ(after.statistics.successes(), after.counters.served);
  EXPECT_GT(after.statistics.successes(), 2 * before.successes());
  EXPECT_GT(after.statistics.last_success, before.last_success);
}

TEST(StatisticsTest, DevicesAndGpuletsReportTheirUse) {
  profile::Profile profile = card_profile({{"a", 4}});
  profile.models.at("a").memory_mb = 150;
  World world({}, {byte_model("a", 100, 60)}, profile);
  world.add_backend("n0", 2, 4000);
  testing::load(world, "a", 60, 2, 8, 1, 5);
  world.run_until(at_s(7));
  const FrontendStatus status = world.status();
  EXPECT_EQ(status.reorganisations.took.count(), status.reorganisations.plans);
  ASSERT_EQ(status.devices.size(), 2U);
  std::map<schedule::DeviceKey, int> shares;
  std::map<schedule::DeviceKey, double> memory_mb;
  for (const GpuletStatus& gpulet : status.gpulets) {
    shares[gpulet.gpulet.device] += gpulet.gpulet.size.percent;
    memory_mb[gpulet.gpulet.device] += 150;
    EXPECT_GT(gpulet.statistics.batch_fill(), 0);
    EXPECT_LE(gpulet.statistics.batch_fill(), 1);
  }
  for (const DeviceStatus& device : status.devices) {
    EXPECT_EQ(device.used.percent, shares[device.key]);
    EXPECT_EQ(device.planned_memory_mb, memory_mb[device.key]);
    EXPECT_EQ(device.memory_mb, 4000);
    EXPECT_EQ(device.busy > 0, shares[device.key] > 0);
  }
}

TEST(TracingTest, EveryNthRequestAndAWindowAreTraced) {
  FrontendOptions options;
  options.trace_every = 10;
  FrontendCore core(options, {{byte_model("a", 100, 10)}, nullptr, nullptr}, at_s(0));
  FrontendEffects effects;
  const auto ask_twenty = [&](double from_s) {
    for (int i = 0; i < 20; ++i) {
      InferRequest request;
      request.model = "a";
      request.tag = static_cast<std::uint64_t>(i);
      request.inputs = {{"x", DataType::uint8, {1}}};
      request.payload = Bytes::own(std::vector<std::byte>(1));
      core.on(RequestReceived{ClientId{4}, std::move(request)}, at_s(from_s), effects);
    }
    core.on(Settle{}, at_s(from_s + 0.5), effects);  // behind their deadlines
  };
  const auto traced = [&] {
    std::vector<observe::RequestTraceRecord> records;
    for (const FrontendEffect& effect : effects) {
      if (const auto* one = std::get_if<RequestTraced>(&effect)) records.push_back(one->record);
    }
    effects.clear();
    return records;
  };
  ask_twenty(1);
  const auto sampled = traced();
  ASSERT_EQ(sampled.size(), 2U);
  EXPECT_EQ(sampled[0].id, RequestId{10});
  EXPECT_EQ(sampled[0].tag, 9U);
  EXPECT_EQ(sampled[0].client, ClientId{4});
  EXPECT_EQ(sampled[0].outcome, StatusCode::unavailable) << "no backend is connected";
  EXPECT_EQ(sampled[0].due, at_s(1.1));
  core.on(TraceUntil{at_s(2.5)}, at_s(2), effects);
  ask_twenty(2);
  EXPECT_EQ(traced().size(), 20U);
  ask_twenty(3);
  EXPECT_EQ(traced().size(), 2U);
}

}  // namespace
}  // namespace gpulet::serve::statistics_test
