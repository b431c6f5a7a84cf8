#include "tests/verify/made_up_world.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/base/random.h"
#include "gpulet/profile/interference.h"

namespace gpulet::schedule::testing {
namespace {

constexpr std::array<int, 6> kSizes{20, 40, 50, 60, 80, 100};
constexpr std::array<std::uint32_t, 6> kBatches{1, 2, 4, 8, 16, 32};

// Uniform between two numbers.
double between(Random& random, double low, double high) {
  return low + (high - low) * random.uniform();
}
std::uint32_t number_between(Random& random, std::uint32_t low, std::uint32_t high) {
  return low + static_cast<std::uint32_t>(random.below(high - low + 1));
}

struct Model {
  double fixed_ms = 0;
  double item_ms = 0;
  double floor = 1;       // the part of fixed_ms that no share shortens
  double cv = 0;          // of a batch
  double hunger = 0;      // how much it slows its neighbours down
  double tenderness = 0;  // and they it
};

double latency_ms(const Model& model, double speed, std::uint32_t batch, int percent) {
  const double share = percent / 100.0;
  return (model.fixed_ms * (model.floor + (1 - model.floor) / share) +
          model.item_ms * batch / share) /
         speed;
}

profile::ModelProfile profile_of(const Model& model, double speed,
                                 const std::vector<Share>& sizes) {
  std::vector<profile::LatencySample> samples;
  for (const Share size : sizes) {
    for (const std::uint32_t batch : kBatches) {
      profile::LatencySample& sample = samples.emplace_back();
      sample.batch = batch;
      sample.share = size;
      sample.latency_ms = latency_ms(model, speed, batch, size.percent);
      if (model.cv > 0) sample.cv = model.cv;
    }
  }
  profile::ModelProfile measured{profile::LatencyTable::create(samples).value(), {}, {}};
  for (const profile::LatencySample& sample : samples) {
    const double busy = std::min(1.0, model.hunger * (0.3 + 0.1 * std::log2(sample.batch)));
    measured.utilization.push_back({sample.batch, sample.share, busy, busy / 2});
  }
  return measured;
}

// Beside a hungry neighbour a tender model is slower, and each pair is an individual.
std::vector<profile::PairSample> pairs_of(const std::vector<Model>& models, double speed,
                                          Random& random) {
  std::vector<profile::PairSample> pairs;
  for (std::size_t self = 0; self < models.size(); ++self) {
    for (std::size_t other = 0; other < models.size(); ++other) {
      for (const auto& [size, other_size] :
           {std::pair(40, 60), std::pair(60, 40), std::pair(50, 50), std::pair(20, 80),
            std::pair(80, 20)}) {
        for (const std::uint32_t batch : {1U, 8U, 32U}) {
          const double slowdown =
              1 + models[self].tenderness * models[other].hunger * between(random, 0.7, 1.3);
          pairs.push_back({"m" + std::to_string(self), batch, Share{size},
                           "m" + std::to_string(other), 8, Share{other_size},
                           latency_ms(models[self], speed, batch, size) * slowdown});
        }
      }
    }
  }
  return pairs;
}

Device device_of(const std::string& type, bool mig) {
  Device device;
  device.type = type;
  device.partitioning = "simulated";
  for (const int size : kSizes) device.sizes.push_back({size});
  if (!mig) return device;
  device.mig = partition::MigGeometry::of("a100-80").value();
  device.max_partitions = device.mig->compute_slices();
  device.sizes.clear();
  for (const partition::MigProfile& profile : device.mig->profiles())
    device.sizes.push_back(device.mig->share_of(profile.slices));
  return device;
}

}  // namespace

double most_violations_by_chance(std::uint64_t requests) {
  constexpr double kPromised = 0.01;
  constexpr double kDeviations = 3.09;  // one-sided, 99.9 %
  const auto number = static_cast<double>(requests);
  return kPromised + kDeviations * std::sqrt(kPromised * (1 - kPromised) / number) + 0.5 / number;
}

MadeUpWorld made_up_world(std::uint64_t number, const WorldShape& shape) {
  Random random(stream_seed(number, "made-up world"));
  Random divided(stream_seed(number, "MIG"));  // of its own: the flag changes nothing else
  MadeUpWorld world;
  world.profiles = std::make_shared<profile::ProfileSet>();
  world.known = std::make_shared<profile::ProfileSet>();
  const bool varies = shape.varies && random.uniform() < 0.4;
  const bool neighbours = shape.neighbours && random.uniform() < 0.4;
  std::vector<Model> models(number_between(random, 2, shape.most_models));
  for (Model& model : models) {
    model.fixed_ms = std::pow(10, between(random, -0.2, 1.1));
    model.item_ms = model.fixed_ms * std::pow(10, between(random, -1.5, -0.2));
    model.floor = between(random, 0.3, 1);
    model.cv = varies ? between(random, 0.01, 0.3) : 0;
    model.hunger = between(random, 0, 1);
    model.tenderness = between(random, 0, 0.5);
  }
  const std::uint32_t types = random.uniform() < 0.3 ? 2 : 1;
  double speed = 1;
  std::uint32_t devices = 0;
  for (std::uint32_t type = 0; type < types; ++type) {
    profile::Profile profile;
    profile.name = "w" + std::to_string(type);
    const bool mig = shape.mig && divided.uniform() < 0.5;
    Device device = device_of(profile.name, mig);
    for (std::size_t at = 0; at < models.size(); ++at) {
      profile.models.emplace("m" + std::to_string(at), profile_of(models[at], speed, device.sizes));
    }
    if (neighbours && !mig) profile.pairs = pairs_of(models, speed, random);
    profile::Profile known = profile;
    std::erase_if(known.pairs, [&random](const auto&) { return random.uniform() > 1.0 / 3; });
    for (profile::Profile* one : {&profile, &known}) {
      if (neighbours && !mig) one->interference = profile::fit_interference(*one, {}).value();
    }
    const std::uint32_t count = number_between(random, 2, shape.most_devices);
    for (std::uint32_t at = 0; at < count; ++at) {
      device.key = {"node-" + profile.name, at};
      world.cluster.devices.push_back(device);
    }
    devices += count;
    world.profiles->emplace(profile.name, std::move(profile));
    world.known->emplace(known.name, std::move(known));
    speed = between(random, 1.2, 3);
  }
  constexpr std::array kLoads{0.2, 0.8, 2.0};
  for (std::size_t at = 0; at < models.size(); ++at) {
    ModelDemand& demand = world.demands.emplace_back();
    demand.name = "m" + std::to_string(at);
    const std::uint32_t batch = std::array{4U, 16U, 32U}.at(random.below(3));
    demand.slo_ms = latency_ms(models[at], 1, batch, 100) * between(random, 1.6, 5);
    const double most =
        8000 / latency_ms(models[at], 1, 8, 100) * devices / static_cast<double>(models.size());
    demand.rate = std::clamp(random.uniform() * kLoads.at(random.below(3)) * most, 1.0, 5000.0);
  }
  return world;
}

}  // namespace gpulet::schedule::testing
