#include "store/remote/aws_signature.h"

#include <algorithm>
#include <array>
#include <ctime>

#include "gpulet/base/sha256.h"
#include "gpulet/base/text.h"

namespace gpulet::store::remote {
namespace {

constexpr std::string_view kAlgorithm = "AWS4-HMAC-SHA256";
constexpr std::string_view kTerminator = "aws4_request";
constexpr std::size_t kDayLength = 8;  // of "20130524"

// Without blanks at the ends, and with one blank in the place of several.
std::string canonical_value(std::string_view value) {
  std::string text;
  for (const char c : trimmed(value)) {
    const bool blank = c == ' ' || c == '\t';
    if (blank && !text.empty() && text.back() == ' ') continue;
    text += blank ? ' ' : c;
  }
  return text;
}

std::string signing_key(const AwsCredentials& credentials, const AwsRequest& request,
                        std::string_view day) {
  std::string key = hmac_sha256("AWS4" + credentials.secret, day);
  key = hmac_sha256(key, request.region);
  key = hmac_sha256(key, request.service);
  return hmac_sha256(key, kTerminator);
}

}  // namespace

std::string amz_date(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  const std::size_t length = std::strftime(text.data(), text.size(), "%Y%m%dT%H%M%SZ", &parts);
  return {text.data(), length};
}

std::string uri_encoded(std::string_view text, bool keep_slashes) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    const bool stays = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~' || (keep_slashes && c == '/');
    if (stays) {
      encoded += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    encoded += '%';
    encoded += kHex[byte >> 4U];
    encoded += kHex[byte & 0xfU];
  }
  return encoded;
}

void sign(AwsRequest& request, const AwsCredentials& credentials,
          std::chrono::system_clock::time_point time) {
  const std::string date = amz_date(time);
  const std::string day = date.substr(0, kDayLength);
  request.headers.emplace_back("x-amz-date", date);
  if (!credentials.token.empty())
    request.headers.emplace_back("x-amz-security-token", credentials.token);
  Headers sorted = request.headers;
  std::sort(sorted.begin(), sorted.end());

  std::string lines;
  std::vector<std::string> names;
  for (const auto& [name, value] : sorted) {
    lines += name + ':' + canonical_value(value) + '\n';
    names.push_back(name);
  }
  const std::string signed_names = joined(names, ";");
  const std::string canonical = request.method + '\n' + request.path + '\n' + request.query + '\n' +
                                lines + '\n' + signed_names + '\n' + request.payload_sha256;
  const std::string scope =
      day + '/' + request.region + '/' + request.service + '/' + std::string(kTerminator);
  const std::string to_sign =
      std::string(kAlgorithm) + '\n' + date + '\n' + scope + '\n' + sha256_of(canonical);
  const std::string signature =
      hex_of(hmac_sha256(signing_key(credentials, request, day), to_sign));
  request.headers.emplace_back(
      "authorization", std::string(kAlgorithm) + " Credential=" + credentials.key_id + '/' + scope +
                           ", SignedHeaders=" + signed_names + ", Signature=" + signature);
}

}  // namespace gpulet::store::remote
