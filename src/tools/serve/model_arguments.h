// The models that `gpulet serve` was asked to serve: the arguments of the command line, completed
// by what the files say about themselves. Blocking file I/O; any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/config/model_config.h"
#include "gpulet/core/tensor.h"

namespace gpulet::tools {

struct ModelArguments {
  // Model files, models files (.json), or folders in the layout of Triton's model repositories; not
  // empty.
  std::vector<std::filesystem::path> files;
  std::string name;  // of the only file; empty: the file's stem
  // "TENSOR:TYPE:DIMS", such as "image:FP32:3,224,224": for a file that does not describe its
  // tensors. A dimension of -1 has the lengths of `buckets`.
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  // "TENSOR:DIMS": for dimensions, without that of the batch, that a file leaves open.
  std::vector<std::string> shapes;
  // Lengths of the dimensions that files leave open and `shapes` does not name: shorter requests
  // are padded with zeros. Empty: there are no such dimensions.
  std::vector<std::int64_t> buckets{};
  std::uint32_t max_batch = 32;
};

// "image:FP32:3,224,224", without the batch dimension. Fails with invalid.
[[nodiscard]] Result<TensorSpec> parse_tensor(const std::string& text);

// "50ms", "0.05s" or "50": milliseconds. Fails with invalid.
[[nodiscard]] Result<double> parse_milliseconds(const std::string& text);

// The models, with paths that are absolute and objectives of zero, which the caller chooses. A file
// whose batch dimension is 1 gets batches of one request. Fails with invalid or not_found, naming
// the file or the option and the fix.
[[nodiscard]] Result<std::vector<config::ModelConfig>> describe_models(
    const ModelArguments& arguments);

}  // namespace gpulet::tools
