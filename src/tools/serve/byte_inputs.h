// The option --uint8: inputs of model files for which clients send bytes (docs/model-files.md,
// "Images of bytes"). Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/config/model_config.h"

namespace gpulet::tools {

// Makes each input that a text names what clients send for it. The text is INPUT or MODEL/INPUT,
// then optionally ":NCHW" or ":NHWC", the order of clients, and then ":imagenet" or ":MEAN:STD",
// lists with one number or one for each channel. Fails with invalid, naming the text and its form,
// where it says something else, no model has the input, or the input cannot be converted.
[[nodiscard]] Status set_byte_inputs(const std::vector<std::string>& texts,
                                     std::vector<config::ModelConfig>& models);

}  // namespace gpulet::tools
