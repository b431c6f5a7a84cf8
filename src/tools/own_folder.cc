#include "tools/own_folder.h"

#include <stdlib.h>  // mkdtemp

#include <system_error>

namespace gpulet::tools {

Result<OwnFolder> OwnFolder::make(const std::string& beginning) {
  std::error_code error;
  std::string path =
      (std::filesystem::temp_directory_path(error) / (beginning + "XXXXXX")).string();
  if (error || ::mkdtemp(path.data()) == nullptr) {
    return Status(StatusCode::unavailable, "cannot make a folder " + path +
                                               " for temporary files; point TMPDIR to one that may "
                                               "be written");
  }
  return OwnFolder(path);
}

OwnFolder::OwnFolder(OwnFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}

OwnFolder::~OwnFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace gpulet::tools
