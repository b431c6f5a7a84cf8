// What a policy is trained in: it shows an observation, takes an action, and answers with what came
// of it and the next observation.
//
// An episode ends because its time is over, not because the world ends: what comes after its last
// step is worth as much as after any other, and the learner counts it so (train/learner.h).
// One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gpulet/learn/choices.h"

namespace gpulet::train {

struct Step {
  std::vector<float> observation;  // after the action; finite, about -1 .. 1 where possible
  double reward = 0;               // finite
  double violation = 0;            // fraction of the requests that were not served within their SLO
  double throughput = 0;           // requests/s that were
  bool last = false;               // of its episode
};

class Environment {
 public:
  Environment() = default;
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  virtual ~Environment() = default;

  // Which actions there are. Lives as long as the environment.
  [[nodiscard]] virtual const learn::ChoiceRules& rules() const = 0;
  [[nodiscard]] virtual std::size_t observation_size() const = 0;

  // Begins an episode and shows its first observation. The seed is all that tells one episode from
  // another: nothing of the episodes before is left.
  [[nodiscard]] virtual std::vector<float> reset(std::uint64_t seed) = 0;

  // REQUIRES: reset() was called and its episode is not over; choices that rules() allow.
  [[nodiscard]] virtual Step step(std::span<const std::uint32_t> choices) = 0;
};

}  // namespace gpulet::train
