// Which files of this machine a change of models that comes over the network may name. Whoever may
// load models must not be able to have any other file read: what a model's file is, backends get.
// Blocking file I/O; any thread.
#pragma once

#include <filesystem>
#include <set>
#include <vector>

#include "gpulet/config/daemon_config.h"
#include "gpulet/config/model_config.h"
#include "gpulet/core/status.h"

namespace gpulet::frontend {

class ModelPlaces {
 public:
  // `known`: the models of the models file.
  ModelPlaces(const config::FrontendConfig& config, const std::vector<config::ModelConfig>& known);

  // The file with its links followed, where it may be named. With a `model_root`, that is a file
  // below it; without, one that lies beside a file of the models file, and that others than its
  // owner may read. In both cases it is a regular file, none of the frontend's own secrets, and of
  // the format that `model_format` asks for. Fails with invalid or not_found, naming the file and
  // the key that decides.
  [[nodiscard]] Result<std::filesystem::path> admit(const std::filesystem::path& file) const;
  // The same for a text file that goes with a model: it has no format to check.
  [[nodiscard]] Result<std::filesystem::path> admit_text(const std::filesystem::path& file) const;

 private:
  [[nodiscard]] Status check_place(const std::filesystem::path& file) const;
  [[nodiscard]] Result<std::filesystem::path> admit(const std::filesystem::path& file,
                                                    config::ModelFormat format) const;
  [[nodiscard]] Status check_contents(const std::filesystem::path& file,
                                      config::ModelFormat format) const;

  config::FrontendConfig config_;
  std::filesystem::path root_;               // empty: none is configured
  std::set<std::filesystem::path> folders_;  // of the known models
};

}  // namespace gpulet::frontend
