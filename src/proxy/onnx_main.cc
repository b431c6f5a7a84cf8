// gpulet-proxy-onnx: serves one gpulet with ONNX models. It needs no LibTorch.
#include <span>
#include <vector>

#include "gpulet/executor/onnx/onnx_executor.h"
#include "gpulet/version/version.h"
#include "proxy/device.h"
#include "proxy/formats.h"
#include "proxy/proxy.h"

int main(int argc, char** argv) {
  const std::span<const char* const> arguments(argv, static_cast<std::size_t>(argc));
  if (gpulet::version::print_if_asked("gpulet-proxy-onnx", arguments.subspan(1))) return 0;
  const auto formats = [] { return std::vector{gpulet::proxy::onnx_format()}; };
  if (gpulet::proxy::print_formats_if_asked(arguments.subspan(1), formats)) return 0;
  gpulet::proxy::Program program;
  program.prepare = gpulet::executor::prepare_onnx;
  program.make_executor = [] {
    return gpulet::executor::make_onnx_executor(gpulet::proxy::device());
  };
  program.find_output_shapes = gpulet::executor::find_output_shapes;
  return gpulet::proxy::run(arguments.subspan(1), program);
}
