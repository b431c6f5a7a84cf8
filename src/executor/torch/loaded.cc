// The public functions of a program that opens the shared library around LibTorch at first use.
#include <stdexcept>

#include "gpulet/executor/boundary/boundary.h"
#include "gpulet/executor/torch/torch_executor.h"

namespace gpulet::executor {
namespace {

// Found by the run path of the program.
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

Result<TorchAbilities> torch_abilities() {
  try {
    const boundary::Abilities& abilities = library().abilities;
    return TorchAbilities{.cuda = abilities.cuda, .packages = abilities.packages};
  } catch (const std::runtime_error& error) {
    return Status(StatusCode::unavailable, error.what());
  }
}

void prepare_torch() { boundary::prepare(library()); }

std::unique_ptr<Executor> make_torch_executor(const std::string& device) {
  return boundary::make_executor(library(), device);
}

Result<std::unique_ptr<SharedDevice>> make_torch_shared_device(const std::string& device) {
  return boundary::make_shared_device(library(), device);
}

}  // namespace gpulet::executor
