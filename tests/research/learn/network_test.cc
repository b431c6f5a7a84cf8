#include "research/learn/network.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "gpulet/base/random.h"

namespace gpulet::learn {
namespace {

// Every head must choose another number than earlier heads.
class AllDifferent final : public ChoiceRules {
 public:
  explicit AllDifferent(std::vector<std::uint32_t> sizes) : sizes_(std::move(sizes)) {}

  [[nodiscard]] std::span<const std::uint32_t> head_sizes() const override { return sizes_; }
  void allow(std::span<const float> /*observation*/, std::size_t head,
             std::span<const std::uint32_t> chosen_before,
             std::span<std::uint8_t> allowed) const override {
    for (std::uint32_t at = 0; at < sizes_[head]; ++at) {
      allowed[at] =
          std::find(chosen_before.begin(), chosen_before.end(), at) == chosen_before.end() ? 1 : 0;
    }
  }

 private:
  std::vector<std::uint32_t> sizes_;
};

TEST(Choices, BestIsTheLargestAllowedLogit) {
  const AllDifferent rules({2, 3, 3});
  const Choices choices =
      choose_best({}, std::vector<float>{0, 2, /**/ 1, 9, 0.5, /**/ 7, 8, -3}, rules);
  EXPECT_EQ(choices.chosen, (std::vector<std::uint32_t>{1, 0, 2}));
  EXPECT_EQ(choices.allowed, (std::vector<std::uint8_t>{1, 1, /**/ 1, 0, 1, /**/ 0, 0, 1}));
}

TEST(Choices, BestIsTheFirstOfEquals) {
  EXPECT_EQ(choose_best({}, std::vector<float>{3, 3, /**/ 1, 1, 1}, AllDifferent({2, 3})).chosen,
            (std::vector<std::uint32_t>{0, 1}));
}

TEST(Choices, ThrowIfTheRulesAllowNothing) {
  Random random(1);
  const std::vector<float> logits(2);
  EXPECT_THROW((void)choose_best({}, logits, AllDifferent({1, 1})), std::logic_error);
  EXPECT_THROW((void)choose_at_random({}, logits, AllDifferent({1, 1}), random), std::logic_error);
}

TEST(Choices, AreSampledByTheirSoftmax) {
  // After 0, the second head has 1 and 2 left: e^1 and e^2 of their sum.
  const AllDifferent rules({1, 3});
  const std::vector<float> logits{0, /**/ 100, 1, 2};
  Random random(1);
  constexpr int kDraws = 20'000;
  std::array<int, 3> drawn{};
  for (int draw = 0; draw < kDraws; ++draw)
    ++drawn.at(choose_at_random({}, logits, rules, random).chosen[1]);
  EXPECT_EQ(drawn[0], 0);
  EXPECT_NEAR(drawn[2] / double{kDraws}, 0.7311, 0.01);
}

RC_GTEST_PROP(Choices, KeepToTheRules, (std::uint64_t seed)) {
  Random random(seed);
  const AllDifferent rules({3, 3, 4});
  std::vector<float> logits(10);
  for (float& logit : logits) logit = static_cast<float>(200 * random.uniform() - 100);
  for (const Choices& choices :
       {choose_best({}, logits, rules), choose_at_random({}, logits, rules, random)}) {
    std::size_t from = 0;
    for (std::size_t head = 0; head < 3; ++head) {
      std::vector<std::uint8_t> allowed(rules.head_sizes()[head]);
      rules.allow({}, head, std::span(choices.chosen).first(head), allowed);
      RC_ASSERT(allowed[choices.chosen[head]] == 1);
      for (std::size_t at = 0; at < allowed.size(); ++at)
        RC_ASSERT(allowed[at] == choices.allowed[from + at]);
      from += allowed.size();
    }
  }
}

Layer random_layer(std::size_t inputs, std::size_t outputs, Random& random) {
  Layer layer{inputs, outputs, std::vector<float>(inputs * outputs), std::vector<float>(outputs)};
  for (float& weight : layer.weights) weight = static_cast<float>(random.uniform() - 0.5);
  for (float& bias : layer.biases) bias = static_cast<float>(random.uniform() - 0.5);
  return layer;
}

// The definition, in double precision.
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

TEST(Network, MultipliesAndRectifies) {
  // Hidden: x - y and y - x, one of them rectified; output: their difference + 1.
  const auto network =
      Network::create({{2, 2, {1, -1, -1, 1}, {0, 0}}, {2, 1, {1, -1}, {1}}}).value();
  Network::Scratch scratch;
  std::vector<float> out(1);
  network.forward(std::vector<float>{5, 2}, out, scratch);
  EXPECT_EQ(out[0], 4);
  network.forward(std::vector<float>{2, 5}, out, scratch);
  EXPECT_EQ(out[0], -2);
}

RC_GTEST_PROP(Network, MatchesItsDefinition, (std::uint64_t seed)) {
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

TEST(Network, RejectsLayersThatDoNotFit) {
  const Layer good{2, 1, {1, 1}, {0}};
  const auto code = [](std::vector<Layer> layers) {
    return Network::create(std::move(layers)).status().code();
  };
  EXPECT_EQ(code({good}), StatusCode::ok);
  EXPECT_EQ(code({}), StatusCode::invalid);
  EXPECT_EQ(code({good, good}), StatusCode::invalid);
  EXPECT_EQ(code({{2, 1, {1}, {0}}}), StatusCode::invalid);
  EXPECT_EQ(code({{2, 1, {1, 1}, {}}}), StatusCode::invalid);
  EXPECT_EQ(code({{0, 1, {}, {0}}}), StatusCode::invalid);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(code({{2, 1, {1, nan}, {0}}}), StatusCode::invalid);
}

}  // namespace
}  // namespace gpulet::learn
