// What this program is, for --version and reports of problems: its version, the commit that it was
// built from, and the libraries that it was built with or would load. Any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace gpulet::version {

// "0.1.0"
[[nodiscard]] std::string number();

// "1a2b3c4d5e6f", with "-dirty" where the sources had changes that were not committed; "none" for
// sources outside of git.
[[nodiscard]] std::string commit();

// Several lines; the first one is "PROGRAM VERSION". Opens ONNX Runtime to ask for its version, and
// no LibTorch.
[[nodiscard]] std::string text(std::string_view program);

// Prints the text on standard output if --version is among the arguments, and returns whether it
// did. For programs that do not parse their arguments with CLI11 alone.
[[nodiscard]] bool print_if_asked(std::string_view program, std::span<const char* const> arguments);

}  // namespace gpulet::version
