// The version of a model, for frontend and backends alike: what file it has, and how the file is
// read. Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gpulet/core/tensor.h"
#include "gpulet/protocol/messages.h"

namespace gpulet {

// Identifies a version: its file's hash, then a digest of its tensors and numerics.
[[nodiscard]] std::string version_of(const std::string& sha256,
                                     const std::vector<TensorSpec>& inputs,
                                     const std::vector<TensorSpec>& outputs,
                                     const Numerics& numerics);
[[nodiscard]] std::string version_of(const ModelToServe& model);
// The SHA-256 of the version's file.
[[nodiscard]] std::string_view file_of_version(std::string_view version);
// For display: the first 12 digits of the file's hash.
[[nodiscard]] std::string short_version(const std::string& version);

}  // namespace gpulet
