// ModelFile: the file of a model, mapped into memory for as long as it is loaded. The pages are
// those of the system's page cache: all processes of a node that load the file share them, and its
// disk is read once while they fit. LibTorch copies each weight from there once into memory of its
// own: into tensors on the CPU, and from those to another device. Functions throw what LibTorch
// throws.
#pragma once

#include <c10/core/Device.h>
#include <torch/script.h>

#include <filesystem>
#include <memory>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"

namespace gpulet::executor {

class ModelFile {
 public:
  // Fails with internal if the file cannot be mapped. REQUIRES: nobody truncates it meanwhile.
  [[nodiscard]] static Result<ModelFile> open(const std::filesystem::path& path);

  // Loads the TorchScript in it, with its tensors on the device. May be called several times: the
  // file is mapped once. Throws if it is not TorchScript.
  [[nodiscard]] torch::jit::Module load(const c10::Device& device) const;
  // The time that load() spent on reading from the mapping, in all calls.
  [[nodiscard]] Duration time_read() const;

 private:
  class Reader;
  explicit ModelFile(std::shared_ptr<const Reader> reader) : reader_(std::move(reader)) {}
  std::shared_ptr<const Reader> reader_;
};

}  // namespace gpulet::executor
