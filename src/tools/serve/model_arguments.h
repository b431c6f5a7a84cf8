// The models that `gpulet serve` was asked to serve: the arguments of the command line, completed
// by what the files say about themselves. Blocking file I/O; any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/config/model_config.h"
#include "gpulet/core/tensor.h"
#include "tools/serve/model_repository.h"
#include "tools/serve/model_tensors.h"

namespace gpulet::tools {

struct ModelArguments {
  // Model files, models files (.json), or folders in the layout of Triton's model repositories; not
  // empty.
  std::vector<std::filesystem::path> files;
  std::string name;  // of the only model; empty: that of its file or its folder
  // "TENSOR:TYPE:DIMS", such as "image:FP32:3,224,224": for a file that does not describe its
  // tensors. A dimension of -1 has the lengths of `buckets`.
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  // For dimensions, without that of the batch, that a file leaves open (open_shapes.h).
  std::vector<std::string> shapes;
  // "INPUT:LEAST,MOST" or "MODEL/INPUT:LEAST,MOST": the values with which models are measured.
  std::vector<std::string> ranges{};
  // Inputs for which clients send bytes (byte_inputs.h).
  std::vector<std::string> byte_inputs{};
  // Lengths of the dimensions that files leave open and `shapes` does not name: shorter requests
  // are padded with zeros. Empty: there are no such dimensions.
  std::vector<std::int64_t> buckets{};
  // Inputs with a value in the file that requests may give.
  std::vector<std::string> optional_inputs{};
  std::uint32_t max_batch = 32;  // 0: the model has no batch dimension
};

// "image:FP32:3,224,224", without the batch dimension. Fails with invalid.
[[nodiscard]] Result<TensorSpec> parse_tensor(const std::string& text);

// "50ms", "0.05s" or "50": milliseconds. Fails with invalid.
[[nodiscard]] Result<double> parse_milliseconds(const std::string& text);

// Keys of a model's config.pbtxt that only tune how Triton runs it.
struct UnusedKeys {
  std::string model;
  std::vector<std::string> keys;
};

struct DescribedModels {
  // With paths that are absolute and objectives of zero, which the caller chooses.
  std::vector<config::ModelConfig> models{};
  // The applications of models files, each as its JSON text.
  std::vector<std::string> applications{};
  // Models of repositories: the others are served without them where they cannot be.
  std::set<std::string> may_be_left_out{};
  std::vector<LeftOut> left_out{};
  std::vector<UnusedKeys> unused{};
};

// A file whose batch dimension is 1 gets batches of one request. Fails with invalid or not_found,
// naming the file or the option and the fix, and where no model is left.
// `learn`: finds out the shapes of outputs that files leave open; empty: they have to be given.
[[nodiscard]] Result<DescribedModels> describe_models(const ModelArguments& arguments,
                                                      const LearnShapes& learn = {});

// What is not served of the arguments, and what is not used, a line each; empty: nothing.
[[nodiscard]] std::string limits_text(const DescribedModels& described);

}  // namespace gpulet::tools
