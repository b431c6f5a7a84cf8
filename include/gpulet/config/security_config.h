// The files that secure a port: keys of frontend.json and backend.json (daemon_config.h). Values.
#pragma once

#include <filesystem>

namespace gpulet::config {

// PEM files. Empty: not given.
struct TlsFiles {
  std::filesystem::path certificate;  // the chain, this side's own first
  std::filesystem::path key;          // of its own certificate
  std::filesystem::path authority;    // who signs the other side's certificates

  friend bool operator==(const TlsFiles&, const TlsFiles&) = default;
};

// One token a line. Empty: these calls need none.
struct TokenFiles {
  std::filesystem::path admin;      // models and shared memory come and go, traces
  std::filesystem::path inference;  // an admin token is good for it as well

  friend bool operator==(const TokenFiles&, const TokenFiles&) = default;
};

}  // namespace gpulet::config
