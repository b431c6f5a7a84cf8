// Serialises the state of a training between two episodes: a format line, the SHA-256 of the rest,
// the options as text, the episodes and the learner. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/train/learner.h"
#include "gpulet/train/training.h"

namespace gpulet::train {

struct Checkpoint {
  std::string made_with;  // in_words() of the options
  std::string trained_for;
  std::vector<EpisodeFigures> curve;
  std::uint64_t best_episode = 0;  // 0: no policy evaluated yet
  double best_reward = 0;
  std::vector<float> best_weights;  // layer by layer
  LearnerState learner;
};

// The options as text, without rounding: equal options have equal text.
[[nodiscard]] std::string in_words(const TrainingOptions& options);

[[nodiscard]] std::string write_checkpoint(const Checkpoint& checkpoint);

// Fails (malformed) if write_checkpoint did not write the bytes.
[[nodiscard]] Result<Checkpoint> read_checkpoint(std::string_view bytes);

}  // namespace gpulet::train
