// What a file is that is no model here: a message for those who gave it in place of one. Pure; any
// thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace gpulet::config {

// The most bytes that tell a kind.
inline constexpr std::size_t kHeadBytes = 512;

// What completes "it is ...", with the fix, for a file with these first bytes. Empty: the kind is
// unknown, or the file may be an ONNX model or a zip archive.
[[nodiscard]] std::optional<std::string> kind_of_other_file(std::string_view head);

}  // namespace gpulet::config
