// ServingFolder: the temporary folder of one `gpulet serve`, with its configuration and the copies
// of the models. It is removed with the object. Folders whose program was killed are removed by the
// next start of the same user. One thread.
#pragma once

#include <filesystem>

#include "gpulet/base/files.h"
#include "gpulet/base/status.h"

namespace gpulet::tools {

class ServingFolder {
 public:
  // In the folder for temporary files. Removes abandoned ones first. Fails with unavailable.
  [[nodiscard]] static Result<ServingFolder> make();
  ServingFolder(ServingFolder&& other) noexcept;
  ServingFolder& operator=(ServingFolder&&) = delete;
  ServingFolder(const ServingFolder&) = delete;
  ServingFolder& operator=(const ServingFolder&) = delete;
  ~ServingFolder();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  ServingFolder(std::filesystem::path path, FileDescriptor lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}

  std::filesystem::path path_;
  FileDescriptor lock_;  // held while the program lives
};

}  // namespace gpulet::tools
