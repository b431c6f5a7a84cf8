// OwnFolder: a temporary folder, removed with all that is in it when its owner goes. One thread.
#pragma once

#include <filesystem>
#include <string>
#include <utility>

#include "gpulet/core/status.h"

namespace gpulet::tools {

class OwnFolder {
 public:
  // Below the system's folder for temporary files, by a name that begins so. Fails with
  // unavailable.
  [[nodiscard]] static Result<OwnFolder> make(const std::string& beginning);
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  OwnFolder(OwnFolder&& other) noexcept;
  OwnFolder& operator=(OwnFolder&&) = delete;
  ~OwnFolder();

 private:
  explicit OwnFolder(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

}  // namespace gpulet::tools
