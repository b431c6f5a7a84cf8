// TlsContext, and the small files that it and others read.
//
// TlsContext: the certificate, key and authority of one side, read once and shared by its
// connections (TLS 1.2 or later, OpenSSL). Immutable; any thread.
//
// Reading blocks on file I/O. It fails with not_found (missing or unreadable file) or invalid (not
// PEM, a key of another certificate, an expired certificate, a key readable by others); the message
// names the file and the fix.
#pragma once

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/config/daemon_config.h"

namespace gpulet::net {

class TlsContext;
using TlsContextPointer = std::shared_ptr<const TlsContext>;

// The contents of the files of one side. A missing file name gives an empty text.
struct TlsTexts {
  std::string certificate;
  std::string key;
  std::string authority{};

  friend bool operator==(const TlsTexts&, const TlsTexts&) = default;
};
// Fails after the same checks as TlsContext.
[[nodiscard]] Result<TlsTexts> read_tls_texts(const config::TlsFiles& files);

class TlsContext {
 public:
  // For accepting connections. With an `authority`, peers must present a certificate signed by it.
  [[nodiscard]] static Result<TlsContextPointer> server(const config::TlsFiles& files);
  // For accepting HTTP/2 connections without certificates of their own.
  [[nodiscard]] static Result<TlsContextPointer> http2_server(const TlsTexts& texts);
  // For connecting. The peer's certificate must be signed by `authority` and issued for the host
  // connected to. `certificate` and `key`, where given, are presented on request.
  [[nodiscard]] static Result<TlsContextPointer> client(const config::TlsFiles& files);

  // True if this side's certificate is issued for `name` (a host or a node).
  [[nodiscard]] bool certifies(const std::string& name) const;
  // The names of this side's certificate.
  [[nodiscard]] std::vector<std::string> certified_names() const;

  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  class Impl;
  [[nodiscard]] const Impl& impl() const { return *impl_; }

 private:
  explicit TlsContext(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

// ---- secret file
//
// Reads small text files: certificates, keys, tokens. Blocks on file I/O.

inline constexpr std::size_t kLargestFileBytes = 1U << 20U;
inline constexpr mode_t kForeign = S_IWGRP | S_IROTH | S_IWOTH;

// Fails with not_found (missing or unreadable) or invalid (larger than 1 MiB).
[[nodiscard]] inline Result<std::string> read_text(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::string text(kLargestFileBytes + 1, '\0');
  if (stream) stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (stream.bad() || !stream.is_open() || (stream.fail() && !stream.eof())) {
    const std::string why = std::strerror(errno);
    return Status(StatusCode::not_found, file.string() + ": cannot be read (" + why +
                                             "); check the path and its permissions");
  }
  text.resize(static_cast<std::size_t>(stream.gcount()));
  if (text.size() > kLargestFileBytes)
    return Status(StatusCode::invalid, file.string() + ": larger than 1 MiB");
  return text;
}

// The same for a file with a secret. Fails (invalid) also if users other than its owner and group
// can read it, or its group can write it.
[[nodiscard]] inline Result<std::string> read_secret(const std::filesystem::path& file) {
  struct stat found {};
  if (::stat(file.c_str(), &found) == 0 && (found.st_mode & kForeign) != 0) {
    return Status(StatusCode::invalid, file.string() +
                                           ": other users can read or change it; run chmod 600 " +
                                           file.string() + " (or 640 with a dedicated group)");
  }
  return read_text(file);
}

}  // namespace gpulet::net
