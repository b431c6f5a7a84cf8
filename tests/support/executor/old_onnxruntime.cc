// A library like ONNX Runtime 1.16, which lacks the version of the interface that is asked for.
#include "executor/onnx/onnx_abi.h"

extern "C" [[gnu::visibility("default")]] const gpulet::executor::onnx_abi::Base* OrtGetApiBase() {
  static const gpulet::executor::onnx_abi::Base base{
      [](std::uint32_t) -> const gpulet::executor::onnx_abi::Function* { return nullptr; },
      [] { return "1.16.3"; }};
  return &base;
}
