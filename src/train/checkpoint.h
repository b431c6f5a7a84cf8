// A training between two episodes as one block of bytes, and back: a line that says what it is, the
// SHA-256 of the rest, the options in words, the episodes, the learner. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/core/status.h"
#include "gpulet/train/learner.h"
#include "gpulet/train/training.h"

namespace gpulet::train {

struct Checkpoint {
  std::string made_with;  // seed and learner's options, in words
  std::string trained_for;
  std::vector<EpisodeFigures> curve;
  std::uint64_t best_episode = 0;  // 0: no policy played yet
  double best_reward = 0;
  std::vector<float> best_weights;  // of its network, layer by layer
  LearnerState learner;
};

// Of these options, to the last digit.
[[nodiscard]] std::string in_words(const TrainingOptions& options);

[[nodiscard]] std::string write_checkpoint(const Checkpoint& checkpoint);

// Fails (malformed) where they are not what write_checkpoint wrote, saying what is wrong.
[[nodiscard]] Result<Checkpoint> read_checkpoint(std::string_view bytes);

}  // namespace gpulet::train
