// RemoteFiles against a server that is slow, breaks off, changes, refuses and redirects.
#include "gpulet/store/remote/remote_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "gpulet/base/sha256.h"
#include "tests/support/certificates/certificates.h"
#include "tests/support/names.h"
#include "tests/support/process/process.h"
#include "tests/support/store/object_server.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/variable.h"

namespace gpulet::store::remote::remote_files_test {
namespace {

using gpulet::testing::Authority;
using gpulet::testing::comes_true;
using gpulet::testing::ObjectAnswer;
using gpulet::testing::ObjectRequest;
using gpulet::testing::ObjectServer;
using gpulet::testing::serve_object;
using gpulet::testing::StoredObject;
using std::chrono::milliseconds;
using support::holds;
using support::names;

const std::string kFirst(100'000, '1');
const std::string kSecond(90'000, '2');

ObjectServer::Handler serving(StoredObject object) {
  return [object](const ObjectRequest& request) { return serve_object(object, request); };
}
ObjectServer::Handler answering(int status, std::map<std::string, std::string> headers = {},
                                const std::string& body = "no") {
  return [=](const ObjectRequest&) { return ObjectAnswer{status, headers, body}; };
}

std::string content_of(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

class RemoteFilesTest : public ::testing::Test {
 protected:
  RemoteFilesTest() {
    options_.stores.cache = folder_.path() / "cache";
    options_.stores.poll = milliseconds(50);
    options_.stores.first_retry = milliseconds(20);
    options_.stores.longest_retry = milliseconds(100);
    options_.stores.connect = std::chrono::seconds(5);
  }

  // As a frontend that starts.
  void open() {
    files_ = std::make_unique<RemoteFiles>(options_);
    files_->want({file_}, {});
    files_->start([this] { ++changes_; });
  }
  void fetch(const std::string& url, const std::string& sha256 = {}) {
    file_ = {parse_url(url).value(), sha256};
    open();
  }
  RemoteState state() const { return files_->state(file_); }
  bool has(const std::string& content) const {
    return comes_true([&] { return state().sha256 == sha256_of(content); });
  }
  // The text of the failure. Empty: there is none within the time.
  std::string failure() const {
    return comes_true([&] { return state().failed; }) ? state().text : std::string();
  }

  support::TemporaryFolder folder_;
  support::Variable no_proxy_{"no_proxy", "127.0.0.1"};
  RemoteFilesOptions options_;
  config::RemoteFile file_;
  std::atomic<int> changes_ = 0;
  std::unique_ptr<RemoteFiles> files_;  // last: its threads use the others
};

TEST_F(RemoteFilesTest, FetchesAFileAndItsNewVersions) {
  ObjectServer server(serving({kFirst, "\"1\"", ""}));
  fetch(server.url("/models/a.pt?version=1"));
  ASSERT_TRUE(has(kFirst)) << state().text;
  EXPECT_EQ(content_of(state().path), kFirst);
  EXPECT_TRUE(state().text.empty());
  EXPECT_GT(changes_, 0);
  ASSERT_TRUE(comes_true([&] { return server.requests().size() > 2; }));
  EXPECT_EQ(server.requests()[0].header("if-none-match"), "");
  EXPECT_EQ(server.requests()[0].target, "/models/a.pt?version=1");
  EXPECT_EQ(server.requests()[2].header("if-none-match"), "\"1\"");
  server.answer_with(serving({kSecond, "\"2\"", ""}));
  ASSERT_TRUE(has(kSecond)) << state().text;
  EXPECT_EQ(content_of(state().path), kSecond);
}

TEST_F(RemoteFilesTest, ADateDoesWhereThereIsNoETag) {
  const std::string date = "Fri, 27 Nov 2026 10:00:00 GMT";
  ObjectServer server(serving({kFirst, "", date}));
  fetch(server.url("/a.pt"));
  ASSERT_TRUE(has(kFirst));
  ASSERT_TRUE(comes_true([&] { return server.requests().size() > 2; }));
  EXPECT_EQ(server.requests()[2].header("if-modified-since"), date);
  server.answer_with(serving({kSecond, "", "Sat, 28 Nov 2026 10:00:00 GMT"}));
  EXPECT_TRUE(has(kSecond));
}

TEST_F(RemoteFilesTest, AnUnnamedVersionIsFetchedOnceOrOnRequest) {
  ObjectServer server(serving({kFirst, "", ""}));
  fetch(server.url("/a.pt"));
  ASSERT_TRUE(has(kFirst));
  server.answer_with(serving({kSecond, "", ""}));
  files_->look_now(file_);
  ASSERT_TRUE(has(kSecond));
  EXPECT_EQ(server.requests().size(), 2U);
}

TEST_F(RemoteFilesTest, GoesOnWhereATransferBrokeOff) {
  std::atomic<int> calls = 0;
  const StoredObject object{kFirst, "\"1\"", ""};
  ObjectServer server([&](const ObjectRequest& request) {
    ObjectAnswer answer = serve_object(object, request);
    if (++calls <= 2) answer.cut_after = 30'000;
    return answer;
  });
  fetch(server.url("/a.pt"));
  ASSERT_TRUE(has(kFirst)) << state().text;
  const auto requests = server.requests();
  ASSERT_GE(requests.size(), 3U);
  EXPECT_EQ(requests[1].header("range"), "bytes=30000-");
  EXPECT_EQ(requests[1].header("if-range"), "\"1\"");
  EXPECT_EQ(requests[2].header("range"), "bytes=60000-");
}

TEST_F(RemoteFilesTest, GoesOnAfterARestart) {
  ObjectServer server([&](const ObjectRequest& request) {
    ObjectAnswer answer = serve_object({kFirst, "\"1\"", ""}, request);
    answer.cut_after = 30'000;
    return answer;
  });
  options_.stores.first_retry = options_.stores.longest_retry = std::chrono::hours(1);
  fetch(server.url("/a.pt"));
  EXPECT_TRUE(names(failure(), server.url("/a.pt")));
  files_.reset();
  server.answer_with(serving({kFirst, "\"1\"", ""}));
  open();
  ASSERT_TRUE(has(kFirst)) << state().text;
  EXPECT_EQ(server.requests().back().header("range"), "bytes=30000-");
}

TEST_F(RemoteFilesTest, BeginsAnewWhereTheFileChangedMeanwhile) {
  std::atomic<int> calls = 0;
  ObjectServer server([&](const ObjectRequest& request) {
    ObjectAnswer answer = serve_object(
        calls == 0 ? StoredObject{kFirst, "\"1\"", ""} : StoredObject{kSecond, "\"2\"", ""},
        request);
    if (calls++ == 0) answer.cut_after = 30'000;
    return answer;
  });
  fetch(server.url("/a.pt"));
  ASSERT_TRUE(has(kSecond)) << state().text;
}

TEST_F(RemoteFilesTest, RefusesAPartOfAnotherVersion) {
  std::atomic<int> calls = 0;
  ObjectServer server([&](const ObjectRequest& request) {
    ObjectAnswer answer = serve_object({kFirst, "\"1\"", ""}, request);
    if (++calls == 1) answer.cut_after = 30'000;
    if (calls == 2) answer.headers["ETag"] = "\"2\"";  // a 206 against If-Range
    return answer;
  });
  fetch(server.url("/a.pt"));
  ASSERT_TRUE(has(kFirst)) << state().text;
  EXPECT_EQ(server.requests()[2].header("range"), "");
}

TEST_F(RemoteFilesTest, TellsHowFarItIs) {
  ObjectServer server([](const ObjectRequest& request) {
    ObjectAnswer answer = serve_object({kFirst, "\"1\"", ""}, request);
    answer.block = 10'000;
    answer.pause = milliseconds(150);
    return answer;
  });
  fetch(server.url("/a.pt"));
  EXPECT_TRUE(comes_true([&] {
    const RemoteState now = state();
    return now.text.starts_with("fetching, ") && now.text.ends_with("0 %") && !now.failed;
  }));
  EXPECT_TRUE(has(kFirst));
}

TEST_F(RemoteFilesTest, ErrorsAreClearAndTheVersionInForceStays) {
  struct Case {
    ObjectServer::Handler handler;
    const char* text;
  };
  const Case cases[] = {{answering(403), "403"},
                        {answering(404), "404"},
                        {answering(500), "500"},
                        {answering(204), "204"}};
  ObjectServer server(serving({kFirst, "\"1\"", ""}));
  fetch(server.url("/a.pt?secret"));
  ASSERT_TRUE(has(kFirst));
  for (const Case& one : cases) {
    server.answer_with(one.handler);
    EXPECT_TRUE(comes_true([&] { return state().text.find(one.text) != std::string::npos; }))
        << one.text;
    EXPECT_TRUE(state().failed);
    EXPECT_TRUE(names(state().text, server.url("/a.pt")));
    EXPECT_FALSE(holds(state().text, "secret"));
    EXPECT_EQ(state().sha256, sha256_of(kFirst));
  }
  server.answer_with(serving({kFirst, "\"1\"", ""}));
  EXPECT_TRUE(comes_true([&] { return !state().failed && state().text.empty(); }));
}

TEST_F(RemoteFilesTest, TheCacheServesWithoutAStore) {
  auto server = std::make_unique<ObjectServer>(serving({kFirst, "\"1\"", ""}));
  fetch(server->url("/a.pt"));
  ASSERT_TRUE(has(kFirst));
  files_.reset();
  server.reset();
  files_ = std::make_unique<RemoteFiles>(options_);
  files_->want({file_}, {});
  EXPECT_EQ(state().sha256, sha256_of(kFirst)) << "before anything is fetched";
  files_->start([] {});
  EXPECT_TRUE(names(failure(), file_.url.shown()));
  EXPECT_EQ(content_of(state().path), kFirst);
}

TEST_F(RemoteFilesTest, AnotherDigestIsRefusedAndNotFetchedAgain) {
  ObjectServer server(serving({kFirst, "\"1\"", ""}));
  fetch(server.url("/a.pt"), sha256_of(kSecond));
  EXPECT_TRUE(names(failure(), sha256_of(kFirst)));
  ASSERT_TRUE(comes_true([&] { return server.requests().size() > 2; }));
  EXPECT_EQ(server.requests()[2].header("if-none-match"), "\"1\"");
  EXPECT_TRUE(state().sha256.empty());
  EXPECT_TRUE(state().failed);
  server.answer_with(serving({kSecond, "\"2\"", ""}));
  ASSERT_TRUE(has(kSecond)) << state().text;
  EXPECT_TRUE(state().text.empty());
}

TEST_F(RemoteFilesTest, AVersionThatFailsTheCheckIsRefused) {
  options_.check = [](int descriptor) {
    char first = 0;
    if (::pread(descriptor, &first, 1, 0) == 1 && first == '1') return Status();
    return Status(StatusCode::invalid, "no model");
  };
  ObjectServer server(serving({kFirst, "\"1\"", ""}));
  fetch(server.url("/a.pt"));
  ASSERT_TRUE(has(kFirst));
  server.answer_with(serving({kSecond, "\"2\"", ""}));
  EXPECT_TRUE(names(failure(), "no model"));
  EXPECT_EQ(state().sha256, sha256_of(kFirst)) << "stays in force";
  const std::size_t before = server.requests().size();
  ASSERT_TRUE(comes_true([&] { return server.requests().size() > before + 1; }));
  EXPECT_EQ(server.requests().back().header("if-none-match"), "\"1\", \"2\"");
  EXPECT_EQ(state().sha256, sha256_of(kFirst));
  EXPECT_TRUE(state().failed);
}

TEST_F(RemoteFilesTest, FilesAreNoLargerThanAllowed) {
  options_.stores.largest_file_mb = 1;
  const std::string large((1U << 20U) + 1, 'x');
  ObjectServer server(serving({large, "\"1\"", ""}));
  fetch(server.url("/a.pt"));
  EXPECT_TRUE(names(failure(), "largest_file_mb"));
}

// Without a length, what comes is all that there is to count.
TEST_F(RemoteFilesTest, ABodyWithoutALengthStaysWithinTheCache) {
  options_.stores.cache_mb = 1;
  options_.stores.largest_file_mb = 100;
  options_.stores.first_retry = milliseconds(20);
  ObjectServer server([](const ObjectRequest&) {
    ObjectAnswer answer;
    answer.headers["Transfer-Encoding"] = "chunked";
    const std::string megabyte(std::size_t{1} << 20U, 'x');
    for (int i = 0; i < 8; ++i) answer.body += "100000\r\n" + megabyte + "\r\n";
    answer.body += "0\r\n\r\n";
    return answer;
  });
  fetch(server.url("/a.pt"));
  EXPECT_TRUE(names(failure(), "store"));
  // Neither an attempt nor all of them together leave more.
  EXPECT_TRUE(comes_true([&] { return server.requests().size() >= 4; }));
  files_.reset();
  std::uintmax_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(options_.stores.cache))
    bytes += entry.is_regular_file() ? entry.file_size() : 0;
  EXPECT_LE(bytes, std::uintmax_t{1} << 20U);
}

// A store elsewhere must not reach the services of this machine through the frontend.
TEST_F(RemoteFilesTest, FollowsNoRedirectToAnotherClassOfAddresses) {
  std::string to;
  ObjectServer server([&](const ObjectRequest&) {
    return ObjectAnswer{302, {{"Location", to}}, ""};
  });
  for (const std::string host : {"169.254.169.254", "10.0.0.1", "192.168.1.1", "0.0.0.0",
                                 "[::ffff:10.0.0.1]", "[fe80::1]", "[fd00::1]", "0x0a000001"}) {
    to = "http://" + host + "/latest/meta-data";
    fetch(server.url("/a.pt"));
    EXPECT_TRUE(names(failure(), server.url("/a.pt"))) << host;
    files_.reset();
  }
}

TEST_F(RemoteFilesTest, FollowsAFewRedirects) {
  options_.stores.redirects = 2;
  std::string self;
  ObjectServer server([&self](const ObjectRequest& request) {
    if (request.target == "/loop") return ObjectAnswer{302, {{"Location", "/loop"}}, ""};
    if (request.target == "/once") return ObjectAnswer{301, {{"Location", "/twice"}}, ""};
    if (request.target == "/twice") return ObjectAnswer{307, {{"Location", self + "/a.pt"}}, ""};
    if (request.target == "/out")
      return ObjectAnswer{302, {{"Location", "file:///etc/passwd"}}, ""};
    return serve_object({kFirst, "\"1\"", ""}, request);
  });
  self = server.url("");
  fetch(server.url("/once"));
  EXPECT_TRUE(has(kFirst)) << state().text;
  files_.reset();
  fetch(server.url("/loop"));
  EXPECT_TRUE(names(failure(), "2", "\"redirects\""));
  files_.reset();
  fetch(server.url("/out"));
  EXPECT_TRUE(names(failure(), server.url("/out")));
}

TEST_F(RemoteFilesTest, ASilentStoreTimesOut) {
  options_.stores.stall = std::chrono::seconds(1);
  options_.stores.fetch = std::chrono::seconds(2);
  ObjectServer server([](const ObjectRequest&) {
    ObjectAnswer answer;
    answer.pause = std::chrono::seconds(60);
    return answer;
  });
  fetch(server.url("/a.pt"));
  EXPECT_TRUE(names(failure(), server.url("/a.pt")));
}

TEST_F(RemoteFilesTest, OneStoreDoesNotHoldUpAnother) {
  ObjectServer silent([](const ObjectRequest&) {
    ObjectAnswer answer;
    answer.pause = std::chrono::seconds(60);
    return answer;
  });
  ObjectServer server(serving({kFirst, "\"1\"", ""}));
  std::vector<config::RemoteFile> files;
  for (int i = 0; i < 10; ++i)
    files.push_back({parse_url(silent.url("/" + std::to_string(i))).value(), {}});
  file_ = {parse_url(server.url("/a.pt")).value(), {}};
  files.push_back(file_);
  files_ = std::make_unique<RemoteFiles>(options_);
  files_->want(files, {});
  files_->start([] {});
  EXPECT_TRUE(has(kFirst));
}

TEST_F(RemoteFilesTest, AnUnusableFolderIsAReasonOfEachFile) {
  std::ofstream(folder_.path() / "file") << "x";
  options_.stores.cache = folder_.path() / "file/cache";
  fetch("http://127.0.0.1:1/a.pt");
  EXPECT_TRUE(names(failure(), "remote_stores"));
}

// ---- S3

// A store that knows a request by its signature, which botocore verifies.
class S3Test : public RemoteFilesTest {
 protected:
  static constexpr const char* kPython = GPULET_BOTOCORE_PYTHON;
  static constexpr const char* kKey = "AKIDEXAMPLE";
  static constexpr const char* kSecret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

  bool is_signed(const ObjectRequest& request, const std::string& secret,
                 const std::string& token) {
    const auto quoted = [](const std::string& text) { return "'" + text + "'"; };
    const std::string headers = folder_.write("headers" + std::to_string(++requests_), [&] {
      std::string lines;
      for (const auto& [name, value] : request.headers) lines += name + ": " + value + "\n";
      return lines;
    }());
    const std::string command =
        std::string(kPython) + " " + GPULET_SOURCE_DIR + "/tests/store/remote/check_signature.py " +
        request.method + " " + quoted("http://" + request.header("host") + request.target) + " " +
        kKey + " " + quoted(secret) + " " + quoted(token) + " eu-west-1 < " + quoted(headers);
    return std::system(command.c_str()) == 0;
  }

  std::atomic<int> requests_ = 0;
  support::Variable region_{"AWS_REGION", "eu-west-1"};
  support::Variable id_{"AWS_ACCESS_KEY_ID", kKey};
  support::Variable secret_{"AWS_SECRET_ACCESS_KEY", kSecret};
  support::Variable token_{"AWS_SESSION_TOKEN", "a/token+of=a/session"};
};

TEST_F(S3Test, RequestsAreSignedAsBotocoreSignsThem) {
  if (std::string(kPython).empty()) GTEST_SKIP() << "there is no botocore";
  ObjectServer server([this](const ObjectRequest& request) {
    if (!is_signed(request, kSecret, "a/token+of=a/session"))
      return ObjectAnswer{403, {}, "<Error><Code>SignatureDoesNotMatch</Code></Error>"};
    return serve_object({kFirst, "\"1\"", ""}, request);
  });
  const support::Variable endpoint("AWS_ENDPOINT_URL", server.url(""));
  fetch("s3://models/a folder/model+1=ä.pt");
  ASSERT_TRUE(has(kFirst)) << state().text;
  EXPECT_EQ(server.requests()[0].target, "/models/a%20folder/model%2B1%3D%C3%A4.pt");
  ASSERT_TRUE(comes_true([&] { return server.requests().size() > 1; })) << "a poll is signed, too";
}

TEST_F(S3Test, ErrorsNameTheCodeAndNoCredential) {
  ObjectServer server(answering(403, {}, "<Error><Code>InvalidAccessKeyId</Code></Error>"));
  const support::Variable endpoint("AWS_ENDPOINT_URL_S3", server.url(""));
  fetch("s3://models/a.pt");
  EXPECT_TRUE(names(failure(), "InvalidAccessKeyId", "s3://models/a.pt"));
  EXPECT_FALSE(holds(failure(), kKey));
  EXPECT_FALSE(holds(failure(), kSecret));
  server.answer_with(answering(301, {{"x-amz-bucket-region", "us-west-2"}}));
  EXPECT_TRUE(comes_true([&] { return state().text.find("us-west-2") != std::string::npos; }));
}

TEST_F(S3Test, APublicObjectNeedsNoCredentials) {
  ObjectServer server(serving({kFirst, "\"1\"", ""}));
  const support::Variable endpoint("AWS_ENDPOINT_URL_S3", server.url(""));
  const support::Variable id("AWS_ACCESS_KEY_ID", "");
  const support::Variable secret("AWS_SECRET_ACCESS_KEY", "");
  const support::Variable home("HOME", folder_.path());
  fetch("s3://models/a.pt");
  ASSERT_TRUE(has(kFirst)) << state().text;
  EXPECT_EQ(server.requests()[0].header("authorization"), "");
  files_.reset();
}

// ---- TLS

class SecureStoreTest : public RemoteFilesTest {
 protected:
  struct Certificate {
    int to_hours = 24;
    std::string host = "127.0.0.1";
  };
  [[nodiscard]] static testing::ServerIdentity identity(const Authority& authority,
                                                        const std::string& name,
                                                        const Certificate& certificate) {
    const config::TlsFiles files =
        authority.issue(name, {certificate.host}, -48, certificate.to_hours);
    return {files.certificate, files.key};
  }
  [[nodiscard]] testing::ServerIdentity good() const { return identity(known_, "store", {}); }
  Authority known_{folder_.path(), "known"};
  ObjectServer::Handler serves_ = serving({kFirst, "\"1\"", ""});
};

TEST_F(SecureStoreTest, FetchesFromAStoreOfAKnownAuthority) {
  ObjectServer server(serves_, good());
  options_.stores.authority = known_.file();
  fetch(server.url("/a.pt"));
  ASSERT_TRUE(has(kFirst)) << state().text;
  server.answer_with(serving({kSecond, "\"2\"", ""}));
  EXPECT_TRUE(has(kSecond)) << state().text;
}

TEST_F(SecureStoreTest, TakesNothingFromAStoreThatCannotBeTrusted) {
  const Authority unknown(folder_.path(), "unknown");
  options_.stores.authority = known_.file();
  for (const testing::ServerIdentity& other :
       {identity(unknown, "stranger", {}), identity(known_, "expired", {-1, "127.0.0.1"}),
        identity(known_, "elsewhere", {24, "127.0.0.2"})}) {
    ObjectServer server(serves_, other);
    fetch(server.url("/a.pt"));
    EXPECT_TRUE(names(failure(), "authority")) << other.certificate;
    EXPECT_TRUE(state().sha256.empty());
    EXPECT_TRUE(server.requests().empty()) << "a request would tell its headers";
  }
}

TEST_F(SecureStoreTest, DoesNotFollowARedirectOutOfTls) {
  ObjectServer plain(serves_);
  ObjectServer server(answering(302, {{"Location", plain.url("/a.pt")}}), good());
  options_.stores.authority = known_.file();
  fetch(server.url("/a.pt"));
  EXPECT_TRUE(names(failure(), "https"));
  EXPECT_TRUE(plain.requests().empty());
}

}  // namespace
}  // namespace gpulet::store::remote::remote_files_test
