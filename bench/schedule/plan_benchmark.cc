// Planning time: from five models on four devices to a thousand models on four thousand devices,
// and to two thousand on one; the batch search for a given placement; and a decision of `inss` with
// a random network of InSS's size. Latencies are generated with a realistic shape: flat for small
// batches, then proportional to the batch, less than proportional to the share. No two models are
// alike, and all options are the defaults. Interference is either linear in generated utilisations,
// or learned from the reference measurements.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/support/generated_table.h"
#include "gpulet/base/random.h"
#include "gpulet/profile/interference.h"
#include "gpulet/research/research.h"
#include "gpulet/schedule/check.h"
#include "gpulet/schedule/policy.h"
#include "research/batch_search.h"
#include "research/learn/learned_policy.h"
#include "tests/schedule/reference_case.h"

namespace {

using namespace gpulet;            // NOLINT(google-build-using-namespace)
using namespace gpulet::schedule;  // NOLINT(google-build-using-namespace)

struct Case {
  profile::ProfileSet profiles;
  profile::InterferenceSet interference;
  PlanInput input;
};

// A batch of utilisation u beside one of v: 1.02 + 0.1 u + 0.3 v times as long.
void add_interference(Case& made, Random& random) {
  profile::Profile& profile = made.profiles["gpu"];
  for (auto& [name, model] : profile.models) {
    const double busy = random.uniform();
    for (const std::uint32_t batch : {1U, 32U}) {
      for (const int percent : {20, 100}) {
        model.utilization.push_back({batch, Share{percent}, busy, busy * batch / 32});
      }
    }
  }
  profile.interference.emplace().linear = profile::LinearCoefficients{0.1, 0.3, 0, 0, 1.02};
  made.interference =
      profile::interference_of(made.profiles, profile::InterferenceKind::linear).value();
  made.input.interference = &made.interference;
}

// The trees of the reference measurements. The part of a batch that its size shortens uses the
// device, launches do not.
void add_learned_interference(Case& made, Random& random) {
  static const schedule::testing::Worked reference =
      schedule::testing::reference_case(profile::InterferenceKind::learned);
  profile::Profile& profile = made.profiles["gpu"];
  for (auto& [name, model] : profile.models) {
    const double l2 = 0.3 + 0.6 * random.uniform();
    const double dram = 0.2 + 0.6 * random.uniform();
    for (const profile::LatencySample& sample : model.latency.samples()) {
      const double shortest_ms = model.latency.latency_ms(sample.batch, kWholeDevice).value();
      const double busy = shortest_ms / sample.latency_ms;
      model.utilization.push_back({sample.batch, sample.share, l2 * busy, dram * busy});
    }
  }
  profile.interference = reference.profiles->begin()->second.interference;
  made.interference =
      profile::interference_of(made.profiles, profile::InterferenceKind::learned).value();
  made.input.interference = &made.interference;
}

// The same latencies, divided.
profile::LatencyTable faster(const profile::LatencyTable& table, double times) {
  std::vector<profile::LatencySample> samples = table.samples();
  for (profile::LatencySample& sample : samples) sample.latency_ms /= times;
  return profile::LatencyTable::create(std::move(samples)).value();
}

// Models and devices at random. A model's SLO is twice its latency of 32 on a whole device, or as
// given.
struct Load {
  std::string name;
  double rate = 0;  // of a model on average, requests per second
  profile::InterferenceKind interference = profile::InterferenceKind::none;
  double speed = 1;   // latencies are divided by it
  double slo_ms = 0;  // 0: twice the latency
};

std::unique_ptr<Case> generated_case(std::int64_t models, std::int64_t devices, const Load& load) {
  Random random(7);
  auto made = std::make_unique<Case>();
  profile::Profile& profile = made->profiles["gpu"];
  profile.name = "gpu";
  for (std::int64_t model = 0; model < models; ++model) {
    const std::string name = "model" + std::to_string(model);
    profile::LatencyTable table = faster(bench::generated_table(random), load.speed);
    const double slo_ms =
        load.slo_ms > 0 ? load.slo_ms : 2.1 * table.latency_ms(32, kWholeDevice).value() + 5;
    made->input.demands.push_back({name, load.rate * (0.2 + 1.6 * random.uniform()), slo_ms, 32});
    profile.models.emplace(name, profile::ModelProfile{std::move(table), {}, {}});
  }
  for (std::int64_t index = 0; index < devices; ++index) {
    Device& device = made->input.cluster.devices.emplace_back();
    device.key = {"n0", static_cast<std::uint32_t>(index)};
    device.type = "gpu";
    device.partitioning = "mps";
    device.sizes = {{20}, {40}, {50}, {60}, {80}, {100}};
  }
  made->input.profiles = &made->profiles;
  return made;
}

void add_interference(Case& made, profile::InterferenceKind kind) {
  Random random(11);
  if (kind == profile::InterferenceKind::linear) add_interference(made, random);
  if (kind == profile::InterferenceKind::learned) add_learned_interference(made, random);
}

void plan(benchmark::State& state, std::string_view policy, const Load& load) {
  const auto generated = generated_case(state.range(0), state.range(1), load);
  add_interference(*generated, load.interference);
  const auto made = research::policies().make(policy);
  Plan result;
  while (state.KeepRunning()) result = made.value()->plan(generated->input);
  if (!check(result, generated->input).empty()) state.SkipWithError("the plan breaks the rules");
  state.counters["devices_used"] = result.devices_used();
  if (result.lower_bound) {
    state.counters["lower_bound"] = *result.lower_bound;
    // Meaningful only if everything is served.
    state.counters["gap"] = result.devices_used() - static_cast<double>(*result.lower_bound);
  }
  state.counters["unserved"] = static_cast<double>(result.unserved.size());
}

// Each model has half of a device.
std::vector<research::ModelPlacement> in_halves(const PlanInput& input) {
  std::vector<research::ModelPlacement> places;
  for (std::uint32_t model = 0; model < input.demands.size(); ++model)
    places.push_back({model, model / 2, Share{50}});
  return places;
}

// The parts of a decision that are computed anew each time.
enum class Anew : std::uint8_t { the_search, with_its_input, the_plan_in_force };

void search_batches(benchmark::State& state, Anew anew, bool interference) {
  const auto generated = generated_case(state.range(0), state.range(1), {"", 300});
  Random random(11);
  if (interference) add_interference(*generated, random);
  PlanInput& input = generated->input;
  const std::vector<research::ModelPlacement> places = in_halves(input);
  research::BatchSearch search(input);
  const Plan plan = search.decide(places);
  if (!check(plan, input).empty()) state.SkipWithError("the plan breaks the rules");
  if (!plan.schedulable()) state.SkipWithError("the placement is too small");
  input.current = anew == Anew::the_plan_in_force ? &plan : nullptr;
  while (state.KeepRunning()) {
    switch (anew) {
      case Anew::the_search:
        benchmark::DoNotOptimize(search.decide(places));
        break;
      case Anew::with_its_input:
        benchmark::DoNotOptimize(research::BatchSearch(input).decide(places));
        break;
      case Anew::the_plan_in_force:
        benchmark::DoNotOptimize(research::keep_placement(input));
        break;
    }
  }
}

void register_batch_search() {
  const std::vector<std::pair<std::string, Anew>> kinds{{"decide", Anew::the_search},
                                                        {"from_input", Anew::with_its_input},
                                                        {"keep", Anew::the_plan_in_force}};
  for (const auto& [kind, anew] : kinds) {
    for (const bool interference : {false, true}) {
      const std::string name =
          "batch_search/" + kind + (interference ? "/with_interference" : "/alone");
      benchmark::RegisterBenchmark(name.c_str(),
                                   [anew = anew, interference](benchmark::State& state) {
                                     search_batches(state, anew, interference);
                                   })
          ->ArgNames({"models", "devices"})
          ->Args({6, 4})
          ->Args({8, 4})
          ->Unit(benchmark::kMicrosecond);
    }
  }
}

learn::Layer drawn_layer(std::size_t inputs, std::size_t outputs, Random& random) {
  learn::Layer layer;
  layer.inputs = inputs;
  layer.outputs = outputs;
  const auto draw = [&](std::size_t count) {
    std::vector<float> values(count);
    for (float& value : values) value = static_cast<float>(random.uniform() - 0.5);
    return values;
  };
  layer.weights = draw(inputs * outputs);
  layer.biases = draw(outputs);
  return layer;
}

// Places all models and checks the plan.
void decide_by_network(benchmark::State& state, bool interference) {
  const auto generated = generated_case(state.range(0), state.range(1), {"", 300});
  Random random(5);
  if (interference) add_interference(*generated, random);
  learn::PlacementTask task = learn::task_of(generated->input).value();
  std::vector<learn::Layer> layers;
  layers.push_back(drawn_layer(task.observation_size(), 512, random));
  layers.push_back(drawn_layer(512, 256, random));
  layers.push_back(drawn_layer(256, task.models.size() * task.places(), random));
  const auto policy = learn::make_inss_policy(
      {std::move(task), learn::Network::create(std::move(layers)).value(), {}});
  for (auto _ : state) benchmark::DoNotOptimize(policy->plan(generated->input));
}

void register_inss() {
  for (const bool interference : {false, true}) {
    const std::string name =
        std::string("inss/decide") + (interference ? "/with_interference" : "/alone");
    benchmark::RegisterBenchmark(
        name.c_str(),
        [interference](benchmark::State& state) { decide_by_network(state, interference); })
        ->ArgNames({"models", "devices"})
        ->Args({6, 4})
        ->Args({8, 4})
        ->Unit(benchmark::kMicrosecond);
  }
}

}  // namespace

int main(int argc, char** argv) {
  register_batch_search();
  register_inss();
  for (const std::string_view policy : research::policies().names()) {
    if (policy.starts_with("mig-")) continue;  // they need MIG devices
    const std::vector<Load> loads{
        {"moderate", 600},
        {"overload", 2500},
        {"moderate_with_interference", 600, profile::InterferenceKind::linear},
        {"moderate_learned", 600, profile::InterferenceKind::learned},
        {"overload_learned", 2500, profile::InterferenceKind::learned}};
    for (const Load& load : loads) {
      const std::string name = "plan/" + std::string(policy) + "/" + load.name;
      benchmark::RegisterBenchmark(
          name.c_str(), [policy, load](benchmark::State& state) { plan(state, policy, load); })
          ->ArgNames({"models", "devices"})
          ->Args({5, 4})
          ->Args({10, 40})
          ->Args({100, 400})
          ->Args({200, 800})
          ->Args({1000, 400})
          ->Args({1000, 4000})
          ->Unit(benchmark::kMicrosecond);
    }
    // Thousands of models with few requests on few devices: rounds of a thousand batches, and more
    // models than the devices hold.
    const auto learned = profile::InterferenceKind::learned;
    const std::vector<Load> crowds{
        {"crowd", 4, profile::InterferenceKind::none, 100, 400},
        {"crowd_overload", 40, profile::InterferenceKind::none, 100, 400},
        {"crowd_learned", 4, learned, 100, 400},
        {"crowd_overload_learned", 40, learned, 100, 400},
        {"crowd_of_slow_learned", 4, learned, 1, 400}};
    for (const Load& load : crowds) {
      const std::string name = "plan/" + std::string(policy) + "/" + load.name;
      benchmark::RegisterBenchmark(
          name.c_str(), [policy, load](benchmark::State& state) { plan(state, policy, load); })
          ->ArgNames({"models", "devices"})
          ->Args({200, 1})
          ->Args({500, 1})
          ->Args({2000, 1})
          ->Args({2000, 4})
          ->Unit(benchmark::kMicrosecond);
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
