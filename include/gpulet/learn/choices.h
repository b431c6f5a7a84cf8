// An action that is several choices, made one after another: each of a head's possibilities, of
// which those chosen before may have ruled out some (a model that is on no device has no share).
//
// A network gives one number (logit) for each possibility of each head; the logits of the heads lie
// one after the other, and so do their masks. A choice's probability is the softmax over what is
// still allowed at its head, and that of the action is the product:
//   π(a | s) = Π_i π_i(a_i | s, a_1 .. a_i-1)
// Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gpulet/core/random.h"

namespace gpulet::learn {

class ChoiceRules {
 public:
  ChoiceRules() = default;
  ChoiceRules(const ChoiceRules&) = default;
  ChoiceRules& operator=(const ChoiceRules&) = default;
  virtual ~ChoiceRules() = default;

  // How many possibilities each head has, in the order in which they are chosen. At least one head,
  // and at least one possibility each; the same at every call.
  [[nodiscard]] virtual std::span<const std::uint32_t> head_sizes() const = 0;

  // Writes for each possibility of that head whether it may be chosen (1) or not (0) where that is
  // observed, after those choices of the heads before it. At least one may. A function of its
  // arguments alone. REQUIRES: chosen_before.size() == head, allowed.size() == head_sizes()[head].
  virtual void allow(std::span<const float> observation, std::size_t head,
                     std::span<const std::uint32_t> chosen_before,
                     std::span<std::uint8_t> allowed) const = 0;
};

// One action, and what was allowed at each of its heads when it was chosen.
struct Choices {
  std::vector<std::uint32_t> chosen;  // by head
  std::vector<std::uint8_t> allowed;  // beside the logits: 1 where it might have been chosen

  friend bool operator==(const Choices&, const Choices&) = default;
};

// Possibilities of all heads: how many logits there are.
[[nodiscard]] std::size_t count_possibilities(const ChoiceRules& rules);

// At each head the largest logit that is allowed; the first of equal ones.
// REQUIRES: logits.size() == count_possibilities(rules). Throws std::logic_error where the rules
// leave a head without any.
[[nodiscard]] Choices choose_best(std::span<const float> observation, std::span<const float> logits,
                                  const ChoiceRules& rules);

// Each head's choice drawn with its probability. The same requirements.
[[nodiscard]] Choices choose_at_random(std::span<const float> observation,
                                       std::span<const float> logits, const ChoiceRules& rules,
                                       Random& random);

}  // namespace gpulet::learn
