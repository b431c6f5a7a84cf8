// The proxy programs that a measurement starts. Values; any thread.
#pragma once

#include <filesystem>

namespace gpulet::tools {

struct ProxyPrograms {
  std::filesystem::path proxy;
  std::filesystem::path onnx{};  // for ONNX models; empty: `proxy`
};

}  // namespace gpulet::tools
