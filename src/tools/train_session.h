// A training as `gpulet train` shows it: from its beginning or a checkpoint to its last episode or
// Ctrl-C, with its files. Blocking; one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "gpulet/core/status.h"
#include "gpulet/learn/network.h"
#include "gpulet/train/environment.h"
#include "tools/train_options.h"

namespace gpulet::tools {

// What is trained for, and how its policy becomes a file.
struct TrainingTask {
  std::unique_ptr<train::Environment> environment;
  std::string trained_for;  // in words: a checkpoint resumes only the same
  // After so many episodes.
  std::function<Status(const learn::Network&, std::uint64_t episodes, const std::filesystem::path&)>
      write_policy;
};

// The exit code. However it ends, the checkpoint, the curve and the policy as it is then are
// written; what was written, and how the policy does, is told on standard output.
[[nodiscard]] int train_and_tell(const TrainFlags& flags, const TrainingTask& task);

}  // namespace gpulet::tools
