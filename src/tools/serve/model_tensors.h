// From the tensors of a model file, whose first dimension is the batch if they have one, to those
// of a model that is served. Pure but for what LearnShapes does; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/config/model_config.h"
#include "gpulet/config/onnx_signature.h"
#include "tools/serve/open_shapes.h"

namespace gpulet::tools {

struct FileTensors {
  std::vector<config::OnnxTensor> inputs;
  std::vector<config::OnnxTensor> outputs;
  NamedSizes sizes{};  // of dimensions whose sizes are known from elsewhere
};

// Runs the model's file on a sample of these inputs, which are whole, and returns the whole shapes
// of the outputs of these names. Fails with the reason.
using LearnShapes = std::function<Result<std::vector<std::vector<std::int64_t>>>(
    const config::ModelConfig& model, const std::vector<TensorSpec>& inputs,
    const std::vector<std::string>& outputs)>;

// What the command line says about tensors.
struct TensorOptions {
  const std::vector<std::int64_t>& buckets;
  OpenShapes& shapes;
  SampleRanges& ranges;
  const LearnShapes& learn;  // empty: the model is not run
};

// Sets the tensors of `model`, and its buckets where a dimension stays open. The tensors are whole
// where its largest batch is 0, where one of them can have no batch dimension, and where a run
// shows that an output has none. Its largest batch becomes 1 then, and where that of a tensor is
// fixed at
// 1. Fails with invalid, naming the tensor and the fix.
[[nodiscard]] Status set_tensors(FileTensors tensors, const TensorOptions& options,
                                 config::ModelConfig& model);

// Gives the open dimension of the inputs its buckets. Fails with invalid.
[[nodiscard]] Status set_buckets(const std::vector<std::int64_t>& buckets,
                                 config::ModelConfig& model);

// Notes for each input that can only be an image how its dimensions are ordered, where that is not
// known yet.
void choose_formats(config::ModelConfig& model);

// Fails with invalid where a default is not the tensor of one request, or cannot be written into a
// models file.
[[nodiscard]] Status check_defaults(const config::ModelConfig& model);

// Fails with invalid where a name cannot be written into a models file, or occurs twice.
[[nodiscard]] Status check_tensor_names(const config::ModelConfig& model);

// The number of the type in an ONNX file. REQUIRES: a type that such a file can have.
[[nodiscard]] std::int32_t element_type_of(DataType type);

}  // namespace gpulet::tools
