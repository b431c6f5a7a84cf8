// Finds what is wrong with a configuration file and with the files that it names: all of it at
// once. Blocking file I/O.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/config/application_config.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/core/status.h"

namespace gpulet::config {

struct CheckedFile {
  std::string kind;  // models, cluster, demand, frontend, backend, workload or control
  // Each names its file, the place in it and what to do.
  std::vector<Status> errors{};
  // What could be read: of a daemon's file, and of a models file or the one that a frontend's file
  // names. Of a frontend's file with errors it has neutral values in their place, such as empty
  // paths.
  std::optional<FrontendConfig> frontend{};
  std::optional<BackendConfig> backend{};
  std::optional<ServingConfig> serving{};
  std::filesystem::path models_file{};  // beside `serving`
};

// Finds out from its keys which of the seven kinds of file it is, reads it and, for a daemon's
// file, those that it names, and looks whether the other files and folders that they name are
// there. A file whose models have only names, rates and SLOs is a demand, though a workload may
// look the same. Fails where the file cannot be read (not_found), or is no JSON or of none of these
// kinds (invalid).
[[nodiscard]] Result<CheckedFile> check_file(const std::filesystem::path& file);

}  // namespace gpulet::config
