#include "tests/support/certificates/certificates.h"

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <fstream>
#include <stdexcept>
#include <utility>

namespace gpulet::testing {
namespace {

using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;

constexpr long kSecondsPerHour = 3600;

Key make_key() { return {EVP_EC_gen("P-256"), &EVP_PKEY_free}; }

void extend(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
  if (extension == nullptr) throw std::runtime_error("no such extension: " + value);
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

Certificate begin_certificate(EVP_PKEY* key, const std::string& name, int from_hours,
                              int to_hours) {
  static long serial = 1;
  Certificate made(X509_new(), &X509_free);
  X509_set_version(made.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(made.get()), serial++);
  X509_gmtime_adj(X509_getm_notBefore(made.get()), from_hours * kSecondsPerHour);
  X509_gmtime_adj(X509_getm_notAfter(made.get()), to_hours * kSecondsPerHour);
  X509_set_pubkey(made.get(), key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(made.get()), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  return made;
}

template <typename Write>
std::string pem(Write write) {
  BIO* const memory = BIO_new(BIO_s_mem());
  write(memory);
  char* data = nullptr;
  const long size = BIO_get_mem_data(memory, &data);
  std::string text(data, static_cast<std::size_t>(size));
  BIO_free(memory);
  return text;
}

std::string pem_of(X509* certificate) {
  return pem([certificate](BIO* to) { PEM_write_bio_X509(to, certificate); });
}

std::string pem_of(EVP_PKEY* key) {
  return pem(
      [key](BIO* to) { PEM_write_bio_PrivateKey(to, key, nullptr, nullptr, 0, nullptr, nullptr); });
}

bool is_address(const std::string& name) {
  return name.find(':') != std::string::npos ||
         name.find_first_not_of("0123456789.") == std::string::npos;
}

}  // namespace

struct Authority::Impl {
  Key key = make_key();
  Certificate certificate{nullptr, &X509_free};
};

Authority::Authority(std::filesystem::path folder, const std::string& name)
    : folder_(std::move(folder)), name_(name), impl_(std::make_unique<Impl>()) {
  impl_->certificate = begin_certificate(impl_->key.get(), name, -1, 24);
  X509* const own = impl_->certificate.get();
  X509_set_issuer_name(own, X509_get_subject_name(own));
  extend(own, own, NID_basic_constraints, "critical,CA:TRUE");
  extend(own, own, NID_subject_key_identifier, "hash");
  X509_sign(own, impl_->key.get(), EVP_sha256());
  write_secret(file(), pem_of(own));
}

Authority::~Authority() = default;

std::filesystem::path Authority::file() const { return folder_ / (name_ + ".pem"); }

config::TlsFiles Authority::issue(const std::string& name, const std::vector<std::string>& names,
                                  int from_hours, int to_hours) const {
  const Key key = make_key();
  const Certificate made = begin_certificate(key.get(), name, from_hours, to_hours);
  X509* const issuer = impl_->certificate.get();
  X509_set_issuer_name(made.get(), X509_get_subject_name(issuer));
  std::string alternatives;
  for (const std::string& one : names)
    alternatives +=
        (alternatives.empty() ? "" : ",") + std::string(is_address(one) ? "IP:" : "DNS:") + one;
  extend(made.get(), issuer, NID_basic_constraints, "CA:FALSE");
  extend(made.get(), issuer, NID_subject_alt_name, alternatives);
  X509_sign(made.get(), impl_->key.get(), EVP_sha256());
  const config::TlsFiles files{folder_ / (name + ".pem"), folder_ / (name + ".key"), file()};
  write_secret(files.certificate, pem_of(made.get()));
  write_secret(files.key, pem_of(key.get()));
  return files;
}

void write_secret(const std::filesystem::path& file, const std::string& text) {
  std::ofstream(file, std::ios::trunc) << text;
  ::chmod(file.c_str(), S_IRUSR | S_IWUSR);
}

}  // namespace gpulet::testing
