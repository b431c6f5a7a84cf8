#include "gpulet/learn/choices.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>

namespace gpulet::learn {
namespace {

// Asks pick(logits, allowed) for the choice of one head after another.
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
      throw std::logic_error("the rules leave head " + std::to_string(head) + " without a choice");
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

std::size_t count_possibilities(const ChoiceRules& rules) {
  const std::span<const std::uint32_t> sizes = rules.head_sizes();
  return std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
}

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
                  std::size_t last = 0;  // with any weight: where rounding leads beyond the sum
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

}  // namespace gpulet::learn
