// The files that secure a port: keys of frontend.json and backend.json (daemon_config.h). Values.
#pragma once

#include <cstdint>
#include <filesystem>

namespace gpulet::config {

// PEM files. Empty: not given.
struct TlsFiles {
  std::filesystem::path certificate;  // the chain, this side's own first
  std::filesystem::path key;          // of its own certificate
  std::filesystem::path authority;    // who signs the other side's certificates

  friend bool operator==(const TlsFiles&, const TlsFiles&) = default;
};

// Files of tokens (net/tokens.h has their format). Empty: these calls need none.
struct TokenFiles {
  std::filesystem::path admin;      // models and shared memory come and go, traces
  std::filesystem::path inference;  // an admin token is good for it as well
  std::filesystem::path observe{};  // status, statistics, metrics, dashboard; so is an admin token

  friend bool operator==(const TokenFiles&, const TokenFiles&) = default;
};

// What one client may ask for. Zero: no limit.
struct ClientLimits {
  double requests_per_s = 0;       // rows of inferences
  double device_ms_per_s = 0;      // of a whole device's time, as planned for these requests
  std::uint32_t max_requests = 0;  // under way at once

  [[nodiscard]] bool any() const {
    return requests_per_s > 0 || device_ms_per_s > 0 || max_requests > 0;
  }
  friend bool operator==(const ClientLimits&, const ClientLimits&) = default;
};

}  // namespace gpulet::config
