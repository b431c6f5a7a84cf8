// LibTorch is in a shared library that is opened when it is first used: what is public is made over
// there.
#include <stdexcept>

#include "gpulet/executor/boundary/boundary.h"
#include "gpulet/executor/torch/torch_executor.h"
#include "gpulet/executor/torch/torch_shared_device.h"

namespace gpulet::executor {
namespace {

// Found by the program's run path.
constexpr const char* kLibrary = "libgpulet-torch.so";

// Throws std::runtime_error.
const boundary::Boundary& library() {
  static const Result<const boundary::Boundary*> opened =
      boundary::open_boundary(kLibrary, "gpulet_torch_boundary");
  if (opened.ok()) return *opened.value();
  throw std::runtime_error(
      "cannot load the LibTorch executor: " + opened.status().message() +
      "; run `gpulet torch-setup`, which builds it for this machine's PyTorch");
}

}  // namespace

void prepare_torch() { boundary::prepare(library()); }

TorchExecutor::TorchExecutor(const std::string& device)
    : lane_(boundary::make_executor(library(), device)) {}

Result<std::unique_ptr<SharedDevice>> make_torch_shared_device(const std::string& device) {
  return boundary::make_shared_device(library(), device);
}

}  // namespace gpulet::executor
