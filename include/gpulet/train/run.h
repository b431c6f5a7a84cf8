// A training from where it stands to its last episode, with a file to go on from. Blocking file
// I/O; one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

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

// The file is the old one or all of the new one, never a part: it is written beside its place and
// renamed. Fails (internal), naming it.
[[nodiscard]] Status write_file(const std::filesystem::path& file, std::string_view content);
// Fails (not_found), naming it.
[[nodiscard]] Result<std::string> read_file(const std::filesystem::path& file);

}  // namespace gpulet::train
