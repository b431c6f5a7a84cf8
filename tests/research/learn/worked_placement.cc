#include "tests/research/learn/worked_placement.h"

#include <utility>
#include <vector>

#include "gpulet/base/random.h"

namespace gpulet::learn::testing {
namespace {

Layer drawn_layer(std::size_t inputs, std::size_t outputs, Random& random) {
  Layer layer;
  layer.inputs = inputs;
  layer.outputs = outputs;
  for (std::size_t i = 0; i < inputs * outputs; ++i)
    layer.weights.push_back(static_cast<float>(2 * random.uniform() - 1));
  for (std::size_t i = 0; i < outputs; ++i)
    layer.biases.push_back(static_cast<float>(2 * random.uniform() - 1));
  return layer;
}

}  // namespace

schedule::testing::Worked worked_placement() {
  schedule::testing::Worked worked;
  add_profile(worked, "fast",
              {{"small", 1, 0.2, 32, 500}, {"middle", 2, 1, 32, 2000}, {"large", 5, 2, 32, 6000}});
  add_profile(worked, "slow", {{"small", 2, 0.4, 32, 500}, {"middle", 4, 2, 32, 2000}});
  add_devices(worked, "n0", "fast", 2);
  add_devices(worked, "n1", "slow", 1);
  for (schedule::Device& device : worked.input.cluster.devices) device.memory_mb = 8000;
  worked.input.demands = {{"small", 400, 40, 32}, {"middle", 100, 100, 32}, {"large", 20, 200, 32}};
  return worked;
}

LearnedPolicy drawn_policy(const schedule::PlanInput& input, std::uint64_t seed) {
  PlacementTask task = task_of(input).value();
  Random random(seed);
  std::vector<Layer> layers;
  layers.push_back(drawn_layer(task.observation_size(), 8, random));
  layers.push_back(drawn_layer(8, task.models.size() * task.places(), random));
  return {std::move(task),
          Network::create(std::move(layers)).value(),
          {{"episodes", "0"}, {"seed", std::to_string(seed)}}};
}

}  // namespace gpulet::learn::testing
