// Folders in the layout of Triton's model repositories: NAME/config.pbtxt and NAME/VERSION/FILE.
// The highest version is taken. Blocking file I/O; any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/config/model_config.h"
#include "gpulet/core/tensor.h"

namespace gpulet::tools {

struct RepositoryEntry {
  std::string name;
  std::filesystem::path file;              // absolute
  std::optional<std::uint32_t> max_batch;  // empty: there is no config.pbtxt
  // Without the batch dimension, as config.pbtxt lists them; empty: it does not.
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  // The names of all tensors in config.pbtxt. The model's file must have them.
  std::vector<std::string> listed_inputs;
  std::vector<std::string> listed_outputs;
  std::map<std::string, std::filesystem::path> labels;  // by output
  std::map<std::string, config::ImageFormat> formats;   // by input, where config.pbtxt has one
};

// The models of the repository, or the model, if the folder is one: by name. Fails with invalid or
// not_found, naming the model, the key of config.pbtxt and the fix.
[[nodiscard]] Result<std::vector<RepositoryEntry>> read_repository(
    const std::filesystem::path& folder);

}  // namespace gpulet::tools
