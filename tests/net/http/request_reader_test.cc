#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

#include "net/http/http1.h"
#include "tests/net/http/reading.h"

namespace gpulet::net::http {
namespace {

using namespace testing;

// A request with a body of a random kind, as bytes.
std::string any_request() {
  const int headers = *rc::gen::inRange(0, 4);
  const auto body = *rc::gen::container<std::string>(rc::gen::arbitrary<char>());
  std::string text = *rc::gen::element<std::string>("GET", "POST", "PATCH") + " /" +
                     std::string(*rc::gen::inRange<std::size_t>(0, 40), 't') + " HTTP/1.1\r\n";
  for (int i = 0; i < headers; ++i) text += "Name" + std::to_string(i) + ": some value\r\n";
  if (body.empty()) return text + "\r\n";
  if (*rc::gen::arbitrary<bool>())
    return text + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  text += "Transfer-Encoding: chunked\r\n\r\n";
  for (std::size_t at = 0; at < body.size();) {
    const std::size_t count = *rc::gen::inRange<std::size_t>(1, body.size() - at + 1);
    std::array<char, 16> hex{};
    std::snprintf(hex.data(), hex.size(), "%zx", count);
    text += std::string(hex.data()) + "\r\n" + body.substr(at, count) + "\r\n";
    at += count;
  }
  return text + "0\r\n\r\n";
}

RC_GTEST_PROP(RequestReaderProperty, RequestsAreTheSameHoweverTheirBytesAreCut, ()) {
  std::string stream;
  const int requests = *rc::gen::inRange(1, 4);
  for (int i = 0; i < requests; ++i) stream += any_request();
  const Reading whole = read_stream(stream, stream.size());
  RC_ASSERT(whole.failure.empty());
  RC_ASSERT(whole.requests.size() == static_cast<std::size_t>(requests));
  const auto step = *rc::gen::inRange<std::size_t>(1, 60);
  RC_ASSERT(read_stream(stream, step).requests == whole.requests);
}

// ---- framing (RFC 9112)
//
// A server in front that reads one of these otherwise would take a part of it for another request.

// The status of the failure, with every cut of the bytes; 0: one whole request and nothing else.
unsigned status_of(const std::string& stream) {
  BufferPool buffers({.max_idle_bytes = 0, .max_used_bytes = 1U << 22U});
  std::optional<unsigned> first;
  for (const std::size_t step : {std::size_t{1}, std::size_t{7}, stream.size()}) {
    RequestReader reader({.max_header_bytes = 4096, .max_body_bytes = 1U << 16U}, buffers);
    std::string there;
    unsigned status = 1;  // not complete
    for (std::size_t sent = 0;;) {
      const auto next = reader.read(std::as_bytes(std::span(there)));
      there.erase(0, next.taken);
      if (next.event == RequestReader::Event::head) {
        if (!reader.take_body(1U << 16U).ok()) break;
      } else if (next.event == RequestReader::Event::whole) {
        static_cast<void>(reader.take());
        status = 0;
      } else if (next.event == RequestReader::Event::failed) {
        status = reader.failure().status;
        break;
      } else if (sent == stream.size()) {
        break;
      } else {
        there += stream.substr(sent, step);
        sent = std::min(stream.size(), sent + step);
      }
    }
    EXPECT_EQ(first.value_or(status), status) << stream << " by " << step;
    first = status;
  }
  return *first;
}

std::string chunked(const std::string& body) {
  return "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + body;
}

std::string with_head(const std::string& headers, const std::string& version = "HTTP/1.1") {
  return "POST / " + version + "\r\nHost: x\r\n" + headers + "\r\n";
}

TEST(Framing, ChunksAreReadAsTheStandardHasThem) {
  using namespace std::string_literals;
  for (const std::string& body :
       {"0\r\n\r\n"s, "5\r\nhello\r\n0\r\n\r\n"s, "00005\r\nhello\r\n000\r\n\r\n"s,
        "5;a\r\nhello\r\n0;b=c\r\n\r\n"s, "5 \t; a = \"b;c\"\r\nhello\r\n0\r\n\r\n"s,
        "5;a=\"\\\"\xe9\"\r\nhello\r\n0\r\n\r\n"s, "9\r\n\r\n0\r\n\r\n\r\n\r\n0\r\n\r\n"s,
        "0\r\nTrailer: x\r\nEmpty:\r\n\r\n"s, "F\r\n0123456789abcde\r\n0\r\n\r\n"s})
    EXPECT_EQ(status_of(chunked(body)), 0U) << body;
}

TEST(Framing, NoOtherFormOfChunksIsAccepted) {
  using namespace std::string_literals;
  const std::string end = "0\r\n\r\n";
  for (const std::string& body :
       {// Ends of lines.
        "5;a\nhello\r\n"s + end, "5;a=\"\n\"\r\nhello\r\n"s + end, "5;a=\"\r\"\r\nhello\r\n"s + end,
        "5;\nx\r\nhello\r\n"s + end, "5;a\rb\r\nhello\r\n"s + end, "5\nhello\r\n"s + end,
        "5\rhello\r\n"s + end, "5\r\nhello\n"s + end, "5\r\nhello\r"s + end, "5\r\nhello"s + end,
        "0\n\r\n"s, "0\r\n\n"s, "0\r\n\rX"s, "0;a\n\r\n"s, "0;a=\"\n\"\r\n\r\n"s,
        // Sizes.
        "\r\nhello\r\n"s + end, " 5\r\nhello\r\n"s + end, "+5\r\nhello\r\n"s + end,
        "-5\r\nhello\r\n"s + end, "0x5\r\nhello\r\n"s + end, "5h\r\nhello\r\n"s + end,
        "5 \r\nhello\r\n"s + end, "5\t\r\nhello\r\n"s + end, "5 5\r\nhello\r\n"s + end,
        "5_0\r\nhello\r\n"s + end, "10000000000000005\r\nhello\r\n"s + end,
        "5\0\r\nhello\r\n"s + end, ";a\r\nhello\r\n"s + end,
        // Extensions.
        "5;\r\nhello\r\n"s + end, "5;=b\r\nhello\r\n"s + end, "5;;\r\nhello\r\n"s + end,
        "5;a\0b\r\nhello\r\n"s + end, "5;a\x7f\r\nhello\r\n"s + end,
        "5;a="s + std::string(5000, 'x') + "\r\nhello\r\n"s + end,
        // Trailers.
        "0\r\nA: b\n\r\n"s, "0\r\nA: b\rc\r\n\r\n"s, "0\r\nA : b\r\n\r\n"s,
        "0\r\nA: b\r\n c\r\n\r\n"s, "0\r\n A: b\r\n\r\n"s, "0\r\nA\r\n\r\n"s, "0\r\n: b\r\n\r\n"s,
        "0\r\nA: \0\r\n\r\n"s, "0\r\nA: "s + std::string(5000, 'x') + "\r\n\r\n"s})
    EXPECT_EQ(status_of(chunked(body)), 400U) << body.substr(0, 60);
}

TEST(Framing, TheHeadHasOneMeaning) {
  using namespace std::string_literals;
  EXPECT_EQ(status_of("\r\n\r\n" + with_head("")), 0U) << "empty lines in front";
  EXPECT_EQ(status_of(with_head("A:b\r\nC: \t d \t\r\nE:\r\n")), 0U);
  EXPECT_EQ(status_of(with_head("Content-Length: 0\r\n")), 0U);
  EXPECT_EQ(status_of(with_head("Content-Length: 000\r\n")), 0U);
  EXPECT_EQ(status_of(with_head("Transfer-Encoding: Chunked\r\n") + "0\r\n\r\n"), 0U);
  for (const std::string& head :
       {// Ends of lines and whitespace.
        "\n" + with_head(""), "\r" + with_head(""), "\r\n\n" + with_head(""),
        "POST / HTTP/1.1\nHost: x\r\n\r\n"s, "POST / HTTP/1.1\r\nHost: x\n\r\n"s,
        "POST / HTTP/1.1\r\nHost: x\r\n\n"s, "POST / HTTP/1.1\rHost: x\r\n\r\n"s,
        "POST  / HTTP/1.1\r\nHost: x\r\n\r\n"s, "POST /  HTTP/1.1\r\nHost: x\r\n\r\n"s,
        "POST / HTTP/1.1 \r\nHost: x\r\n\r\n"s, "POST\t/ HTTP/1.1\r\nHost: x\r\n\r\n"s,
        " POST / HTTP/1.1\r\nHost: x\r\n\r\n"s, "POST / http/1.1\r\nHost: x\r\n\r\n"s,
        "POST / HTTP/1.10\r\nHost: x\r\n\r\n"s, "POST / HTTP/01.1\r\nHost: x\r\n\r\n"s,
        "POST / HTTP/1.1\r\n Host: x\r\n\r\n"s, with_head("A: b\r\n c\r\n"),
        with_head("A: b\r\n\tc\r\n"), with_head("A:\r\n b\r\n"), with_head("A: b\r\n \r\n"),
        with_head("A : b\r\n"), with_head("A\t: b\r\n"), with_head("A: b\rc\r\n"),
        with_head("A: b\nContent-Length: 5\r\n"), with_head("A: \0\r\n"s), with_head("A: \x7f\r\n"),
        with_head(": b\r\n"), with_head("A(: b\r\n"), with_head("A\0: b\r\n"s),
        // The length of the body.
        with_head("Content-Length: 0\r\nContent-Length: 0\r\n"),
        with_head("Content-Length: 0, 0\r\n"), with_head("Content-Length: 0,\r\n"),
        with_head("Content-Length: +0\r\n"), with_head("Content-Length: -0\r\n"),
        with_head("Content-Length: 0x0\r\n"), with_head("Content-Length: 0 0\r\n"),
        with_head("Content-Length:\r\n"), with_head("Content-Length: 0;a\r\n"),
        with_head("Content-Length: 1e0\r\n"), with_head("Content-Length : 0\r\n"),
        with_head("Content-Length: 99999999999999999999\r\n"),
        with_head("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
        with_head("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"),
        with_head("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
        with_head("Transfer-Encoding: chunked\r\n", "HTTP/1.0"),
        // One request has one host.
        with_head("Host: y\r\n")})
    EXPECT_EQ(status_of(head + with_head("")), 400U) << head;
  for (const std::string coding :
       {"", "identity", "gzip, chunked", "chunked, identity", "chunked, chunked", "xchunked",
        "chunked;q=1", "\"chunked\"", "chunked,", "\vchunked"}) {
    const unsigned status = status_of(with_head("Transfer-Encoding: " + coding + "\r\n"));
    EXPECT_TRUE(status == 400 || status == 501) << coding << ' ' << status;
  }
}

}  // namespace
}  // namespace gpulet::net::http
