#include "research/learn/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

namespace gpulet::learn {

namespace {

// Calls pick(logits, allowed) for each head in turn.
template <typename Pick>
Choices choose(std::span<const float> observation, std::span<const float> logits,
               const ChoiceRules& rules, const Pick& pick) {
  const std::span<const std::uint32_t> sizes = rules.head_sizes();
  Choices choices;
  choices.chosen.reserve(sizes.size());
  choices.allowed.resize(logits.size());
  std::size_t from = 0;
  for (std::size_t head = 0; head < sizes.size(); ++head) {
    const std::span<std::uint8_t> allowed =
        std::span<std::uint8_t>(choices.allowed).subspan(from, sizes[head]);
    rules.allow(observation, head, choices.chosen, allowed);
    if (std::find(allowed.begin(), allowed.end(), 1) == allowed.end())
      throw std::logic_error(fmt::format("the rules leave head {} without a choice", head));
    choices.chosen.push_back(
        static_cast<std::uint32_t>(pick(logits.subspan(from, sizes[head]), allowed)));
    from += sizes[head];
  }
  return choices;
}

std::size_t best(std::span<const float> logits, std::span<const std::uint8_t> allowed) {
  auto found =
      static_cast<std::size_t>(std::find(allowed.begin(), allowed.end(), 1) - allowed.begin());
  for (std::size_t at = found + 1; at < logits.size(); ++at) {
    if (allowed[at] == 1 && logits[at] > logits[found]) found = at;
  }
  return found;
}

}  // namespace

Choices choose_best(std::span<const float> observation, std::span<const float> logits,
                    const ChoiceRules& rules) {
  return choose(observation, logits, rules, best);
}

Choices choose_at_random(std::span<const float> observation, std::span<const float> logits,
                         const ChoiceRules& rules, Random& random) {
  std::vector<double> weights;
  return choose(observation, logits, rules,
                [&](std::span<const float> of_head, std::span<const std::uint8_t> allowed) {
                  const double largest = of_head[best(of_head, allowed)];
                  weights.assign(of_head.size(), 0);
                  double sum = 0;
                  std::size_t last = 0;  // chosen if rounding exceeds the sum
                  for (std::size_t at = 0; at < of_head.size(); ++at) {
                    if (allowed[at] == 0) continue;
                    weights[at] = std::exp(static_cast<double>(of_head[at]) - largest);
                    sum += weights[at];
                    last = at;
                  }
                  double rest = random.uniform() * sum;
                  for (std::size_t at = 0; at < last; ++at) {
                    if (rest < weights[at]) return at;
                    rest -= weights[at];
                  }
                  return last;
                });
}

namespace {

bool all_finite(const std::vector<float>& numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [](float x) { return std::isfinite(x); });
}

Status check_layer(const Layer& layer) {
  const auto bad = [](const std::string& what) { return Status(StatusCode::invalid, what); };
  for (const auto& [width, name] :
       {std::pair(layer.inputs, "inputs"), std::pair(layer.outputs, "outputs")}) {
    if (width == 0 || width > Network::kMostWidth) {
      return bad(fmt::format("{} must be 1 to {}; there are {}", name,
                             std::size_t{Network::kMostWidth}, width));
    }
  }
  if (layer.weights.size() != layer.inputs * layer.outputs) {
    return bad(fmt::format("{} weights where {} x {} are needed", layer.weights.size(),
                           layer.outputs, layer.inputs));
  }
  if (layer.biases.size() != layer.outputs)
    return bad(fmt::format("{} biases for {} outputs", layer.biases.size(), layer.outputs));
  if (!all_finite(layer.weights) || !all_finite(layer.biases))
    return bad("a weight or bias is not finite: train the policy again");
  return {};
}

// out += factor * column.
void add_scaled(float factor, const float* __restrict column, float* __restrict out,
                std::size_t count) {
  for (std::size_t at = 0; at < count; ++at) out[at] += factor * column[at];
}

}  // namespace

Result<Network> Network::create(std::vector<Layer> layers) {
  if (layers.empty() || layers.size() > kMostLayers) {
    return Status(StatusCode::invalid, fmt::format("a network has 1 to {} layers; there are {}",
                                                   std::size_t{kMostLayers}, layers.size()));
  }
  for (std::size_t at = 0; at < layers.size(); ++at) {
    if (Status status = check_layer(layers[at]); !status.ok())
      return status.within(fmt::format("layer {}", at + 1));
    if (at > 0 && layers[at].inputs != layers[at - 1].outputs) {
      return Status(StatusCode::invalid,
                    fmt::format("layer {}: takes {} inputs, but the previous layer has outputs: {}",
                                at + 1, layers[at].inputs, layers[at - 1].outputs));
    }
  }
  return Network(std::move(layers));
}

Result<Network> Network::create(std::span<const std::uint32_t> widths,
                                std::span<const float> parameters) {
  std::size_t needed = 0;
  for (std::size_t at = 0; at + 1 < widths.size(); ++at)
    needed += (std::size_t{widths[at]} + 1) * widths[at + 1];
  if (parameters.size() != needed) {
    return Status(StatusCode::invalid,
                  fmt::format("{} numbers where its layers have {}", parameters.size(), needed));
  }
  const auto take = [&](std::size_t count) {
    const std::span<const float> taken = parameters.first(count);
    parameters = parameters.subspan(count);
    return std::vector<float>(taken.begin(), taken.end());
  };
  std::vector<Layer> layers;
  for (std::size_t at = 0; at + 1 < widths.size(); ++at) {
    Layer& layer = layers.emplace_back();
    layer.inputs = widths[at];
    layer.outputs = widths[at + 1];
    layer.weights = take(layer.inputs * layer.outputs);
    layer.biases = take(layer.outputs);
  }
  return create(std::move(layers));
}

std::vector<std::uint32_t> Network::widths() const {
  std::vector<std::uint32_t> widths{static_cast<std::uint32_t>(inputs())};
  for (const Layer& layer : layers_) widths.push_back(static_cast<std::uint32_t>(layer.outputs));
  return widths;
}

std::vector<float> Network::parameters() const {
  std::vector<float> all;
  for (const Layer& layer : layers_) {
    all.insert(all.end(), layer.weights.begin(), layer.weights.end());
    all.insert(all.end(), layer.biases.begin(), layer.biases.end());
  }
  return all;
}

Network::Network(std::vector<Layer> layers) : layers_(std::move(layers)) {
  columns_.reserve(layers_.size());
  for (const Layer& layer : layers_) {
    std::vector<float>& columns = columns_.emplace_back(layer.weights.size());
    for (std::size_t out = 0; out < layer.outputs; ++out) {
      for (std::size_t in = 0; in < layer.inputs; ++in)
        columns[in * layer.outputs + out] = layer.weights[out * layer.inputs + in];
    }
  }
}

void Network::forward(std::span<const float> in, std::span<float> out, Scratch& scratch) const {
  std::span<const float> given = in;
  for (std::size_t at = 0; at < layers_.size(); ++at) {
    const Layer& layer = layers_[at];
    scratch.to.assign(layer.biases.begin(), layer.biases.end());
    for (std::size_t input = 0; input < layer.inputs; ++input) {
      // ReLU makes about half of the inputs zero.
      if (given[input] == 0) continue;
      add_scaled(given[input], columns_[at].data() + input * layer.outputs, scratch.to.data(),
                 layer.outputs);
    }
    if (at + 1 == layers_.size()) break;
    for (float& value : scratch.to) value = std::max(value, 0.0F);
    std::swap(scratch.from, scratch.to);
    given = scratch.from;
  }
  std::copy(scratch.to.begin(), scratch.to.end(), out.begin());
}

}  // namespace gpulet::learn
