// The proxy programs that a measurement starts. Values; any thread.
#pragma once

#include <filesystem>

namespace gpulet::tools {

struct ProxyPrograms {
  std::filesystem::path proxy;
  std::filesystem::path onnx{};  // for ONNX models; empty: `proxy`
  bool native_models = false;    // they may run native code (executor/executor.h)
};

}  // namespace gpulet::tools
