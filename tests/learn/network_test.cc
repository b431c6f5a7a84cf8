#include "gpulet/learn/network.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "gpulet/core/random.h"

namespace gpulet::learn {
namespace {

Layer random_layer(std::size_t inputs, std::size_t outputs, Random& random) {
  Layer layer{inputs, outputs, std::vector<float>(inputs * outputs), std::vector<float>(outputs)};
  for (float& weight : layer.weights) weight = static_cast<float>(random.uniform() - 0.5);
  for (float& bias : layer.biases) bias = static_cast<float>(random.uniform() - 0.5);
  return layer;
}

// As it is defined, in double precision.
std::vector<double> by_definition(const Network& network, const std::vector<float>& in) {
  std::vector<double> values(in.begin(), in.end());
  for (std::size_t at = 0; at < network.layers().size(); ++at) {
    const Layer& layer = network.layers()[at];
    std::vector<double> next(layer.biases.begin(), layer.biases.end());
    for (std::size_t out = 0; out < layer.outputs; ++out) {
      for (std::size_t input = 0; input < layer.inputs; ++input)
        next[out] += static_cast<double>(layer.weights[out * layer.inputs + input]) * values[input];
      if (at + 1 < network.layers().size()) next[out] = std::max(next[out], 0.0);
    }
    values = next;
  }
  return values;
}

TEST(Network, AddsAndCutsAsWritten) {
  // Two hidden numbers, x - y and y - x, of which one is cut; the output is their difference + 1.
  const auto network =
      Network::create({{2, 2, {1, -1, -1, 1}, {0, 0}}, {2, 1, {1, -1}, {1}}}).value();
  Network::Scratch scratch;
  std::vector<float> out(1);
  network.forward(std::vector<float>{5, 2}, out, scratch);
  EXPECT_EQ(out[0], 4);
  network.forward(std::vector<float>{2, 5}, out, scratch);
  EXPECT_EQ(out[0], -2);
}

RC_GTEST_PROP(Network, IsWhatItsDefinitionSays, (std::uint64_t seed)) {
  Random random(seed);
  std::vector<Layer> layers;
  std::size_t width = 1 + random.below(20);
  const std::size_t count = 1 + random.below(4);
  for (std::size_t at = 0; at < count; ++at) {
    const std::size_t next = 1 + random.below(40);
    layers.push_back(random_layer(width, next, random));
    width = next;
  }
  const auto network = Network::create(std::move(layers)).value();
  std::vector<float> in(network.inputs());
  for (float& value : in) value = static_cast<float>(4 * random.uniform() - 2);
  std::vector<float> out(network.outputs());
  Network::Scratch scratch;
  network.forward(in, out, scratch);
  const std::vector<double> expected = by_definition(network, in);
  for (std::size_t at = 0; at < out.size(); ++at)
    RC_ASSERT(std::abs(out[at] - expected[at]) < 1e-4 * (1 + std::abs(expected[at])));
}

TEST(Network, RefusesWhatDoesNotFit) {
  const Layer good{2, 1, {1, 1}, {0}};
  const auto message = [](std::vector<Layer> layers) {
    const auto made = Network::create(std::move(layers));
    return made.ok() ? std::string() : made.status().message();
  };
  EXPECT_EQ(message({good}), "");
  EXPECT_EQ(message({}), "a network has 1 to 16 layers; there are 0");
  EXPECT_EQ(message({good, good}), "layer 2: takes 2 inputs where the layer before gives 1");
  EXPECT_EQ(message({{2, 1, {1}, {0}}}), "layer 1: 1 weights where 1 x 2 are needed");
  EXPECT_EQ(message({{2, 1, {1, 1}, {}}}), "layer 1: 0 biases for 1 outputs");
  EXPECT_EQ(message({{0, 1, {}, {0}}}), "layer 1: inputs must be 1 to 65536; there are 0");
  const float nothing = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(message({{2, 1, {1, nothing}, {0}}}),
            "layer 1: a weight or bias is not finite; train it again");
}

}  // namespace
}  // namespace gpulet::learn
