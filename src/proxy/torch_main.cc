// gpulet-proxy: serves one gpulet with TorchScript and ONNX models, or all gpulets of a device with
// TorchScript models.
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "gpulet/executor/formats/format_executor.h"
#include "gpulet/executor/onnx/onnx_executor.h"
#include "gpulet/executor/torch/torch_executor.h"
#include "gpulet/version/version.h"
#include "proxy/device.h"
#include "proxy/formats.h"
#include "proxy/proxy.h"

namespace {

using namespace gpulet;

// A process without LibTorch's executor can serve ONNX models. The first TorchScript model reports
// the failure.
void prepare() {
  try {
    executor::prepare_torch();
  } catch (const std::exception&) {
  }
}

std::unique_ptr<executor::Executor> make_executor() {
  const std::string device = proxy::device();
  return executor::make_format_executor([device] { return executor::make_torch_executor(device); },
                                        [device] { return executor::make_onnx_executor(device); },
                                        device != "cpu");
}

proxy::RunnableFormat torchscript_format(const Result<executor::TorchAbilities>& torch) {
  if (!torch.ok()) return {"TorchScript", torch.status(), torch.status()};
  if (torch.value().cuda) return {"TorchScript", {}, {}};
  return {"TorchScript", {}, {StatusCode::unavailable, "LibTorch was built without CUDA"}};
}

proxy::RunnableFormat package_format(const Result<executor::TorchAbilities>& torch) {
  proxy::RunnableFormat format = torchscript_format(torch);
  format.name = "AOTInductor";
  const Status too_old(StatusCode::unavailable, "LibTorch is older than 2.6");
  if (torch.ok() && !torch.value().packages) format.on_cpu = format.on_gpu = too_old;
  return format;
}

std::vector<proxy::RunnableFormat> formats() {
  const auto torch = executor::torch_abilities();
  return {proxy::onnx_format(), torchscript_format(torch), package_format(torch)};
}

}  // namespace

int main(int argc, char** argv) {
  const std::span<const char* const> arguments(argv, static_cast<std::size_t>(argc));
  if (version::print_if_asked("gpulet-proxy", arguments.subspan(1))) return 0;
  if (proxy::print_formats_if_asked(arguments.subspan(1), formats)) return 0;
  proxy::Program program;
  program.prepare = prepare;
  program.make_executor = make_executor;
  program.make_shared_device = [] { return executor::make_torch_shared_device(proxy::device()); };
  program.find_output_shapes = executor::find_output_shapes;
  return proxy::run(arguments.subspan(1), program);
}
