// Label files: what the classes of an output are called, one label a line. Line n, counted from 0,
// names the element at index n of the output. Both kinds of line ends are accepted. Plain values;
// loading is blocking file I/O.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/config/model_config.h"
#include "gpulet/core/status.h"
#include "gpulet/core/tensor.h"

namespace gpulet::config {

inline constexpr std::size_t kMostLabelBytes = 1U << 20U;  // of a file
inline constexpr std::size_t kLongestLabel = 256;          // bytes

// The labels of `output`. Fails (not_found) where the file cannot be read or is no regular file,
// and (invalid) where it is empty or too long, has more lines than the output has elements, or a
// line is too long or has control characters. The message begins with the file's name.
[[nodiscard]] Result<std::vector<std::string>> load_labels(const std::filesystem::path& file,
                                                           const TensorSpec& output);
// The same from memory.
[[nodiscard]] Result<std::vector<std::string>> parse_labels(std::string_view text,
                                                            const std::filesystem::path& file,
                                                            const TensorSpec& output);

// The output of that name. REQUIRES: the model has it.
[[nodiscard]] const TensorSpec& output_named(const ModelConfig& model, std::string_view name);

}  // namespace gpulet::config
