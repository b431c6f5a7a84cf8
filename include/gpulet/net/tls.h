// TlsContext: one side's certificate, key and authority, read once and shared by its connections
// (TLS 1.2 or later, OpenSSL).
//
// Reading fails with not_found (no such file, or not readable), invalid (not PEM, a key that is not
// the certificate's, an expired certificate, a key that everybody may read), naming the file and
// the mend. Immutable once made; any thread. Blocking file I/O.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gpulet/config/security_config.h"
#include "gpulet/core/status.h"

namespace gpulet::net {

class TlsContext;
using TlsContextPointer = std::shared_ptr<const TlsContext>;

class TlsContext {
 public:
  // Accepts connections with `certificate` and `key`. With an `authority`, peers must show a
  // certificate that it signed.
  [[nodiscard]] static Result<TlsContextPointer> server(const config::TlsFiles& files);
  // Connects: the peer must show a certificate that `authority` signed and that is for the host
  // connected to. With a `certificate` and its `key`, shows that where asked.
  [[nodiscard]] static Result<TlsContextPointer> client(const config::TlsFiles& files);

  // Whether this side's certificate is for `name` (a host, a node).
  [[nodiscard]] bool certifies(const std::string& name) const;
  // The names that it is for.
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

// The files' texts, after the same checks, for a library that has its own TLS. Empty files stay
// empty texts.
struct TlsTexts {
  std::string certificate;
  std::string key;
  std::string authority{};

  friend bool operator==(const TlsTexts&, const TlsTexts&) = default;
};
[[nodiscard]] Result<TlsTexts> read_tls_texts(const config::TlsFiles& files);

}  // namespace gpulet::net
