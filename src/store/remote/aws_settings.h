// Where S3 is and who may read there: the environment variables and the file of credentials that
// other clients of S3 read, too. Errors never contain a credential. Any thread, as long as none
// changes the environment.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "gpulet/base/status.h"
#include "gpulet/base/url.h"
#include "store/remote/aws_signature.h"

namespace gpulet::store::remote {

// The value of a variable; empty: it is not set, or empty.
using Environment = std::function<std::string(const char* variable)>;
[[nodiscard]] std::string process_environment(const char* variable);

struct S3Place {
  std::optional<Url> endpoint;  // http or https; `target` is a path without a slash at its end
  std::string region;
};
// AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, and AWS_REGION or AWS_DEFAULT_REGION (us-east-1). Fails
// with invalid, naming the variable.
[[nodiscard]] Result<S3Place> read_s3_place(const Environment& environment);

inline constexpr std::size_t kMostCredentialsBytes = 1U << 20U;

// The credentials of the profile in the text of a file of credentials. Empty: it has no such
// profile. Fails with invalid where a profile lacks a key or a value is not printable.
[[nodiscard]] Result<std::optional<AwsCredentials>> parse_credentials(std::string_view text,
                                                                      std::string_view profile);

// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or else the profile AWS_PROFILE
// ("default") of AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials). Empty credentials: there are
// none, and requests are not signed. Fails with invalid or not_found where something that is named
// is missing. Blocks on file I/O.
[[nodiscard]] Result<AwsCredentials> read_credentials(const Environment& environment);

// A GET of the object, signed unless the credentials are empty. Virtual-hosted without an endpoint,
// else with the bucket in the path; so, too, where the bucket has a dot, which no certificate of
// Amazon covers.
struct S3Request {
  std::string url;
  Headers headers;  // without "host", which follows from the URL
};
[[nodiscard]] S3Request s3_request(const Url& object, const S3Place& place,
                                   const AwsCredentials& credentials,
                                   std::chrono::system_clock::time_point time);

}  // namespace gpulet::store::remote
