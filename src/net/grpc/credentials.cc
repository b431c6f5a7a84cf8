#include "credentials.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

#include <string>
#include <utility>

namespace gpulet::net::grpc_api {
namespace {

// What gRPC's C++ interface lacks: its C interface asks for the certificate at each new connection.
class ReloadedCredentials final : public ::grpc::ServerCredentials {
 public:
  explicit ReloadedCredentials(std::shared_ptr<const ServerCertificate> certificate)
      : certificate_(std::move(certificate)),
        credentials_(grpc_ssl_server_credentials_create_with_options(
            grpc_ssl_server_credentials_create_options_using_config_fetcher(
                GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE, &ReloadedCredentials::fetch, this))) {}
  ~ReloadedCredentials() override { grpc_server_credentials_release(credentials_); }
  ReloadedCredentials(const ReloadedCredentials&) = delete;
  ReloadedCredentials& operator=(const ReloadedCredentials&) = delete;

  void SetAuthMetadataProcessor(
      const std::shared_ptr<::grpc::AuthMetadataProcessor>& /*processor*/) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  static grpc_ssl_certificate_config_reload_status fetch(
      void* self, grpc_ssl_server_certificate_config** config) {
    return static_cast<ReloadedCredentials*>(self)->fetch(config);
  }

  grpc_ssl_certificate_config_reload_status fetch(grpc_ssl_server_certificate_config** config) {
    const ServerCertificate::Version version = certificate_->current();
    const std::lock_guard lock(mutex_);
    if (version.number == fetched_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    const grpc_ssl_pem_key_cert_pair pair{version.texts.key.c_str(),
                                          version.texts.certificate.c_str()};
    // The library aborts without roots of client certificates, although none is asked for.
    *config = grpc_ssl_server_certificate_config_create(pair.cert_chain, &pair, 1);
    if (*config == nullptr) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_FAIL;
    fetched_ = version.number;
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const std::shared_ptr<const ServerCertificate> certificate_;
  std::mutex mutex_;
  std::uint64_t fetched_ = 0;
  grpc_server_credentials* const credentials_;
};

}  // namespace

void ServerCertificate::replace(TlsTexts texts) {
  const std::lock_guard lock(mutex_);
  texts_ = std::move(texts);
  ++number_;
}

ServerCertificate::Version ServerCertificate::current() const {
  const std::lock_guard lock(mutex_);
  return {texts_, number_};
}

std::shared_ptr<::grpc::ServerCredentials> credentials_of(
    std::shared_ptr<const ServerCertificate> certificate) {
  return std::make_shared<ReloadedCredentials>(std::move(certificate));
}

}  // namespace gpulet::net::grpc_api
