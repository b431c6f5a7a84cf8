// AWS Signature Version 4: signs the headers of a request. Pure; any thread.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gpulet::store::remote {

// Never in a log or an error.
struct AwsCredentials {
  std::string key_id;
  std::string secret;
  std::string token;  // of a session; empty: none
  [[nodiscard]] bool empty() const { return key_id.empty(); }
  friend bool operator==(const AwsCredentials&, const AwsCredentials&) = default;
};

using Headers = std::vector<std::pair<std::string, std::string>>;  // names in lower case

struct AwsRequest {
  std::string method = "GET";
  std::string path;   // percent-encoded as it is sent, beginning with a slash
  std::string query;  // the same, its parameters sorted; empty: none
  Headers headers;    // all that are to be signed, "host" among them
  std::string payload_sha256;
  std::string region;
  std::string service = "s3";
};

// "20130524T000000Z"
[[nodiscard]] std::string amz_date(std::chrono::system_clock::time_point time);

// The bytes of a path or a query that RFC 3986 does not reserve stay; the others become %XX.
// Slashes stay where `keep_slashes`.
[[nodiscard]] std::string uri_encoded(std::string_view text, bool keep_slashes);

// Adds x-amz-date, x-amz-security-token where there is a token, and authorization to the headers.
void sign(AwsRequest& request, const AwsCredentials& credentials,
          std::chrono::system_clock::time_point time);

}  // namespace gpulet::store::remote
