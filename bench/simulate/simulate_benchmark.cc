// How fast the simulator is: a day of nine models on eight devices, compressed into 3,200 s of two
// waves, and a thousand models on ten thousand devices. Latencies are generated as in
// bench/schedule.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>

#include "bench/support/generated_table.h"
#include "gpulet/base/random.h"
#include "gpulet/simulate/simulation.h"

namespace {

using namespace gpulet;            // NOLINT(google-build-using-namespace)
using namespace gpulet::simulate;  // NOLINT(google-build-using-namespace)

constexpr double kTwoPi = 6.283185307179586;

struct Case {
  std::unique_ptr<schedule::Policy> policy = schedule::make_policy("elastic").value();
  Knowledge knowledge;
  SimulationInput scene;
  SimulationOptions options;
};

// `rate`: the mean rate of a model.
Case generated_case(std::size_t models, std::uint32_t devices, double rate, double seconds) {
  Random random(7);
  Case made;
  auto profiles = std::make_shared<profile::ProfileSet>();
  profile::Profile& profile = (*profiles)["gpu"];
  profile.name = "gpu";
  for (std::size_t model = 0; model < models; ++model) {
    const std::string name = "model" + std::to_string(model);
    profile::LatencyTable table = bench::generated_table(random);
    const double slo_ms = 2.1 * table.latency_ms(32, kWholeDevice).value() + 5;
    made.scene.demands.push_back({name, rate * (0.2 + 1.6 * random.uniform()), slo_ms, 32});
    profile.models.emplace(name, profile::ModelProfile{std::move(table), {}, {}});
  }
  for (std::uint32_t index = 0; index < devices; ++index) {
    schedule::Device& device = made.scene.cluster.devices.emplace_back();
    device.key = {"n" + std::to_string(10000 + index / 8), index % 8};
    device.type = "gpu";
    device.partitioning = "mps";
    device.sizes = {{20}, {40}, {50}, {60}, {80}, {100}};
  }
  made.knowledge.profiles = profiles;
  made.knowledge.believed = std::make_shared<const profile::InterferenceSet>();
  made.knowledge.simulated = simulated_interference(*profiles);
  made.knowledge.policy = made.policy.get();
  made.options.seconds = seconds;
  return made;
}

// Rates that rise and fall twice, in steps of 20 s.
std::shared_ptr<const config::Trace> two_waves(const Case& made) {
  auto trace = std::make_shared<config::Trace>();
  for (const schedule::ModelDemand& demand : made.scene.demands) {
    for (double at_s = 0; at_s < made.options.seconds; at_s += 20) {
      const double phase = 2 * kTwoPi * at_s / made.options.seconds;
      trace->rates[demand.name].push_back({at_s, demand.rate * (1 - 0.6 * std::cos(phase))});
    }
  }
  return trace;
}

void run(benchmark::State& state, const Case& made) {
  Outcome outcome;
  while (state.KeepRunning()) {
    outcome = simulate::simulate(made.knowledge, made.scene, made.options).value();
  }
  const auto rate = [&state](std::uint64_t count) {
    return benchmark::Counter(static_cast<double>(count) * static_cast<double>(state.iterations()),
                              benchmark::Counter::kIsRate);
  };
  state.counters["requests"] = static_cast<double>(outcome.requests);
  state.counters["requests/s"] = rate(outcome.requests);
  state.counters["events/s"] = rate(outcome.events);
  state.counters["devices"] = outcome.devices_used;
  state.counters["plans"] = static_cast<double>(outcome.plans);
  state.counters["violation"] = outcome.violation;
}

void day_of_nine_models(benchmark::State& state) {
  Case made = generated_case(9, 8, 450, 3200);
  made.options.trace = two_waves(made);
  run(state, made);
}

void thousand_models(benchmark::State& state) {
  // A model's rate grows with the devices, so that nearly all of them are in use.
  const auto devices = static_cast<double>(state.range(0));
  run(state, generated_case(1000, static_cast<std::uint32_t>(devices), 1.45 * devices, 0.5));
}

}  // namespace

BENCHMARK(day_of_nine_models)->Unit(benchmark::kSecond)->Iterations(1);
BENCHMARK(thousand_models)
    ->ArgName("devices")
    ->Arg(1000)
    ->Arg(10000)
    ->Unit(benchmark::kSecond)
    ->Iterations(1);

BENCHMARK_MAIN();
