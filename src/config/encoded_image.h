// Inputs of a model that are encoded images: the keys of such an input, and what it becomes. Errors
// are recorded at the cursors. Private to config. Any thread.
#pragma once

#include "config/reading.h"
#include "gpulet/config/model_config.h"
#include "gpulet/core/tensor.h"

namespace gpulet::config {

// The most bytes of an encoded image, with 4 for its length, where the entry does not say.
inline constexpr std::size_t kDefaultEncodedBytes = 256U << 10U;

// The keys that read_encoded_images() reads.
void add_encoded_keys(ObjectReader& input);

// Whether the entry of an input asks for encoded images.
[[nodiscard]] bool is_encoded(const JsonCursor& input);
// "max_bytes" of such an input.
void read_encoded_bytes(const JsonCursor& cursor, TensorSpec& input);

// Turns inputs that are declared as tensors of decoded images into what clients send: BYTES [1].
// REQUIRES: their other keys and their formats have been read.
void read_encoded_images(const JsonCursor& inputs, ModelConfig& model);

}  // namespace gpulet::config
