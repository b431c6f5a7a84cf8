#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "gpulet/profile/latency_simulator.h"
#include "tests/backend/core_bench.h"
#include "tests/support/names.h"

namespace gpulet::node {
namespace {

using support::names;

profile::ModelProfile model_profile() {
  auto table = profile::LatencyTable::create({{1, {40}, 10.0}, {8, {40}, 20.0}});
  return {std::move(table).value(), {}, std::nullopt};
}

// "a" takes 10 ms alone, 1.5 times as long beside "a", and 1.2 times beside "b".
std::shared_ptr<const profile::ProfileSet> profiles() {
  profile::Profile measured;
  measured.name = "type";
  measured.models.emplace("a", model_profile());
  measured.models.emplace("b", model_profile());
  measured.pairs = {{"a", 1, {40}, "a", 1, {40}, 15.0}, {"a", 1, {40}, "b", 1, {40}, 12.0}};
  return std::make_shared<const profile::ProfileSet>(profile::ProfileSet{{"type", measured}});
}

TEST(LatencySimulator, HasTheLatenciesOfTheProfile) {
  profile::LatencySimulator device("type", profiles());
  EXPECT_EQ(device.latency({"a", 1, {40}}, {}).value(), from_ms(10));
  EXPECT_EQ(device.latency({"a", 8, {40}}, {}).value(), from_ms(20));
}

TEST(LatencySimulator, AddsTheSlowdownOfEveryNeighbour) {
  profile::LatencySimulator device("type", profiles());
  EXPECT_EQ(device.latency({"a", 1, {40}}, {{"a", 1, {40}}}).value(), from_ms(15));
  EXPECT_EQ(device.latency({"a", 1, {40}}, {{"a", 1, {40}}, {"b", 1, {40}}}).value(), from_ms(17));
  EXPECT_EQ(device.latency({"b", 1, {40}}, {{"a", 1, {40}}}).value(), from_ms(10))
      << "never measured";
}

// Mean and coefficient of variation of the latencies of 20,000 batches.
std::pair<double, double> spread_of(profile::LatencySimulator& device,
                                    const profile::SimulatedBatch& batch) {
  double sum = 0;
  double squares = 0;
  constexpr int kBatches = 20000;
  for (int i = 0; i < kBatches; ++i) {
    const double ms = to_ms(device.latency(batch, {}).value());
    sum += ms;
    squares += ms * ms;
  }
  const double mean = sum / kBatches;
  return {mean, std::sqrt(std::max(0.0, squares / kBatches - mean * mean)) / mean};
}

TEST(LatencySimulator, VariesAsItsProfileOrAsAsked) {
  profile::Profile measured;
  measured.name = "type";
  auto table = profile::LatencyTable::create(
      {{1, {40}, 10.0, std::nullopt, 0.1}, {8, {40}, 20.0, std::nullopt, 0.3}});
  measured.models.emplace("a", profile::ModelProfile{std::move(table).value(), {}, std::nullopt});
  const auto set =
      std::make_shared<const profile::ProfileSet>(profile::ProfileSet{{"type", measured}});
  profile::LatencySimulator device("type", set);
  EXPECT_EQ(device.latency({"a", 8, {40}}, {}).value(), from_ms(20)) << "exact until asked to vary";
  device.vary(std::nullopt, 7);
  const auto [one_ms, one_cv] = spread_of(device, {"a", 1, {40}});
  EXPECT_NEAR(one_ms, 10, 0.05);
  EXPECT_NEAR(one_cv, 0.1, 0.005);
  EXPECT_NEAR(spread_of(device, {"a", 8, {40}}).second, 0.3, 0.02);
  device.vary(0.05, 7);
  EXPECT_NEAR(spread_of(device, {"a", 8, {40}}).second, 0.05, 0.003);
  device.vary(0, 7);
  EXPECT_EQ(spread_of(device, {"a", 8, {40}}).second, 0);
}

TEST(LatencySimulator, ReportsWhatTheProfileLacks) {
  const profile::LatencySimulator device("type", profiles());
  EXPECT_TRUE(device.can_run("a", 8, {40}).ok());
  for (const auto& lacking :
       {device.can_run("c", 1, {40}), device.can_run("a", 9, {40}), device.can_run("a", 1, {80}),
        profile::LatencySimulator("other", profiles()).can_run("a", 1, {40}),
        profile::LatencySimulator("type", nullptr).can_run("a", 1, {40})}) {
    EXPECT_EQ(lacking.code(), StatusCode::invalid);
    EXPECT_TRUE(names(lacking, "profile"));
  }
}

TEST(LatencySimulator, SlowsABatchByItsNeighboursWhenSent) {
  BackendCoreOptions options;
  options.profiles = profiles();
  CoreBench bench(std::move(options));
  bench.connect();
  bench.make_ready(1, 2);
  bench.make_ready(2, 2);
  const auto latency = [&](std::uint64_t id, std::uint64_t gpulet) {
    const auto runs = all<RunOnProxy>(bench.arrive(batch(id, gpulet, "a", 1)));
    return runs.size() == 1 ? runs[0].batch.simulated_latency : Duration(0);
  };
  EXPECT_EQ(latency(1, 1), from_ms(10));
  EXPECT_EQ(latency(2, 1), from_ms(10)) << "its own gpulet runs one after another";
  EXPECT_EQ(latency(3, 2), from_ms(15));
  bench.ran(1, 1);
  bench.ran(1, 2);
  EXPECT_EQ(latency(4, 2), from_ms(10));
}

TEST(LatencySimulator, NeedsNoModelFiles) {
  BackendCoreOptions options;
  options.profiles = profiles();
  CoreBench bench(std::move(options));
  bench.connect();
  const auto effects = bench.command(GpuletRequested{create(1, {"a"}, 2), {}});
  EXPECT_TRUE(sent<ModelPieceRequest>(effects).empty());
  EXPECT_EQ(all<StartGpulet>(effects).size(), 1U);
}

}  // namespace
}  // namespace gpulet::node
