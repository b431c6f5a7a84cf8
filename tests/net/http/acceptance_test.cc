#include "net/http/acceptance.h"

#include <gtest/gtest.h>

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace gpulet::net::http::acceptance_test {
namespace {

constexpr std::size_t kServerLimit = 1U << 20U;

// Records what it is asked. A status of 0 refuses nothing.
class Handler final : public RequestHandler {
 public:
  std::optional<HttpResponse> refuse(const HttpRequest& /*head*/) override {
    ++refuse_asked;
    return refuses == 0 ? std::nullopt : std::optional(error(refuses, "refused"));
  }
  BodyBound body_bound(const HttpRequest& /*head*/) override {
    ++bound_asked;
    return std::move(bound);
  }
  bool may_use_reserve(const HttpRequest& /*head*/) override { return uses_reserve; }
  void on_request(HttpRequest /*request*/, std::unique_ptr<Exchange> /*exchange*/) override {}
  HttpResponse error(unsigned status, const std::string& message) override {
    return text_response(status, "text/plain", message);
  }

  unsigned refuses = 0;
  bool uses_reserve = false;
  BodyBound bound;
  int refuse_asked = 0;
  int bound_asked = 0;
};

class AcceptanceTest : public ::testing::Test {
 protected:
  AcceptanceTest() { options_.max_body_bytes = kServerLimit; }

  // Reads a head without its empty line.
  void read(const std::string& head) {
    reader_.emplace(RequestLimits{4096, kServerLimit}, buffers_);
    const std::string text = head + "\r\n";
    ASSERT_EQ(reader_->read(std::as_bytes(std::span(text))).event, RequestReader::Event::head);
  }
  // The status of the refusal; 0: none.
  unsigned refusal(bool reserved = false) {
    const std::optional<HttpResponse> no = acceptance_.refusal(*reader_, reserved);
    return no ? no->status : 0;
  }
  unsigned bound() {
    const std::optional<HttpResponse> no = acceptance_.bound_body(*reader_);
    return no ? no->status : 0;
  }

  HttpServerOptions options_;
  BufferPool buffers_{BufferPoolOptions{}};
  Handler handler_;
  Acceptance acceptance_{options_, handler_};
  std::optional<RequestReader> reader_;
};

const std::string kGet = "GET / HTTP/1.1\r\nHost: x\r\n";
const std::string kPost = "POST / HTTP/1.1\r\nHost: x\r\n";

TEST_F(AcceptanceTest, RefusesAsTheHandlerDoes) {
  read(kGet);
  EXPECT_EQ(refusal(), 0U);
  handler_.refuses = 403;
  EXPECT_EQ(refusal(), 403U);
}

TEST_F(AcceptanceTest, AReservedSlotIsForSomeRequestsOnly) {
  read(kGet);
  EXPECT_EQ(refusal(true), 503U);
  EXPECT_EQ(handler_.refuse_asked, 0) << "no token is charged";
  handler_.uses_reserve = true;
  EXPECT_EQ(refusal(true), 0U);
}

TEST_F(AcceptanceTest, RefusesCodingsThatItCannotDecode) {
  for (const auto& [coding, status] : std::vector<std::pair<std::string, unsigned>>{
           {"gzip", 0}, {"deflate", 0}, {"identity", 0}, {"br", 415}, {"gzip, gzip", 415}}) {
    read(kPost + "Content-Length: 1\r\nContent-Encoding: " + coding + "\r\n");
    EXPECT_EQ(refusal(), status) << coding;
  }
}

TEST_F(AcceptanceTest, RefusesExpectationsThatItCannotMeet) {
  read(kPost + "Content-Length: 1\r\nExpect: 100-Continue\r\n");
  EXPECT_EQ(refusal(), 0U);
  read(kPost + "Content-Length: 1\r\nExpect: 200-ok\r\n");
  EXPECT_EQ(refusal(), 417U);
  read("POST / HTTP/1.0\r\nContent-Length: 1\r\nExpect: 200-ok\r\n");
  EXPECT_EQ(refusal(), 0U) << "HTTP/1.0 knows no expectations";
}

TEST_F(AcceptanceTest, AsksForTheLimitOfLongEncodedAndUnexpectedBodiesOnly) {
  const std::string shortest_asked = std::to_string(RequestHandler::kUnaskedBodyBytes + 1);
  const std::string longest_unasked = std::to_string(RequestHandler::kUnaskedBodyBytes);
  const std::vector<std::pair<std::string, int>> cases{
      {kGet, 0},
      {kPost + "Content-Length: 0\r\n", 0},
      {kPost + "Content-Length: 1\r\n", 0},
      {kPost + "Content-Length: " + longest_unasked + "\r\n", 0},
      {kPost + "Content-Length: " + shortest_asked + "\r\n", 1},
      {kPost + "Transfer-Encoding: chunked\r\n", 1},
      {kPost + "Content-Length: 1\r\nContent-Encoding: gzip\r\n", 1},
      {kGet + "Content-Length: 1\r\n", 1},
      {"HEAD / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n", 1},
  };
  for (const auto& [head, asked] : cases) {
    handler_.bound_asked = 0;
    read(head);
    EXPECT_EQ(bound(), 0U) << head;
    EXPECT_EQ(handler_.bound_asked, asked) << head;
    EXPECT_EQ(acceptance_.max_body_bytes(), kServerLimit) << head;
  }
}

TEST_F(AcceptanceTest, TheLowerLimitHoldsWithItsReason) {
  read(kPost + "Transfer-Encoding: chunked\r\n");
  handler_.bound = {.max_bytes = 100, .refusal = {}, .reason = "the model is small"};
  EXPECT_EQ(bound(), 0U);
  EXPECT_EQ(acceptance_.max_body_bytes(), 100U);
  EXPECT_NE(acceptance_.too_large("long"), "long");

  handler_.bound = {.max_bytes = 2 * kServerLimit, .refusal = {}, .reason = "the model is large"};
  EXPECT_EQ(bound(), 0U);
  EXPECT_EQ(acceptance_.max_body_bytes(), kServerLimit);
  EXPECT_EQ(acceptance_.too_large("long"), "long") << "the limit is the server's own";
}

TEST_F(AcceptanceTest, ALimitIsThatOfItsRequestOnly) {
  read(kPost + "Transfer-Encoding: chunked\r\n");
  handler_.bound = {.max_bytes = 100, .refusal = {}, .reason = "the model is small"};
  EXPECT_EQ(bound(), 0U);
  read(kPost + "Content-Length: 1\r\n");
  EXPECT_EQ(bound(), 0U);
  EXPECT_EQ(acceptance_.max_body_bytes(), kServerLimit);
  EXPECT_EQ(acceptance_.too_large("long"), "long");
}

TEST_F(AcceptanceTest, TheHandlerMayAcceptNoBody) {
  read(kPost + "Transfer-Encoding: chunked\r\n");
  handler_.bound.refusal = handler_.error(404, "nothing here");
  EXPECT_EQ(bound(), 404U);
}

}  // namespace
}  // namespace gpulet::net::http::acceptance_test
