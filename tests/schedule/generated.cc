#include "tests/schedule/generated.h"

#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "gpulet/base/random.h"

namespace gpulet::schedule::testing {
namespace {

// Between low and high, uniform on a logarithmic scale.
double log_uniform(Random& random, double low, double high) {
  return low * std::pow(high / low, random.uniform());
}

profile::LatencyTable random_table(Random& random) {
  const double fixed_ms = log_uniform(random, 0.05, 20);
  const double per_request_ms = log_uniform(random, 0.01, 5);
  const double knee = 20 + 80 * random.uniform();  // percent beyond which share has no effect
  std::vector<profile::LatencySample> samples;
  const std::uint64_t holes = random.below(3);  // of ten cells
  for (const int percent : {10, 20, 30, 50, 70, 100}) {
    for (const std::uint32_t batch : {1U, 2U, 4U, 8U, 16U, 32U, 64U}) {
      if (random.below(10) < holes) continue;
      profile::LatencySample sample;
      sample.batch = batch;
      sample.share = Share{percent};
      const double noise = 0.9 + 0.2 * random.uniform();  // latency may fall as the batch grows
      sample.latency_ms =
          (fixed_ms + per_request_ms * batch) * std::max(1.0, knee / percent) * noise;
      samples.push_back(sample);
    }
  }
  if (samples.empty()) samples.emplace_back().batch = 1;
  if (samples.size() == 1) {
    samples.front().share = kWholeDevice;
    samples.front().latency_ms = fixed_ms;
  }
  return profile::LatencyTable::create(samples).value();
}

std::vector<Share> random_sizes(Random& random) {
  std::set<Share> sizes;
  const std::uint64_t count = 1 + random.below(7);
  for (std::uint64_t index = 0; index < count; ++index) {
    sizes.insert(random.below(4) == 0 ? Share{1 + static_cast<int>(random.below(100))}
                                      : Share{10 * (1 + static_cast<int>(random.below(10)))});
  }
  return {sizes.begin(), sizes.end()};
}

// Pairs of some cells of every two models, up to three times as slow.
void add_random_pairs(profile::Profile& profile, Random& random) {
  for (const auto& [model, measured] : profile.models) {
    for (const auto& [other, beside] : profile.models) {
      for (std::uint64_t pair = random.below(4); pair > 0; --pair) {
        const auto& cells = measured.latency.samples();
        const auto& other_cells = beside.latency.samples();
        const profile::LatencySample& cell = cells[random.below(cells.size())];
        const profile::LatencySample& other_cell = other_cells[random.below(other_cells.size())];
        if (cell.share.percent + other_cell.share.percent > 100) continue;
        profile.pairs.push_back({model, cell.batch, cell.share, other, other_cell.batch,
                                 other_cell.share,
                                 cell.latency_ms * (0.8 + 2.2 * random.uniform())});
      }
    }
  }
}

void add_interference(Worked& worked, Random& random) {
  worked.interference = std::make_unique<profile::InterferenceSet>();
  for (auto& [type, profile] : *worked.profiles) {
    add_random_pairs(profile, random);
    if (profile.pairs.empty()) continue;
    worked.interference->emplace(
        type,
        profile::InterferenceModel::create(profile, profile::InterferenceKind::measured).value());
  }
  worked.input.interference = worked.interference.get();
}

std::string model_name(std::uint64_t index) { return "model" + std::to_string(index); }

void add_random_devices(Worked& worked, Random& random, std::uint64_t types, std::uint64_t most) {
  std::uint32_t number = 0;
  const std::uint64_t kinds = 1 + random.below(3);
  for (std::uint64_t kind = 0; kind < kinds; ++kind) {
    Device like;
    like.type = "type" + std::to_string(random.below(types));
    like.partitioning = "simulated";
    like.sizes = random_sizes(random);
    like.max_partitions = 1 + static_cast<std::uint32_t>(random.below(5));
    like.memory_mb = random.below(2) == 0 ? 0 : log_uniform(random, 100, 20000);
    const std::uint64_t count = random.below(most + 1);
    for (std::uint64_t copy = 0; copy < count; ++copy) {
      Device& device = worked.input.cluster.devices.emplace_back(like);
      device.key = {"n" + std::to_string(random.below(3)), number++};
    }
  }
}

// Two and three processes of some models in an instance, at up to twice the latency of one.
void add_shared_latencies(Worked& worked, Random& random) {
  for (auto& [type, profile] : *worked.profiles) {
    for (auto& [name, model] : profile.models) {
      for (std::uint32_t processes = 2; processes <= 3; ++processes) {
        if (random.below(3) == 0) continue;
        std::vector<profile::LatencySample> samples = model.latency.samples();
        const double factor = 1 + random.uniform();
        for (profile::LatencySample& sample : samples) {
          sample.latency_ms *= factor;
          sample.processes = processes;
        }
        model.shared_latency.emplace(processes, profile::LatencyTable::create(samples).value());
      }
    }
  }
}

// Divides one or two of three kinds of devices by MIG; all devices of a kind alike.
void divide_some_by_mig(Worked& worked, std::uint64_t seed) {
  Random random(seed);
  const std::uint64_t chosen = random.below(4);
  if (seed % 3 == 0) add_shared_latencies(worked, random);
  const std::vector<std::string_view> geometries = partition::MigGeometry::names();
  for (Device& device : worked.input.cluster.devices) {
    const std::uint64_t kind = device.max_partitions % 4;
    if (kind != chosen && kind != (chosen + 1) % 4) continue;
    const std::size_t geometry = (seed + device.sizes.size()) % geometries.size();
    divide_by_mig(device, geometries[geometry], 1 + static_cast<std::uint32_t>(seed / 7 % 3));
    if (seed % 5 == 0) device.mig = device.mig->without_3g_beside_4g();
  }
}

}  // namespace

Worked generated(std::uint64_t seed, std::uint32_t size) {
  Random random(seed);
  Worked worked;
  const std::uint64_t models = random.below(size + 1);
  const std::uint64_t types = 1 + random.below(3);
  for (std::uint64_t type = 0; type < types; ++type) {
    const std::string name = "type" + std::to_string(type);
    profile::Profile& measured = (*worked.profiles)[name];
    measured.name = name;
    for (std::uint64_t model = 0; model < models; ++model) {
      if (random.below(10) == 0) continue;  // not measured on this type
      profile::ModelProfile added{random_table(random), {}, {}};
      if (random.below(3) > 0) added.memory_mb = log_uniform(random, 10, 5000);
      measured.models.emplace(model_name(model), std::move(added));
    }
  }
  add_random_devices(worked, random, types, size);
  for (std::uint64_t model = 0; model < models; ++model) {
    ModelDemand& demand = worked.input.demands.emplace_back();
    demand.name = model_name(model);
    demand.rate = random.below(8) == 0 ? 0 : log_uniform(random, 0.01, 20000);
    demand.slo_ms = random.below(20) == 0 ? 0 : log_uniform(random, 1, 500);
    demand.max_batch =
        1 + static_cast<std::uint32_t>(random.below(random.below(4) == 0 ? 1000 : 64));
  }
  worked.input.options.margin = random.below(2) == 0 ? 1 : 1 + 0.2 * random.uniform();
  if (random.below(3) == 0) {
    worked.input.options.max_devices = static_cast<std::uint32_t>(random.below(size + 1));
  }
  if (random.below(2) == 0) worked.input.options.headroom = Headroom::poisson;
  if (random.below(2) == 0) add_interference(worked, random);
  return worked;
}

Worked any_mixed_input() {
  const auto seed = *rc::gen::noShrink(rc::gen::arbitrary<std::uint64_t>());
  const auto size = *rc::gen::inRange<std::uint32_t>(1, 12);
  RC_LOG() << "mixed: generated(" << seed << ", " << size << ")";
  Worked worked = generated(seed, size);
  divide_some_by_mig(worked, seed);
  Random random(seed);
  for (Device& device : worked.input.cluster.devices) {
    if (!device.mig && random.below(2) == 0) device.cores = 1 + device.max_partitions;
  }
  return worked;
}

Worked any_input() {
  const auto seed = *rc::gen::noShrink(rc::gen::arbitrary<std::uint64_t>());
  const auto size = *rc::gen::inRange<std::uint32_t>(1, 16);
  const bool mig = *rc::gen::inRange(0, 4) == 0;
  RC_LOG() << "generated(" << seed << ", " << size << ")" << (mig ? ", some by MIG" : "");
  Worked worked = generated(seed, size);
  if (mig) divide_some_by_mig(worked, seed);
  return worked;
}

}  // namespace gpulet::schedule::testing
