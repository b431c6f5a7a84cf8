#include "gpulet/base/url.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

#include "gpulet/base/sha256.h"
#include "tests/support/names.h"

namespace gpulet::url_test {
namespace {

using support::holds;
using support::names;

Url parsed(std::string_view text) {
  const Result<Url> url = parse_url(text);
  EXPECT_TRUE(url.ok()) << text << ": " << url.status().message();
  return url.ok() ? url.value() : Url();
}

TEST(Url, ReadsEachKindOfStore) {
  EXPECT_EQ(parsed("https://Host.example/a/model.pt"),
            (Url{Url::Scheme::https, "host.example", 0, "/a/model.pt"}));
  EXPECT_EQ(parsed("HTTP://127.0.0.1:8080/model.pt?version=2"),
            (Url{Url::Scheme::http, "127.0.0.1", 8080, "/model.pt?version=2"}));
  EXPECT_EQ(parsed("http://[::1]:81/m.pt"), (Url{Url::Scheme::http, "[::1]", 81, "/m.pt"}));
  EXPECT_EQ(parsed("s3://bucket/a b/100%?.pt"),
            (Url{Url::Scheme::s3, "bucket", 0, "a b/100%?.pt"}));
}

TEST(Url, NamesItsFileAndItsServer) {
  EXPECT_EQ(parsed("https://h:444/a/model.pt?x=/y").file_name(), "model.pt");
  EXPECT_EQ(parsed("https://h:444/a/model.pt").origin(), "https://h:444");
  EXPECT_EQ(parsed("s3://bucket/key.pt").file_name(), "key.pt");
  EXPECT_EQ(parsed("s3://bucket/key.pt").origin(), "s3://bucket");
}

TEST(Url, NeverShowsAQuery) {
  const Url url = parsed("https://h/m.pt?X-Amz-Signature=secret");
  EXPECT_EQ(url.shown(), "https://h/m.pt?...");
  EXPECT_TRUE(names(url.text(), "secret"));
}

TEST(Url, RejectsWhatNamesNoFile) {
  for (const std::string text : {"",
                                 "model.pt",
                                 "ftp://h/m.pt",
                                 "https://",
                                 "https:///m.pt",
                                 "https://h",
                                 "https://h/",
                                 "https://h/a/",
                                 "https://h?m.pt",
                                 "https://h:0/m.pt",
                                 "https://h:65536/m.pt",
                                 "https://h:x/m.pt",
                                 "https://h/a b.pt",
                                 "https://h/m.pt#part",
                                 "https://-h/m.pt",
                                 "https://[::1/m.pt",
                                 "https://[]/m.pt",
                                 "https://h\\x/m.pt",
                                 "https://h/m\n.pt",
                                 "s3://",
                                 "s3://b/k",
                                 "s3://bucket",
                                 "s3://bucket/",
                                 "s3://bucket/folder/",
                                 "s3://Bucket/k",
                                 "s3://buc..ket/k",
                                 "s3://bucket-/k",
                                 "s3://bucket/k\n"}) {
    const Result<Url> url = parse_url(text);
    ASSERT_FALSE(url.ok()) << text;
    EXPECT_EQ(url.status().code(), StatusCode::invalid);
  }
  EXPECT_FALSE(parse_url("https://h/" + std::string(kLongestUrl, 'a')).ok());
}

TEST(Url, RefusesPasswordsWithoutRepeatingThem) {
  const Result<Url> url = parse_url("https://user:secret@h/m.pt");
  ASSERT_FALSE(url.ok());
  EXPECT_FALSE(holds(url.status(), "secret"));
}

TEST(Url, TellsUrlsFromPaths) {
  EXPECT_TRUE(looks_like_url("https://h/m.pt"));
  EXPECT_TRUE(looks_like_url("ftp://h/m.pt"));
  EXPECT_FALSE(looks_like_url("../models/lenet.pt"));
  EXPECT_FALSE(looks_like_url("/models/a://b"));
  EXPECT_FALSE(looks_like_url("://b"));
}

RC_GTEST_PROP(UrlProperty, AnyTextIsRefusedOrReadsBackEqual, (const std::string& rest)) {
  const auto scheme = *rc::gen::element<std::string>("http://", "https://", "s3://", "s3://bkt/",
                                                     "https://h/", "http://[::1]:8/", "");
  const Result<Url> url = parse_url(scheme + rest);
  if (!url.ok()) return;
  const Result<Url> again = parse_url(url.value().text());
  RC_ASSERT(again.ok());
  RC_ASSERT(again.value() == url.value());
  RC_ASSERT(!url.value().file_name().empty());
  RC_ASSERT(url.value().file_name().find('/') == std::string::npos);
}

// RFC 4231, test cases 1, 2 and 6.
TEST(Hmac, GivesThePublishedResults) {
  EXPECT_EQ(hex_of(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex_of(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex_of(hmac_sha256(std::string(131, '\xaa'),
                               "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Sha256, KnowsItsOwnForm) {
  EXPECT_TRUE(is_sha256(sha256_of("")));
  EXPECT_FALSE(is_sha256(""));
  EXPECT_FALSE(is_sha256(std::string(63, 'a')));
  EXPECT_FALSE(is_sha256(std::string(64, 'A')));
  EXPECT_FALSE(is_sha256(std::string(63, 'a') + "/"));
}

}  // namespace
}  // namespace gpulet::url_test
