// The entry point of the shared library around LibTorch (executor/boundary/boundary.h). It is the
// only symbol that the library exports. Any thread.
#include "executor/torch/cuda_parts.h"
#include "executor/torch/package.h"
#include "executor/torch/process.h"
#include "gpulet/executor/boundary/boundary.h"

extern "C" [[gnu::visibility("default")]] const gpulet::executor::boundary::Boundary*
gpulet_torch_boundary();

namespace {

using namespace gpulet::executor;

const boundary::Makers kMakers{
    .abilities = {.cuda = built_with_cuda(), .packages = built_with_packages()},
    .prepare = prepare_process,
    .make_executor = [](const std::string& device) { return make_gpulet_executor(device); },
    .make_shared_device = make_shared_device};

}  // namespace

const boundary::Boundary* gpulet_torch_boundary() {
  static const boundary::Boundary boundary = boundary::boundary_to(kMakers);
  return &boundary;
}
