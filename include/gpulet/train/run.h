// A training from where it stands to its last episode, with a file to go on from. Blocking file
// I/O; one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "gpulet/core/status.h"
#include "gpulet/train/training.h"

namespace gpulet::train {

struct RunOptions {
  std::uint64_t episodes = 1500;  // of the whole training, those before a resume among them
  // Written after every so many episodes, and when the run ends.
  std::filesystem::path checkpoint;
  std::uint64_t checkpoint_every = 50;
  // Asked after each episode; with false the run ends there, and nothing is lost.
  std::function<bool(const EpisodeFigures&)> go_on = [](const EpisodeFigures&) { return true; };
};

// Fails (internal) where a checkpoint cannot be written; the training stands where it was then.
[[nodiscard]] Status run(Training& training, const RunOptions& options);

}  // namespace gpulet::train
