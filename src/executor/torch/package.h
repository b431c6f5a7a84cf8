// TorchPackage: a network that AOTInductor has compiled, which LibTorch 2.6 or later runs. It is
// native code: loading it runs what is in the file. A build with an older LibTorch compiles
// package_absent.cc in place of package.cc.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <filesystem>
#include <memory>
#include <vector>

#include "gpulet/base/status.h"

namespace gpulet::executor {

[[nodiscard]] bool built_with_packages();

class TorchPackage {
 public:
  virtual ~TorchPackage() = default;

  // On the current stream of the device. Throws what LibTorch throws. The code does not check the
  // inputs unless it was compiled so: they must have the types and sizes of the export. Any thread;
  // one call at a time proceeds.
  [[nodiscard]] virtual std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) = 0;
};

// On the CPU it makes no file: the process may have given up that right (confine/confine.h). On a
// GPU, LibTorch unpacks the package into a folder of its own below /tmp, and removes it with the
// object. Fails with invalid where the file cannot be loaded, for example because it was compiled
// for another kind of device.
[[nodiscard]] Result<std::shared_ptr<TorchPackage>> open_package(const std::filesystem::path& file,
                                                                 const c10::Device& device);

}  // namespace gpulet::executor
