#include "store/remote/aws_settings.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "gpulet/base/files.h"
#include "gpulet/base/sha256.h"
#include "gpulet/base/text.h"

namespace gpulet::store::remote {
namespace {

constexpr std::string_view kDefaultRegion = "us-east-1";
constexpr std::size_t kLongestRegion = 64;
constexpr std::size_t kLongestValue = 8192;  // tokens of sessions have a thousand bytes and more

Status invalid(const std::string& what) { return {StatusCode::invalid, what}; }

// Such values become parts of headers.
bool is_value(std::string_view text) {
  return !text.empty() && text.size() <= kLongestValue &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < '\x7f'; });
}

bool is_region(std::string_view text) {
  return text.size() <= kLongestRegion && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
         });
}

Result<Url> parse_endpoint(std::string text) {
  while (text.ends_with('/')) text.pop_back();
  // An endpoint names a folder. parse_url() wants a file.
  constexpr std::string_view kFile = "/x";
  Result<Url> url = parse_url(text + std::string(kFile));
  if (!url.ok()) return url;
  Url& endpoint = url.value();
  if (endpoint.scheme == Url::Scheme::s3 || endpoint.target.find('?') != std::string::npos)
    return invalid("it is not the URL of a server; write https://HOST");
  endpoint.target.resize(endpoint.target.size() - kFile.size());
  return url;
}

Result<AwsCredentials> checked(AwsCredentials credentials, const std::string& where) {
  if (!is_value(credentials.key_id) || !is_value(credentials.secret) ||
      (!credentials.token.empty() && !is_value(credentials.token)))
    return invalid(where + ": the access key needs an id and a secret, without blanks");
  return credentials;
}

std::filesystem::path credentials_file(const Environment& environment) {
  if (std::string named = environment("AWS_SHARED_CREDENTIALS_FILE"); !named.empty()) return named;
  const std::string home = environment("HOME");
  return home.empty() ? std::filesystem::path() : std::filesystem::path(home) / ".aws/credentials";
}

}  // namespace

std::string process_environment(const char* variable) {
  return std::string(environment_variable(variable));
}

Result<S3Place> read_s3_place(const Environment& environment) {
  S3Place place;
  for (const char* const variable : {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}) {
    const std::string text = environment(variable);
    if (text.empty()) continue;
    Result<Url> endpoint = parse_endpoint(text);
    if (!endpoint.ok()) return endpoint.status().within(variable);
    place.endpoint = std::move(endpoint).value();
    break;
  }
  place.region = environment("AWS_REGION");
  if (place.region.empty()) place.region = environment("AWS_DEFAULT_REGION");
  if (place.region.empty()) place.region = kDefaultRegion;
  if (!is_region(place.region))
    return invalid("AWS_REGION is not the name of a region, such as eu-central-1");
  return place;
}

Result<std::optional<AwsCredentials>> parse_credentials(std::string_view text,
                                                        std::string_view profile) {
  if (text.size() > kMostCredentialsBytes) return invalid("the file is too large");
  bool found = false;
  bool inside = false;
  AwsCredentials credentials;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (line.front() == '[') {
      inside = line.back() == ']' && trimmed(line.substr(1, line.size() - 2)) == profile;
      found = found || inside;
      continue;
    }
    const std::size_t equals = line.find('=');
    if (!inside || equals == std::string_view::npos) continue;
    const std::string_view key = trimmed(line.substr(0, equals));
    const std::string value(trimmed(line.substr(equals + 1)));
    if (key == "aws_access_key_id") credentials.key_id = value;
    if (key == "aws_secret_access_key") credentials.secret = value;
    if (key == "aws_session_token") credentials.token = value;
  }
  if (!found) return std::optional<AwsCredentials>();
  GPULET_TRY(AwsCredentials whole, checked(std::move(credentials), "profile " + escaped(profile)));
  return std::optional(std::move(whole));
}

Result<AwsCredentials> read_credentials(const Environment& environment) {
  AwsCredentials credentials{environment("AWS_ACCESS_KEY_ID"), environment("AWS_SECRET_ACCESS_KEY"),
                             environment("AWS_SESSION_TOKEN")};
  if (!credentials.key_id.empty() || !credentials.secret.empty())
    return checked(std::move(credentials), "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
  const std::string named = environment("AWS_PROFILE");
  const std::string profile = named.empty() ? "default" : named;
  const std::filesystem::path file = credentials_file(environment);
  const bool required = !named.empty() || !environment("AWS_SHARED_CREDENTIALS_FILE").empty();
  std::ifstream stream(file, std::ios::binary);
  if (!stream) {
    if (!required) return AwsCredentials();
    return Status(StatusCode::not_found,
                  "the file of credentials, " + file.string() +
                      ", cannot be read; correct AWS_SHARED_CREDENTIALS_FILE");
  }
  std::string text(kMostCredentialsBytes + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(stream.gcount()));
  Result<std::optional<AwsCredentials>> found = parse_credentials(text, profile);
  if (!found.ok()) return found.status().within(file.string());
  if (found.value()) return std::move(*found.value());
  if (named.empty()) return AwsCredentials();
  return Status(StatusCode::not_found, file.string() + ": there is no profile " + escaped(profile) +
                                           "; correct AWS_PROFILE");
}

S3Request s3_request(const Url& object, const S3Place& place, const AwsCredentials& credentials,
                     std::chrono::system_clock::time_point time) {
  const std::string key = '/' + uri_encoded(object.target, true);
  const bool in_path = place.endpoint || object.host.find('.') != std::string::npos;
  AwsRequest request;
  request.region = place.region;
  std::string scheme = "https://";
  std::string host;
  if (place.endpoint) {
    scheme = place.endpoint->scheme == Url::Scheme::http ? "http://" : scheme;
    host = place.endpoint->host;
    // As curl writes it: without the scheme's own port.
    const std::uint16_t own = place.endpoint->scheme == Url::Scheme::http ? 80 : 443;
    if (place.endpoint->port != 0 && place.endpoint->port != own)
      host += ':' + std::to_string(place.endpoint->port);
    request.path = place.endpoint->target;
  } else {
    const bool in_china = place.region.starts_with("cn-");
    host = "s3." + place.region + (in_china ? ".amazonaws.com.cn" : ".amazonaws.com");
    if (!in_path) host = object.host + '.' + host;
  }
  request.path += in_path ? '/' + object.host + key : key;
  S3Request made;
  made.url = scheme + host + request.path;
  if (credentials.empty()) return made;
  request.payload_sha256 = sha256_of("");
  request.headers = {{"host", host}, {"x-amz-content-sha256", request.payload_sha256}};
  sign(request, credentials, time);
  made.headers.assign(request.headers.begin() + 1, request.headers.end());
  return made;
}

}  // namespace gpulet::store::remote
