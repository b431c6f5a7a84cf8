// From the tensors of a model file, whose first dimension is the batch, to those of a model that is
// served. Pure; any thread.
#pragma once

#include <cstdint>
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

// Sets the tensors of `model`, and its buckets where a dimension stays open. Its largest batch
// becomes 1 where that of a tensor is fixed at 1. Fails with invalid, naming the tensor and the
// fix.
[[nodiscard]] Status set_tensors(FileTensors tensors, const std::vector<std::int64_t>& buckets,
                                 OpenShapes& shapes, config::ModelConfig& model);

// Gives the open dimension of the inputs its buckets. Fails with invalid.
[[nodiscard]] Status set_buckets(const std::vector<std::int64_t>& buckets,
                                 config::ModelConfig& model);

// Notes for each input that can only be an image how its dimensions are ordered, where that is not
// known yet.
void choose_formats(config::ModelConfig& model);

// Fails with invalid where a name cannot be written into a models file, or occurs twice.
[[nodiscard]] Status check_tensor_names(const config::ModelConfig& model);

// The number of the type in an ONNX file. REQUIRES: a type that such a file can have.
[[nodiscard]] std::int32_t element_type_of(DataType type);

}  // namespace gpulet::tools
