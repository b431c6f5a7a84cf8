// What a proxy program tells of itself with --formats: the formats of model files that it runs, and
// on which devices. `gpulet serve` and `gpulet devices` read it. One line for each format and
// device, "FORMAT DEVICE yes" or "FORMAT DEVICE no: REASON"; a device is "cpu" or "cuda". Any
// thread.
#pragma once

#include <functional>
#include <ostream>
#include <span>
#include <string_view>
#include <vector>

#include "gpulet/base/status.h"

namespace gpulet::proxy {

struct RunnableFormat {
  std::string_view name;  // without blanks: "ONNX", "TorchScript", "AOTInductor"
  Status on_cpu;          // why it does not run there
  Status on_gpu;
};

// What ONNX Runtime runs, as far as the library tells it without a GPU.
[[nodiscard]] RunnableFormat onnx_format();

void print_formats(std::span<const RunnableFormat> formats, std::ostream& out);

// Finds and prints the formats on standard output if --formats is among the arguments, and returns
// whether it did.
[[nodiscard]] bool print_formats_if_asked(
    std::span<const char* const> arguments,
    const std::function<std::vector<RunnableFormat>()>& find_formats);

}  // namespace gpulet::proxy
