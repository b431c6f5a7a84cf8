// Configuration files as wholes: checks one together with the files that it names, and tells what
// each kind of file may hold. check_file() does blocking file I/O. All others are pure; any thread.
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

// Checks a configuration file together with the files that it names. Recognises the kind of the
// file by its keys, reads it, reads the models file that a frontend file names, and checks that all
// other files and folders exist. A file whose models have only names, rates and SLOs counts as a
// demand, although a workload may look the same. Fails where the file cannot be read (not_found),
// is not JSON, or is of no known kind (invalid).
[[nodiscard]] Result<CheckedFile> check_file(const std::filesystem::path& file);

// A warning for each model or application whose largest request (max_batch rows over HTTP or gRPC,
// in binary) exceeds `max_payload_bytes` where that is configured, or else `max_buffered_mb`.
[[nodiscard]] std::vector<std::string> full_batches_too_long(const FrontendConfig& config,
                                                             const ServingConfig& serving);

// ---- reference
//
// The keys of each kind of file with their values, defaults and purpose, told by their readers.
// docs/configuration.md is as_markdown() of all of them.

struct KeyReference {
  // A JSON pointer, in which "*" stands for each element of a list and "NAME" for each name.
  std::string pointer;
  std::string value;      // what it accepts, in words: "a whole number from 0 to 64"
  bool required = false;  // in its object
  std::string otherwise;  // the value without the key, as JSON; empty: `help` says what it is
  std::string help;       // sentences
};

struct FileReference {
  std::string name;     // "frontend.json"
  std::string purpose;  // sentences
  // The keys of an object are together, and precede those of the objects in it.
  std::vector<KeyReference> keys;
};

// Frontend, backend, models, cluster, demand and workload files, in this order.
[[nodiscard]] std::vector<FileReference> file_references();

// A page: for each file a heading and a table for each of its objects.
[[nodiscard]] std::string as_markdown(const std::vector<FileReference>& files);

}  // namespace gpulet::config
