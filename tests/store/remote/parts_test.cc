// The parts of a fetch: heads of answers, the schedule, and the records of the cache.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "store/remote/cache_folder.h"
#include "store/remote/fetch_schedule.h"
#include "store/remote/response_head.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::store::remote {
namespace {

using std::chrono::seconds;

ResponseHead head_of(const std::vector<std::string>& lines) {
  ResponseHead head;
  for (const std::string& line : lines) EXPECT_TRUE(head.add_line(line + "\r\n"));
  return head;
}

TEST(ResponseHead, ReadsWhatAFetchNeeds) {
  const ResponseHead head =
      head_of({"HTTP/1.1 206 Partial Content", "ETAG:  \"v1\"", "Last-Modified: yesterday",
               "content-range: bytes 10-19/20", "Content-Length: 10",
               "x-amz-bucket-region: eu-west-1", "no colon"});
  EXPECT_EQ(head.status(), 206);
  EXPECT_EQ(head.validators(), (Validators{"\"v1\"", "yesterday"}));
  EXPECT_EQ(head.range(), (ContentRange{10, 20}));
  EXPECT_EQ(head.length(), 10U);
  EXPECT_EQ(head.region(), "eu-west-1");
}

TEST(ResponseHead, AStatusLineBeginsANewHead) {
  const ResponseHead head =
      head_of({"HTTP/1.1 200 OK", "ETag: \"proxy\"", "", "HTTP/2 404", "Content-Length: x"});
  EXPECT_EQ(head.status(), 404);
  EXPECT_TRUE(head.validators().empty());
  EXPECT_FALSE(head.length());
}

TEST(ResponseHead, RefusesEndlessHeads) {
  ResponseHead head;
  bool taken = true;
  for (int i = 0; i < 100 && taken; ++i) taken = head.add_line("X: " + std::string(1000, 'x'));
  EXPECT_FALSE(taken);
}

TEST(ResponseHead, IgnoresValuesThatCouldDoHarm) {
  const ResponseHead head = head_of({"HTTP/1.1 200 OK", "ETag: \"" + std::string(300, 'x') + "\"",
                                     "Last-Modified: a\x01", "x-amz-bucket-region: <script>"});
  EXPECT_TRUE(head.validators().empty());
  EXPECT_TRUE(head.region().empty());
}

TEST(ContentRange, RefusesWhatContradictsItself) {
  EXPECT_EQ(parse_content_range("bytes 0-0/1"), (ContentRange{0, 1}));
  for (const std::string text :
       {"", "bytes */10", "bytes 0-9/*", "bytes 5-4/10", "bytes 0-10/10", "items 0-1/2",
        "bytes 0-1", "bytes -1/2", "bytes 0-1/2x", "bytes 0/1-2",
        "bytes 0-18446744073709551616/18446744073709551617"})
    EXPECT_FALSE(parse_content_range(text)) << text;
}

RC_GTEST_PROP(ContentRangeProperty, IsWithinItsTotal,
              (std::uint64_t first, std::uint64_t last, std::uint64_t total)) {
  const auto range = parse_content_range("bytes " + std::to_string(first) + "-" +
                                         std::to_string(last) + "/" + std::to_string(total));
  RC_ASSERT(range.has_value() == (first <= last && last < total));
}

TEST(Validators, OnlyStrongOnesLetATransferGoOn) {
  EXPECT_EQ((Validators{"\"a\"", "date"}).for_range(), "\"a\"");
  EXPECT_EQ((Validators{"W/\"a\"", "date"}).for_range(), "date");
  EXPECT_EQ((Validators{"W/\"a\"", ""}).for_range(), "");
}

TEST(S3Error, ReadsTheCode) {
  EXPECT_EQ(s3_error_code("<?xml?><Error><Code>AccessDenied</Code><Message>"), "AccessDenied");
  EXPECT_EQ(s3_error_code("<Code>no <b>"), "");
  EXPECT_EQ(s3_error_code("<Code>" + std::string(1000, 'a')), "");
  EXPECT_EQ(s3_error_code("<html>"), "");
}

// ---- FetchSchedule

constexpr FetchTimes kTimes{seconds(60), seconds(1), seconds(10)};
Time at(int second) { return Time(seconds(second)); }

TEST(FetchSchedule, PausesDoubleUpToTheLongest) {
  FetchSchedule schedule(kTimes);
  EXPECT_LE(schedule.due(), at(0)) << "the first attempt is due at once";
  std::vector<Duration> pauses;
  for (int i = 0; i < 6; ++i) {
    schedule.failed(false, at(100));
    pauses.push_back(schedule.due() - at(100));
  }
  EXPECT_EQ(pauses, (std::vector<Duration>{seconds(1), seconds(2), seconds(4), seconds(8),
                                           seconds(10), seconds(10)}));
  schedule.failed(true, at(200));
  EXPECT_EQ(schedule.due(), at(201)) << "some of the file came";
  schedule.failed(false, at(300));
  EXPECT_EQ(schedule.due(), at(302));
}

TEST(FetchSchedule, LooksAgainAfterASuccess) {
  FetchSchedule schedule(kTimes);
  schedule.failed(false, at(0));
  schedule.succeeded(true, at(10));
  EXPECT_EQ(schedule.due(), at(70));
  EXPECT_EQ(schedule.failures(), 0U);
  schedule.succeeded(false, at(80));
  EXPECT_EQ(schedule.due(), kNever);
  schedule.soon(at(90));
  EXPECT_EQ(schedule.due(), at(90));
}

TEST(ChooseFetch, AStoreCannotTakeAllThreads) {
  std::vector<WaitingFetch> fetches = {{at(1), "a", true},
                                       {at(1), "a", true},
                                       {at(2), "a", false},
                                       {at(3), "b", false},
                                       {at(2), "c", false}};
  EXPECT_EQ(choose_fetch(fetches, 2, at(5)), 4U);
  fetches[4].running = true;
  EXPECT_EQ(choose_fetch(fetches, 2, at(5)), 3U);
  EXPECT_EQ(choose_fetch(fetches, 2, at(2)), std::nullopt);
  EXPECT_EQ(choose_fetch(fetches, 3, at(2)), 2U);
  EXPECT_EQ(choose_fetch({}, 2, at(2)), std::nullopt);
}

// ---- CacheFolder

config::RemoteFile file_at(const std::string& url) { return {parse_url(url).value(), {}}; }

TEST(CacheFolder, KeepsRecordsAndParts) {
  const support::TemporaryFolder folder;
  const CacheFolder cache(folder.path());
  const std::string key = CacheFolder::key_of(file_at("https://h/a.pt"));
  EXPECT_EQ(cache.read(key), FetchRecord());
  const FetchRecord record{std::string(64, 'a'), {"\"v\"", "date"}, {"\"w\"", ""}, {}, "why"};
  ASSERT_TRUE(cache.write(key, record).ok());
  EXPECT_EQ(cache.read(key), record);
  {
    auto part = cache.open_part(key);
    ASSERT_TRUE(part.ok());
    EXPECT_EQ(part.value().bytes, 0U);
    ASSERT_EQ(::pwrite(part.value().file.get(), "abc", 3, 0), 3);
    const auto other = cache.open_part(key);
    ASSERT_TRUE(other.ok());
    EXPECT_NE(other.value().path, part.value().path) << "somebody else writes the first";
    EXPECT_FALSE(other.value().resumable);
  }
  EXPECT_EQ(cache.open_part(key).value().bytes, 3U);
}

TEST(CacheFolder, ForgetsWhatNobodyWants) {
  const support::TemporaryFolder folder;
  const CacheFolder cache(folder.path());
  const std::string kept = CacheFolder::key_of(file_at("https://h/a.pt"));
  const std::string old = CacheFolder::key_of(file_at("https://h/b.pt"));
  for (const std::string& key : {kept, old})
    ASSERT_TRUE(cache.write(key, {std::string(64, 'a'), {}, {}, {}, ""}).ok());
  cache.sweep({kept}, seconds(3600));
  EXPECT_FALSE(cache.read(old).sha256.empty()) << "it is new";
  cache.sweep({kept}, seconds(0));
  EXPECT_TRUE(cache.read(old).sha256.empty());
  EXPECT_FALSE(cache.read(kept).sha256.empty());
}

TEST(CacheFolder, AUrlIsNotInTheNames) {
  EXPECT_EQ(CacheFolder::key_of(file_at("https://h/a.pt?token=x")).size(), 64U);
  EXPECT_NE(CacheFolder::key_of({parse_url("https://h/a.pt").value(), std::string(64, 'a')}),
            CacheFolder::key_of(file_at("https://h/a.pt")));
}

RC_GTEST_PROP(FetchRecordProperty, AnyTextIsARecordOrNone, (const std::string& text)) {
  const FetchRecord record = parse_record(text);
  RC_ASSERT(is_validator(record.version.etag));
  RC_ASSERT(record == FetchRecord() || parse_record(to_text(record)) == record);
}

}  // namespace
}  // namespace gpulet::store::remote
