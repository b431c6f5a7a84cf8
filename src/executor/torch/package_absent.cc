// In place of package.cc in a build whose LibTorch cannot run packages.
#include <torch/version.h>

#include "executor/torch/package.h"

namespace gpulet::executor {

bool built_with_packages() { return false; }

Result<std::shared_ptr<TorchPackage>> open_package(const std::filesystem::path& /*file*/,
                                                   const c10::Device& /*device*/) {
  return Status(StatusCode::invalid,
                "is an AOTInductor package, which needs LibTorch 2.6 or later; this one is " +
                    std::string(TORCH_VERSION) +
                    "; build with a later one (gpulet torch-setup), or export TorchScript");
}

}  // namespace gpulet::executor
