// ScratchFolder: a temporary folder that is removed with its contents. One thread.
#pragma once

#include <stdlib.h>  // mkdtemp

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>

#include "gpulet/base/status.h"

namespace gpulet::tools {

class ScratchFolder {
 public:
  // Creates a temporary folder whose name begins with `prefix`. Fails with unavailable.
  [[nodiscard]] static Result<ScratchFolder> make(const std::string& prefix) {
    std::error_code error;
    std::string path = (std::filesystem::temp_directory_path(error) / (prefix + "XXXXXX")).string();
    if (error || ::mkdtemp(path.data()) == nullptr) {
      return Status(StatusCode::unavailable, "cannot create the temporary folder " + path +
                                                 "; set TMPDIR to a writable folder");
    }
    return ScratchFolder(path);
  }

  ScratchFolder(ScratchFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  ScratchFolder& operator=(ScratchFolder&&) = delete;
  ~ScratchFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  explicit ScratchFolder(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

// The content of a file; empty if it cannot be read.
[[nodiscard]] inline std::string content_of(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}

}  // namespace gpulet::tools
