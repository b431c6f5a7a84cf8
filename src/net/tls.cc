#include "gpulet/net/tls.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <cstdint>
#include <new>
#include <string_view>
#include <utility>

#include "net/tls_channel.h"

namespace gpulet::net {
namespace {

using std::filesystem::path;

template <typename T, void (*Free)(T*)>
struct Freed {
  void operator()(T* held) const { Free(held); }
};
using Certificate = std::unique_ptr<X509, Freed<X509, X509_free>>;
using PrivateKey = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY, EVP_PKEY_free>>;
using Memory = std::unique_ptr<BIO, Freed<BIO, BIO_free_all>>;

// ---- socket I/O for OpenSSL

int socket_of(BIO* transport) {
  return static_cast<int>(reinterpret_cast<std::intptr_t>(BIO_get_data(transport)));
}

// Turns a system call's result into the flags by which OpenSSL tells eof, wait and error apart.
int take_result(BIO* transport, ssize_t result, std::size_t* bytes, int wait_flag) {
  BIO_clear_retry_flags(transport);
  if (result > 0) {
    *bytes = static_cast<std::size_t>(result);
    return 1;
  }
  *bytes = 0;
  if (result == 0) BIO_set_flags(transport, BIO_FLAGS_IN_EOF);
  if (result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
    BIO_set_flags(transport, wait_flag | BIO_FLAGS_SHOULD_RETRY);
  return 0;
}

int send_bytes(BIO* transport, const char* data, std::size_t size, std::size_t* bytes) {
  const ssize_t sent = ::send(socket_of(transport), data, size, MSG_NOSIGNAL);
  return take_result(transport, sent, bytes, BIO_FLAGS_WRITE);
}

int receive_bytes(BIO* transport, char* data, std::size_t size, std::size_t* bytes) {
  const ssize_t received = ::recv(socket_of(transport), data, size, 0);
  return take_result(transport, received, bytes, BIO_FLAGS_READ);
}

long control(BIO* transport, int command, long /*number*/, void* /*pointer*/) {
  if (command == BIO_CTRL_EOF) return BIO_test_flags(transport, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

// A protocol with its length in front.
constexpr std::string_view kHttp1 = "\x08http/1.1";
constexpr std::string_view kHttp2 = "\x02h2";

int choose_protocol(SSL* /*ssl*/, const unsigned char** chosen, unsigned char* chosen_bytes,
                    const unsigned char* offered, unsigned int offered_bytes, void* context) {
  const std::string_view spoken = *static_cast<const std::string_view*>(context);
  unsigned char* found = nullptr;
  const int agreed = SSL_select_next_proto(
      &found, chosen_bytes, reinterpret_cast<const unsigned char*>(spoken.data()),
      static_cast<unsigned int>(spoken.size()), offered, offered_bytes);
  *chosen = found;
  return agreed == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_NOACK;
}

// Keeps OpenSSL from asking for a key's password at the terminal.
int no_password(char* /*to*/, int /*size*/, int /*writes*/, void* /*user*/) { return 0; }

// ---- files

Status invalid(const path& file, const std::string& why) {
  return {StatusCode::invalid, file.string() + ": " + why};
}

Memory memory_of(const std::string& text) {
  return Memory(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

std::vector<Certificate> certificates_in(const std::string& text) {
  std::vector<Certificate> found;
  const Memory memory = memory_of(text);
  while (Certificate one{PEM_read_bio_X509(memory.get(), nullptr, no_password, nullptr)})
    found.push_back(std::move(one));
  ERR_clear_error();  // the end of the file counts as an error
  return found;
}

std::string text_of(const ASN1_TIME* time) {
  const Memory memory(BIO_new(BIO_s_mem()));
  ASN1_TIME_print(memory.get(), time);
  char* data = nullptr;
  const long size = BIO_get_mem_data(memory.get(), &data);
  return {data, static_cast<std::size_t>(size)};
}

Status check_dates(const path& file, const X509* certificate) {
  const ASN1_TIME* const last = X509_get0_notAfter(certificate);
  if (X509_cmp_current_time(last) < 0)
    return invalid(file, "expired on " + text_of(last) + "; renew it");
  const ASN1_TIME* const first = X509_get0_notBefore(certificate);
  if (X509_cmp_current_time(first) > 0)
    return invalid(file, "is not valid before " + text_of(first) + "; check the clock");
  return {};
}

// A certificate with its chain and key.
struct Identity {
  std::vector<Certificate> chain;
  PrivateKey key;
  TlsTexts texts;
};

// `files` name the texts in errors.
Result<Identity> identity_of(TlsTexts texts, const config::TlsFiles& files) {
  Identity identity;
  identity.texts = std::move(texts);
  identity.chain = certificates_in(identity.texts.certificate);
  if (identity.chain.empty())
    return invalid(files.certificate, "holds no certificate in PEM form (BEGIN CERTIFICATE)");
  if (Status dates = check_dates(files.certificate, identity.chain.front().get()); !dates.ok())
    return dates;
  const Memory memory = memory_of(identity.texts.key);
  identity.key.reset(PEM_read_bio_PrivateKey(memory.get(), nullptr, no_password, nullptr));
  ERR_clear_error();
  if (!identity.key)
    return invalid(files.key, "holds no private key in PEM form without a password");
  if (X509_check_private_key(identity.chain.front().get(), identity.key.get()) != 1) {
    ERR_clear_error();
    return invalid(files.key,
                   fmt::format("is not the key of the certificate in {}; configure a matching pair",
                               files.certificate.string()));
  }
  return identity;
}

Result<Identity> read_identity(const config::TlsFiles& files) {
  GPULET_TRY(std::string certificate, read_text(files.certificate));
  GPULET_TRY(std::string key, read_secret(files.key));
  return identity_of({std::move(certificate), std::move(key), {}}, files);
}

Status use_identity(SSL_CTX* context, const Result<Identity>& read, const config::TlsFiles& files) {
  if (!read.ok()) return read.status();
  const Identity& identity = read.value();
  bool taken = SSL_CTX_use_certificate(context, identity.chain.front().get()) == 1 &&
               SSL_CTX_use_PrivateKey(context, identity.key.get()) == 1;
  for (std::size_t i = 1; i < identity.chain.size(); ++i)
    taken = taken && SSL_CTX_add1_chain_cert(context, identity.chain[i].get()) == 1;
  if (taken) return {};
  const char* const why = ERR_reason_error_string(ERR_get_error());
  ERR_clear_error();
  return invalid(files.certificate, fmt::format("is rejected by OpenSSL: {}",
                                                why == nullptr ? "no reason given" : why));
}

Status trust(SSL_CTX* context, const path& authority, bool request_from_clients) {
  GPULET_TRY(std::string text, read_text(authority));
  const std::vector<Certificate> trusted = certificates_in(text);
  if (trusted.empty())
    return invalid(authority, "holds no certificate in PEM form (BEGIN CERTIFICATE)");
  for (const Certificate& one : trusted) {
    if (Status dates = check_dates(authority, one.get()); !dates.ok()) return dates;
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context), one.get());
    if (request_from_clients) SSL_CTX_add_client_CA(context, one.get());
  }
  return {};
}

}  // namespace

TlsContext::Impl::Impl(bool client)
    : connects(client),
      transport(BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "gpulet socket"),
                &BIO_meth_free),
      context(SSL_CTX_new(connects ? TLS_client_method() : TLS_server_method()), &SSL_CTX_free) {
  if (!transport || !context) throw std::bad_alloc();
  BIO_meth_set_write_ex(transport.get(), send_bytes);
  BIO_meth_set_read_ex(transport.get(), receive_bytes);
  BIO_meth_set_ctrl(transport.get(), control);
  SSL_CTX* const made = context.get();
  SSL_CTX_set_min_proto_version(made, TLS1_2_VERSION);
  SSL_CTX_set_options(
      made, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
#ifdef SSL_OP_IGNORE_UNEXPECTED_EOF
  SSL_CTX_set_options(made, SSL_OP_IGNORE_UNEXPECTED_EOF);
#endif
  SSL_CTX_set_mode(made, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                             SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_session_cache_mode(made, SSL_SESS_CACHE_OFF);
}

Result<TlsContextPointer> TlsContext::server(const config::TlsFiles& files) {
  auto impl = std::make_unique<Impl>(false);
  SSL_CTX* const made = impl->context.get();
  if (Status status = use_identity(made, read_identity(files), files); !status.ok()) return status;
  SSL_CTX_set_alpn_select_cb(made, choose_protocol, const_cast<std::string_view*>(&kHttp1));
  if (!files.authority.empty()) {
    if (Status status = trust(made, files.authority, true); !status.ok()) return status;
    SSL_CTX_set_verify(made, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    // A resumed session would not present its certificate again.
    SSL_CTX_set_options(made, SSL_OP_NO_TICKET);
    SSL_CTX_set_num_tickets(made, 0);
  }
  return TlsContextPointer(new TlsContext(std::move(impl)));
}

Result<TlsContextPointer> TlsContext::http2_server(const TlsTexts& texts) {
  auto impl = std::make_unique<Impl>(false);
  SSL_CTX* const made = impl->context.get();
  const config::TlsFiles names{"certificate", "key", {}};
  if (Status status = use_identity(made, identity_of(texts, names), names); !status.ok())
    return status;
  SSL_CTX_set_alpn_select_cb(made, choose_protocol, const_cast<std::string_view*>(&kHttp2));
  return TlsContextPointer(new TlsContext(std::move(impl)));
}

Result<TlsContextPointer> TlsContext::client(const config::TlsFiles& files) {
  auto impl = std::make_unique<Impl>(true);
  SSL_CTX* const made = impl->context.get();
  if (Status status = trust(made, files.authority, false); !status.ok()) return status;
  SSL_CTX_set_verify(made, SSL_VERIFY_PEER, nullptr);
  if (!files.certificate.empty()) {
    if (Status status = use_identity(made, read_identity(files), files); !status.ok())
      return status;
  }
  return TlsContextPointer(new TlsContext(std::move(impl)));
}

bool TlsContext::certifies(const std::string& name) const {
  return certificate_is_for(SSL_CTX_get0_certificate(impl_->context.get()), name);
}

std::vector<std::string> TlsContext::certified_names() const {
  return names_of(SSL_CTX_get0_certificate(impl_->context.get()));
}

TlsContext::TlsContext(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
TlsContext::~TlsContext() = default;

bool certificate_is_for(X509* certificate, const std::string& name) {
  return certificate != nullptr && !name.empty() &&
         X509_check_host(certificate, name.data(), name.size(), X509_CHECK_FLAG_NO_WILDCARDS,
                         nullptr) == 1;
}

std::vector<std::string> names_of(const X509* certificate) {
  std::vector<std::string> names;
  if (certificate == nullptr) return names;
  const auto text = [](const ASN1_STRING* string) {
    return std::string(reinterpret_cast<const char*>(ASN1_STRING_get0_data(string)),
                       static_cast<std::size_t>(ASN1_STRING_length(string)));
  };
  const std::unique_ptr<GENERAL_NAMES, Freed<GENERAL_NAMES, GENERAL_NAMES_free>> alternatives(
      static_cast<GENERAL_NAMES*>(
          X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; i < sk_GENERAL_NAME_num(alternatives.get()); ++i) {
    const GENERAL_NAME* const one = sk_GENERAL_NAME_value(alternatives.get(), i);
    if (one->type == GEN_DNS) names.push_back(text(one->d.dNSName));
    if (one->type == GEN_URI) names.push_back(text(one->d.uniformResourceIdentifier));
    if (one->type != GEN_IPADD) continue;
    const std::string bytes = text(one->d.iPAddress);
    if (bytes.size() == 4) {
      asio::ip::address_v4::bytes_type four;
      std::memcpy(four.data(), bytes.data(), four.size());
      names.push_back(asio::ip::address_v4(four).to_string());
    } else if (bytes.size() == 16) {
      asio::ip::address_v6::bytes_type six;
      std::memcpy(six.data(), bytes.data(), six.size());
      names.push_back(asio::ip::address_v6(six).to_string());
    }
  }
  if (!names.empty()) return names;
  const X509_NAME* const subject = X509_get_subject_name(certificate);
  const int at = X509_NAME_get_index_by_NID(const_cast<X509_NAME*>(subject), NID_commonName, -1);
  if (at >= 0) names.push_back(text(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at))));
  return names;
}

Result<TlsTexts> read_tls_texts(const config::TlsFiles& files) {
  TlsTexts texts;
  if (!files.certificate.empty() || !files.key.empty()) {
    Result<Identity> identity = read_identity(files);
    if (!identity.ok()) return identity.status();
    texts = std::move(identity.value().texts);
  }
  if (!files.authority.empty()) {
    GPULET_TRY(std::string authority, read_text(files.authority));
    texts.authority = std::move(authority);
  }
  return texts;
}

}  // namespace gpulet::net
