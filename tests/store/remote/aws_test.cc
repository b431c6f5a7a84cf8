// The signature against published examples, and what the environment says about S3.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <string>

#include "gpulet/base/sha256.h"
#include "store/remote/aws_settings.h"
#include "store/remote/aws_signature.h"
#include "tests/support/names.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::store::remote {
namespace {

using support::holds;
using support::names;

std::chrono::system_clock::time_point at_seconds(std::int64_t seconds) {
  return std::chrono::system_clock::time_point(std::chrono::seconds(seconds));
}
// 2013-05-24 00:00:00 and 2015-08-30 12:36:00.
constexpr std::int64_t kMay2013 = 1369353600;
constexpr std::int64_t kAugust2015 = 1440938160;

std::string value_of(const Headers& headers, const std::string& name) {
  for (const auto& [one, value] : headers)
    if (one == name) return value;
  return {};
}

// "Signature Calculations for the Authorization Header", example "GET Object", in the reference of
// Amazon S3.
TEST(AwsSignature, AgreesWithTheExampleOfS3) {
  AwsRequest request;
  request.path = "/test.txt";
  request.payload_sha256 = sha256_of("");
  request.region = "us-east-1";
  request.headers = {{"host", "examplebucket.s3.amazonaws.com"},
                     {"range", "bytes=0-9"},
                     {"x-amz-content-sha256", request.payload_sha256}};
  sign(request, {"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""},
       at_seconds(kMay2013));
  EXPECT_EQ(value_of(request.headers, "x-amz-date"), "20130524T000000Z");
  EXPECT_EQ(value_of(request.headers, "authorization"),
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
            "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
            "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

// The suite of test vectors that AWS published: get-vanilla, get-vanilla-query-order-key-case.
TEST(AwsSignature, AgreesWithThePublishedVectors) {
  const AwsCredentials credentials{"AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", ""};
  for (const auto& [query, signature] :
       {std::pair<std::string, std::string>(
            "", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        std::pair<std::string, std::string>(
            "Param1=value1&Param2=value2",
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500")}) {
    AwsRequest request;
    request.path = "/";
    request.query = query;
    request.payload_sha256 = sha256_of("");
    request.region = "us-east-1";
    request.service = "service";
    request.headers = {{"host", "example.amazonaws.com"}};
    sign(request, credentials, at_seconds(kAugust2015));
    EXPECT_TRUE(holds(value_of(request.headers, "authorization"), "Signature=" + signature));
  }
}

TEST(AwsSignature, SignsTheTokenOfASession) {
  AwsRequest request;
  request.path = "/";
  request.headers = {{"host", "h"}};
  sign(request, {"id", "secret", "token"}, at_seconds(kMay2013));
  EXPECT_EQ(value_of(request.headers, "x-amz-security-token"), "token");
  EXPECT_TRUE(holds(value_of(request.headers, "authorization"),
                    "SignedHeaders=host;x-amz-date;x-amz-security-token"));
}

RC_GTEST_PROP(AwsSignatureProperty, EncodingLeavesOnlyWhatUrlsMayHave, (const std::string& text)) {
  const std::string encoded = uri_encoded(text, true);
  for (const char c : encoded)
    RC_ASSERT(std::isalnum(static_cast<unsigned char>(c)) != 0 ||
              std::string("-._~/%").find(c) != std::string::npos);
  RC_ASSERT(uri_encoded(text, false).find('/') == std::string::npos);
  RC_ASSERT(encoded.size() >= text.size());
}

RC_GTEST_PROP(AwsSignatureProperty, NeverContainsTheSecret, (const std::string& path)) {
  AwsRequest request;
  request.path = "/" + uri_encoded(path, true);
  request.headers = {{"host", "h"}};
  sign(request, {"id", "very-secret", ""}, at_seconds(kMay2013));
  for (const auto& [name, value] : request.headers)
    RC_ASSERT(value.find("very-secret") == std::string::npos);
}

// ---- settings

Environment environment_of(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  };
}

Url object_at(const std::string& text) { return parse_url(text).value(); }

std::string url_of(const std::string& object, std::map<std::string, std::string> variables) {
  const Result<S3Place> place = read_s3_place(environment_of(std::move(variables)));
  EXPECT_TRUE(place.ok()) << place.status().message();
  if (!place.ok()) return {};
  return s3_request(object_at(object), place.value(), {}, at_seconds(0)).url;
}

TEST(S3Place, FollowsTheEnvironment) {
  EXPECT_EQ(url_of("s3://models/a/b c.pt", {}),
            "https://models.s3.us-east-1.amazonaws.com/a/b%20c.pt");
  EXPECT_EQ(url_of("s3://models/a.pt", {{"AWS_DEFAULT_REGION", "eu-west-1"}}),
            "https://models.s3.eu-west-1.amazonaws.com/a.pt");
  EXPECT_EQ(url_of("s3://models/a.pt",
                   {{"AWS_REGION", "cn-north-1"}, {"AWS_DEFAULT_REGION", "eu-west-1"}}),
            "https://models.s3.cn-north-1.amazonaws.com.cn/a.pt");
  EXPECT_EQ(url_of("s3://my.models/a.pt", {}), "https://s3.us-east-1.amazonaws.com/my.models/a.pt");
  EXPECT_EQ(url_of("s3://models/a.pt", {{"AWS_ENDPOINT_URL", "http://minio:9000/"}}),
            "http://minio:9000/models/a.pt");
  EXPECT_EQ(url_of("s3://models/a.pt", {{"AWS_ENDPOINT_URL_S3", "https://h:443/base"},
                                        {"AWS_ENDPOINT_URL", "http://minio:9000"}}),
            "https://h/base/models/a.pt");
}

TEST(S3Place, NamesTheWrongVariable) {
  for (const auto& [name, value] :
       {std::pair<std::string, std::string>("AWS_ENDPOINT_URL", "minio:9000"),
        std::pair<std::string, std::string>("AWS_ENDPOINT_URL_S3", "s3://bucket"),
        std::pair<std::string, std::string>("AWS_ENDPOINT_URL", "http://u:p@h"),
        std::pair<std::string, std::string>("AWS_REGION", "Frankfurt am Main")}) {
    const Result<S3Place> place = read_s3_place(environment_of({{name, value}}));
    ASSERT_FALSE(place.ok()) << value;
    EXPECT_TRUE(names(place.status(), name));
  }
}

constexpr const char* kFile = R"(
# keys
[default]
aws_access_key_id = first
aws_secret_access_key=first-secret

[ other ]
aws_access_key_id =second
region = eu-west-1
aws_secret_access_key = second-secret
aws_session_token = token=with=signs
)";

TEST(Credentials, AreReadByProfile) {
  EXPECT_EQ(*parse_credentials(kFile, "default").value(),
            (AwsCredentials{"first", "first-secret", ""}));
  EXPECT_EQ(*parse_credentials(kFile, "other").value(),
            (AwsCredentials{"second", "second-secret", "token=with=signs"}));
  EXPECT_FALSE(parse_credentials(kFile, "third").value());
}

TEST(Credentials, ErrorsDoNotRepeatThem) {
  for (const std::string text :
       {"[default]\naws_access_key_id = secret value\n",
        "[default]\naws_secret_access_key = secret value\n",
        "[default]\naws_access_key_id=a\naws_secret_access_key=secret\x01"}) {
    const auto read = parse_credentials(text, "default");
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_FALSE(holds(read.status(), "secret value"));
    EXPECT_TRUE(names(read.status(), "default"));
  }
}

TEST(Credentials, TheEnvironmentComesBeforeTheFile) {
  const support::TemporaryFolder folder;
  const std::string file = folder.write("credentials", kFile);
  folder.write(".aws/credentials", kFile);
  const auto read = [](std::map<std::string, std::string> variables) {
    return read_credentials(environment_of(std::move(variables)));
  };
  EXPECT_TRUE(read({}).value().empty());
  EXPECT_TRUE(read({{"HOME", "/nonexistent"}}).value().empty());
  EXPECT_EQ(read({{"HOME", folder.path()}}).value().key_id, "first");
  EXPECT_EQ(read({{"AWS_SHARED_CREDENTIALS_FILE", file}}).value().key_id, "first");
  EXPECT_EQ(read({{"AWS_SHARED_CREDENTIALS_FILE", file}, {"AWS_PROFILE", "other"}}).value().token,
            "token=with=signs");
  EXPECT_EQ(read({{"AWS_SHARED_CREDENTIALS_FILE", file},
                  {"AWS_ACCESS_KEY_ID", "env"},
                  {"AWS_SECRET_ACCESS_KEY", "s"}})
                .value()
                .key_id,
            "env");
  EXPECT_EQ(read({{"AWS_SHARED_CREDENTIALS_FILE", file}, {"AWS_PROFILE", "third"}}).status().code(),
            StatusCode::not_found);
  EXPECT_EQ(read({{"AWS_SHARED_CREDENTIALS_FILE", "/nonexistent"}}).status().code(),
            StatusCode::not_found);
  EXPECT_EQ(read({{"AWS_ACCESS_KEY_ID", "half"}}).status().code(), StatusCode::invalid);
}

RC_GTEST_PROP(CredentialsProperty, AnyTextIsReadOrRefused, (const std::string& text)) {
  const auto read = parse_credentials("[default]\n" + text, "default");
  if (!read.ok() || !read.value()) return;
  RC_ASSERT(read.value()->key_id.find('\n') == std::string::npos);
  RC_ASSERT(!read.value()->secret.empty());
}

}  // namespace
}  // namespace gpulet::store::remote
