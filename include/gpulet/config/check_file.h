// Checks a configuration file together with the files that it names. Blocking file I/O, except
// full_batches_too_long(), which is pure.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/config/model_config.h"

namespace gpulet::config {

struct CheckedFile {
  std::string kind;              // models, cluster, demand, frontend, backend, workload or control
  std::vector<Status> errors{};  // all errors; each names its file, the place and the fix
  // The contents, as far as they could be read. `serving` is the models file itself or the one that
  // a frontend file names. A frontend file with errors has neutral values, such as empty paths, in
  // the place of those it could not give.
  std::optional<FrontendConfig> frontend{};
  std::optional<BackendConfig> backend{};
  std::optional<ServingConfig> serving{};
  std::filesystem::path models_file{};  // the file that `serving` comes from
};

// Recognises the kind of the file by its keys, reads it, reads the models file that a frontend file
// names, and checks that all other files and folders exist. A file whose models have only names,
// rates and SLOs counts as a demand, although a workload may look the same. Fails where the file
// cannot be read (not_found), is not JSON, or is of no known kind (invalid).
[[nodiscard]] Result<CheckedFile> check_file(const std::filesystem::path& file);

// A warning for each model or application whose largest request (max_batch rows over HTTP or gRPC,
// in binary) exceeds `max_payload_bytes` where that is configured, or else `max_buffered_mb`.
[[nodiscard]] std::vector<std::string> full_batches_too_long(const FrontendConfig& config,
                                                             const ServingConfig& serving);

}  // namespace gpulet::config
