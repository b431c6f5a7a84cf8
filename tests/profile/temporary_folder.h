// A fresh folder that goes with its scope.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>  // mkdtemp

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace gpulet::profile {

class TemporaryFolder {
 public:
  TemporaryFolder() : path_(testing::TempDir() + "gpulet-profile-XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr)
      throw std::runtime_error("no temporary folder at " + path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  [[nodiscard]] std::filesystem::path path() const { return path_; }
  std::filesystem::path write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((path() / name).parent_path());
    std::ofstream(path() / name) << text;
    return path() / name;
  }

 private:
  std::string path_;
};

}  // namespace gpulet::profile
