// The cost of the controllers: a hundred instances on ten nodes, once a second, and the choice of
// gains for a new instance. `part_of_a_core` must stay below 0.01.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <map>
#include <vector>

#include "gpulet/base/random.h"
#include "gpulet/control/node_control.h"

namespace {

using namespace gpulet;           // NOLINT(google-build-using-namespace)
using namespace gpulet::control;  // NOLINT(google-build-using-namespace)

constexpr std::uint64_t kNodes = 10;
constexpr std::uint64_t kOnEach = 10;

struct Node {
  NodeControl control;
  std::map<GpuletId, Reading> readings;
};

std::vector<Node> make_nodes(const Options& options, Random& random) {
  std::vector<Node> nodes;
  for (std::uint64_t node = 0; node < kNodes; ++node) {
    std::vector<Instance> instances;
    std::map<GpuletId, Reading> readings;
    for (std::uint64_t index = 0; index < kOnEach; ++index) {
      const GpuletId id{node * kOnEach + index};
      instances.push_back({id, plant_of_queue(1)});
      readings[id] = {random.uniform(), 0.5};
    }
    nodes.push_back({NodeControl(options, 16), readings});
    nodes.back().control.control(instances);
  }
  return nodes;
}

void a_period(benchmark::State& state) {
  Random random(1);
  const Options options;
  std::vector<Node> nodes = make_nodes(options, random);
  Time now{};
  for ([[maybe_unused]] auto _ : state) {
    now += options.period;
    for (Node& node : nodes) {
      node.control.step(node.readings, now);
      benchmark::DoNotOptimize(node.control.contention());
    }
  }
  state.counters["part_of_a_core"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * to_seconds(options.period),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void gains_of_one(benchmark::State& state) {
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(choose_gains(plant_of_queue(1), Options{}.pole).ok());
  }
}

}  // namespace

BENCHMARK(a_period)->Unit(benchmark::kMicrosecond);
BENCHMARK(gains_of_one)->Unit(benchmark::kMicrosecond);

BENCHMARK_MAIN();
