#include "config/security_reading.h"

#include "config/loading.h"

namespace gpulet::config {
namespace {

constexpr const char* kCertificate = "the path of a certificate in PEM form, its chain after it";
constexpr const char* kKey = "the path of the certificate's private key in PEM form";
constexpr const char* kAuthority =
    "the path of the certificates, in PEM form, of who signs the others'";
constexpr const char* kTokens = "the path of a file of tokens, one a line";

}  // namespace

TlsFiles read_tls(const JsonCursor& cursor, const std::filesystem::path& file) {
  cursor.allow_keys({"certificate", "key"});
  return {resolve(file, cursor.required("certificate").text(kCertificate)),
          resolve(file, cursor.required("key").text(kKey)),
          {}};
}

TlsFiles read_mutual_tls(const JsonCursor& cursor, const std::filesystem::path& file) {
  cursor.allow_keys({"certificate", "key", "authority"});
  return {resolve(file, cursor.required("certificate").text(kCertificate)),
          resolve(file, cursor.required("key").text(kKey)),
          resolve(file, cursor.required("authority").text(kAuthority))};
}

TokenFiles read_tokens(const JsonCursor& cursor, const std::filesystem::path& file) {
  cursor.allow_keys({"admin", "inference"});
  TokenFiles files;
  if (const auto admin = cursor.find("admin")) files.admin = resolve(file, admin->text(kTokens));
  if (const auto inference = cursor.find("inference"))
    files.inference = resolve(file, inference->text(kTokens));
  if (files == TokenFiles{})
    cursor.fail("names no file", "give \"admin\", \"inference\" or both, or leave it out");
  return files;
}

}  // namespace gpulet::config
