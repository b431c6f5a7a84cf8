// Everything that a frontend reads before it starts: models and their hashes, profiles, the
// policy, tokens and certificates.
#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/config/model_config.h"
#include "gpulet/net/buffer_pool.h"
#include "gpulet/net/gate.h"
#include "gpulet/net/tls.h"
#include "gpulet/schedule/policy.h"
#include "gpulet/serve/frontend_core.h"
#include "gpulet/serve/values/frontend_events.h"

namespace gpulet::store::remote {
class RemoteFiles;
}

namespace gpulet::frontend {

class AuditLog;         // src/frontend/administration.h
class CatalogueLoader;  // src/frontend/catalogue.h
class RemoteVersions;   // src/frontend/remote_versions.h

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

struct PortTls {
  net::TlsContextPointer context;  // null: plain
  net::TlsTexts texts{};           // the same certificate and key, for gRPC
};

struct Security {
  PortTls clients;
  PortTls backends;
  std::shared_ptr<net::Gate> gate = std::make_shared<net::Gate>();  // never null
};

// Both block on file I/O. Errors name the file, the key and the fix.
[[nodiscard]] Result<PortTls> read_port_tls(const config::TlsFiles& files);
[[nodiscard]] Result<Security> read_security(const config::FrontendConfig& config);

// A warning for each operation open to other machines without encryption or token, with its key.
[[nodiscard]] std::vector<std::string> exposures(const config::FrontendConfig& config);

struct Setup {
  config::FrontendConfig config;
  Security security{};
  serve::Catalogue catalogue;
  ModelFiles model_files;
  RemoteModelFiles remote_models;
  std::shared_ptr<store::remote::RemoteFiles> remote_files;  // never null
  std::shared_ptr<RemoteVersions> remote_versions;           // never null
  std::shared_ptr<CatalogueLoader> loader;                   // never null
  std::shared_ptr<AuditLog> audit;                           // never null
  schedule::Headroom headroom = schedule::Headroom::poisson;
  std::shared_ptr<const schedule::Policy> policy;
  std::uint64_t run = 1;  // distinguishes the ids of this run from those of earlier runs; 1 .. 2^23
  std::shared_ptr<net::MemoryReserve> memory{};  // null: none
};

// Blocks on file I/O. Errors name the file, the position in it and the fix.
[[nodiscard]] Result<Setup> make_setup(const config::FrontendConfig& config, std::uint64_t run);

// The options of the daemon's core. A replay builds its core with the same options.
[[nodiscard]] serve::FrontendOptions core_options(const Setup& setup);

}  // namespace gpulet::frontend
