// The values of a model's inputs that its entry has: the range of samples, and what takes the place
// of an input that a request leaves out. Any thread.
#pragma once

#include <vector>

#include "config/reading.h"
#include "gpulet/config/model_config.h"

namespace gpulet::config {

// Reads the keys `range` and `default` of the inputs, whose other keys have been read.
void read_input_values(const std::vector<JsonCursor>& inputs, ModelConfig& model);

}  // namespace gpulet::config
