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
  cursor.allow_keys({"admin", "inference", "observe"});
  TokenFiles files;
  if (const auto admin = cursor.find("admin")) files.admin = resolve(file, admin->text(kTokens));
  if (const auto inference = cursor.find("inference"))
    files.inference = resolve(file, inference->text(kTokens));
  if (const auto observe = cursor.find("observe"))
    files.observe = resolve(file, observe->text(kTokens));
  if (files == TokenFiles{})
    cursor.fail("names no file", "give \"admin\", \"inference\" or \"observe\", or leave it out");
  return files;
}

ClientLimits read_client_limits(const JsonCursor& cursor) {
  constexpr double kLargestRate = 1e9;
  constexpr std::uint32_t kMostRequests = 1U << 30U;
  cursor.allow_keys({"requests_per_s", "device_ms_per_s", "max_requests"});
  const NumberRange rate{.least = 0, .most = kLargestRate, .above_least = true};
  ClientLimits limits;
  if (const auto requests = cursor.find("requests_per_s"))
    limits.requests_per_s = requests->number(rate);
  if (const auto device = cursor.find("device_ms_per_s"))
    limits.device_ms_per_s = device->number(rate);
  if (const auto most = cursor.find("max_requests"))
    limits.max_requests = most->count(1, kMostRequests);
  if (!limits.any()) cursor.fail("limits nothing", "give one of its keys, or leave it out");
  return limits;
}

}  // namespace gpulet::config
