// The files of the models in a catalogue: those on this machine, by content, and those in remote
// stores, by model. Values; any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "gpulet/config/model_config.h"

namespace gpulet::frontend {

// Identifies the content of a file without reading it: a changed file has another stamp.
struct FileStamp {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::int64_t size = 0;
  std::int64_t changed_ns = 0;
  friend auto operator<=>(const FileStamp&, const FileStamp&) = default;
};

struct ModelFile {
  std::filesystem::path path;
  FileStamp stamp{};  // at the time of hashing
};
using ModelFiles = std::map<std::string, ModelFile, std::less<>>;  // by SHA-256

// A model whose file is in a remote store.
struct RemoteModelFile {
  config::RemoteFile file;
  std::string sha256;  // of the version in the catalogue; empty: none has come
};
using RemoteModelFiles = std::map<std::string, RemoteModelFile>;  // by model

}  // namespace gpulet::frontend
