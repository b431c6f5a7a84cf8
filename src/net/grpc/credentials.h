// The server's side of TLS for gRPC, whose certificate may be replaced while it serves: connections
// that begin from then on are shown the new one. Any thread.
#pragma once

#include <grpcpp/security/server_credentials.h>

#include <cstdint>
#include <memory>
#include <mutex>

#include "gpulet/net/tls.h"

namespace gpulet::net::grpc_api {

class ServerCertificate {
 public:
  // REQUIRES: the certificate and the key belong together (TlsContext::server found them good).
  explicit ServerCertificate(TlsTexts texts) : texts_(std::move(texts)) {}
  void replace(TlsTexts texts);

  struct Version {
    TlsTexts texts;
    std::uint64_t number = 0;
  };
  [[nodiscard]] Version current() const;

 private:
  mutable std::mutex mutex_;
  TlsTexts texts_;
  std::uint64_t number_ = 1;
};

// Connections ask the certificate for what is new.
[[nodiscard]] std::shared_ptr<::grpc::ServerCredentials> credentials_of(
    std::shared_ptr<const ServerCertificate> certificate);

}  // namespace gpulet::net::grpc_api
