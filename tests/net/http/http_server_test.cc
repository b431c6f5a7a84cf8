// HttpServer over loopback, with raw bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/net/http/server.h"
#include "tests/net/http/http_client.h"
#include "tests/net/http/zlib_text.h"
#include "tests/support/certificates/certificates.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::net::http {
namespace {

using namespace testing;
using namespace std::chrono_literals;
using net::testing::Loop;

// Echoes requests, at once or when the test releases them.
class EchoHandler final : public RequestHandler {
 public:
  std::optional<HttpResponse> refuse(const HttpRequest& head) override {
    if (head.target.starts_with("/refused")) return error(405, "not this way");
    return std::nullopt;
  }
  void work() const {
    const auto until = std::chrono::steady_clock::now() + costs;
    while (std::chrono::steady_clock::now() < until) {
    }
  }
  bool may_use_reserve(const HttpRequest& head) override {
    return head.target.starts_with("/probe");
  }
  BodyBound body_bound(const HttpRequest& head) override {
    ++bodies_asked;
    if (head.target.starts_with("/none")) return {.refusal = error(404, "nothing here")};
    return {.max_bytes = most_body};
  }
  void on_request(HttpRequest request, std::unique_ptr<Exchange> exchange) override {
    work();
    requests.push_back(std::move(request));
    if (holding) {
      const std::size_t number = requests.size();
      exchange->on_gone([this, number] { gone.push_back(number); });
      held.push_back(std::move(exchange));
    } else if (!dropping) {
      exchange->answer(echo(requests.back()));
    }
  }
  HttpResponse error(unsigned status, const std::string& message) override {
    return text_response(status, "text/plain", message);
  }

  static HttpResponse echo(const HttpRequest& request) {
    HttpResponse response =
        text_response(200, "text/plain", request.method + " " + request.target + "\n");
    response.body.push_back(request.body);
    return response;
  }
  void release() {
    auto exchange = std::move(held.front());
    held.pop_front();
    exchange->answer(text_response(200, "text/plain", "held"));
  }

  bool holding = false;
  bool dropping = false;
  std::size_t most_body = std::numeric_limits<std::size_t>::max();
  int bodies_asked = 0;
  Duration costs{};
  std::vector<HttpRequest> requests;
  std::deque<std::unique_ptr<Exchange>> held;
  std::vector<std::size_t> gone;
};

std::string post(const std::string& target, const std::string& body, const std::string& more = "") {
  return "POST " + target +
         " HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" + more +
         "\r\n" + body;
}
std::string get(const std::string& target, const std::string& more = "") {
  return "GET " + target + " HTTP/1.1\r\nHost: x\r\n" + more + "\r\n";
}
std::string pattern(std::size_t bytes) {
  std::string text(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>('a' + i % 23);
  return text;
}
std::string zeros(std::size_t bytes) {
  std::string text;
  text.resize(bytes);
  return text;
}

class HttpServerTest : public ::testing::Test {
 protected:
  void serve(const HttpServerOptions& options = {}) {
    server_ =
        HttpServer::listen(loop_.executor(), "127.0.0.1", 0, options, buffers_, handler_).value();
  }
  [[nodiscard]] std::unique_ptr<Client> client() {
    if (!server_) serve();
    return std::make_unique<Client>(loop_, server_->port());
  }
  [[nodiscard]] bool run_until(const std::function<bool()>& condition) {
    return loop_.run_until(condition);
  }

  Loop loop_;
  BufferPool buffers_{BufferPoolOptions{}};
  EchoHandler handler_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, RequestsTheLimitOfLongEncodedAndUnexpectedBodiesOnly) {
  handler_.most_body = 1000;
  const auto short_one = client();
  EXPECT_EQ(short_one->ask(post("/", pattern(5000)))->status, 200U);
  EXPECT_EQ(handler_.bodies_asked, 0);
  // Announced: refused without reading.
  EXPECT_EQ(client()->ask("POST / HTTP/1.1\r\nContent-Length: 100000\r\n\r\n")->status, 413U);
  EXPECT_EQ(client()->ask("POST /none HTTP/1.1\r\nContent-Length: 100000\r\n\r\n")->status, 404U);
  EXPECT_EQ(
      client()
          ->ask("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" + pattern(2000))
          ->status,
      413U);
  EXPECT_EQ(client()->ask("GET / HTTP/1.1\r\nContent-Length: 2000\r\n\r\n")->status, 413U);
  EXPECT_EQ(handler_.bodies_asked, 4);
}

TEST_F(HttpServerTest, LimitsTheDecodedBody) {
  handler_.most_body = 64U << 10U;
  const std::string bomb = compressed(zeros(60'000'000), kGzipFrame);
  ASSERT_LT(bomb.size(), 64U << 10U);
  EXPECT_EQ(client()->ask(post("/", bomb, "Content-Encoding: gzip\r\n"))->status, 413U);
  EXPECT_EQ(handler_.requests.size(), 0U);
}

TEST_F(HttpServerTest, AnnouncedBodiesReserveNothing) {
  const auto held = client();
  held->send("POST / HTTP/1.1\r\nContent-Length: 60000000\r\n\r\n" + pattern(100));
  ASSERT_TRUE(run_until([&] { return buffers_.used_bytes() > 0; }));
  EXPECT_LE(buffers_.used_bytes(), 100'000U);
}

TEST_F(HttpServerTest, ReportsASlowSender) {
  HttpServerOptions options;
  options.pace = {.bytes_per_second = 1'000'000, .window = 60ms};
  serve(options);
  const auto slow = client();
  slow->send(post("/", pattern(50'000)).substr(0, 1000));
  const auto answer = slow->answer();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 408U);
  EXPECT_EQ(client()->ask(post("/", pattern(50'000)))->status, 200U);
}

TEST_F(HttpServerTest, EvictsSilentConnectionsOldestFirst) {
  HttpServerOptions options;
  options.connections = {.general = 2, .reserve = 1};
  serve(options);
  const auto oldest = client();
  ASSERT_TRUE(run_until([&] { return server_->connections() == 1; }));
  const auto older = client();
  ASSERT_TRUE(run_until([&] { return server_->connections() == 2; }));
  const auto honest = client();
  EXPECT_EQ(honest->ask(get("/"))->status, 200U);
  EXPECT_TRUE(oldest->is_closed());
  EXPECT_EQ(older->ask(get("/"))->status, 200U);
  EXPECT_EQ(server_->slots().evicted(), 1U);
}

TEST_F(HttpServerTest, ClosesSilentConnections) {
  HttpServerOptions options;
  options.first_timeout = 60ms;
  serve(options);
  const auto spoke = client();
  EXPECT_EQ(spoke->ask(get("/"))->status, 200U);
  const auto silent = client();
  EXPECT_TRUE(silent->is_closed());
  EXPECT_EQ(spoke->ask(get("/"))->status, 200U);
}

TEST_F(HttpServerTest, SlowRequestsDoNotBlockOtherConnections) {
  const auto flood = client();
  const auto other = client();
  ASSERT_TRUE(flood->ask(get("/")));
  ASSERT_TRUE(other->ask(get("/")));
  handler_.requests.clear();
  handler_.costs = 2ms;
  std::string pipelined;
  for (int i = 0; i < 20; ++i) pipelined += get("/flood");
  flood->send(pipelined);
  ASSERT_TRUE(other->ask(get("/other")));
  const auto at = std::find_if(handler_.requests.begin(), handler_.requests.end(),
                               [](const auto& request) { return request.target == "/other"; });
  EXPECT_LT(at - handler_.requests.begin(), 10);
}

TEST_F(HttpServerTest, ServesManyRequestsOverOneConnection) {
  const auto one = client();
  const auto first = one->ask(get("/one"));
  ASSERT_TRUE(first);
  EXPECT_EQ(first->status, 200U);
  EXPECT_EQ(first->body, "GET /one\n");
  EXPECT_EQ(first->header("content-type"), "text/plain");
  EXPECT_EQ(first->header("Date").size(), 29U);
  EXPECT_EQ(first->header("Connection"), "");
  const auto second = one->ask("\r\n" + post("/two?x=y", "body"));
  ASSERT_TRUE(second);
  EXPECT_EQ(second->body, "POST /two?x=y\nbody");
  EXPECT_EQ(server_->connections(), 1U);
  EXPECT_EQ(find_header(handler_.requests[1].headers, "CONTENT-LENGTH"), "4");
}

TEST_F(HttpServerTest, KeepsAConnectionAsTheClientRequests) {
  const auto closes = client();
  const auto last = closes->ask(get("/", "Connection: close\r\n"));
  ASSERT_TRUE(last);
  EXPECT_EQ(last->header("Connection"), "close");
  EXPECT_TRUE(closes->is_closed());

  const auto old = client();
  ASSERT_TRUE(old->ask("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
  const auto again = old->ask("GET /again HTTP/1.0\r\n\r\n");
  ASSERT_TRUE(again);
  EXPECT_EQ(again->body, "GET /again\n");
  EXPECT_TRUE(old->is_closed());
}

TEST_F(HttpServerTest, ServesPipelinedRequestsInOrder) {
  const auto one = client();
  handler_.holding = true;
  std::string all;
  constexpr int kRequests = 100;  // more than one turn takes
  for (int i = 0; i < kRequests; ++i) all += post("/" + std::to_string(i), pattern(200));
  one->send(all);
  ASSERT_TRUE(run_until([&] { return handler_.held.size() == 1; }));
  loop_.run_ready();
  EXPECT_EQ(handler_.requests.size(), 1U);
  handler_.holding = false;
  handler_.release();
  EXPECT_EQ(one->answer()->body, "held");
  for (int i = 1; i < kRequests; ++i) {
    const auto answer = one->answer();
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->body, "POST /" + std::to_string(i) + "\n" + pattern(200));
  }
}

TEST_F(HttpServerTest, AcceptsBodiesOfAnyLengthInAnyPieces) {
  const auto one = client();
  for (const std::size_t bytes : {0U, 1U, 8000U, 9000U, 70000U, 3000000U}) {
    const std::string request = post("/" + std::to_string(bytes), pattern(bytes));
    const std::size_t cut = std::min<std::size_t>(request.size(), 77);
    one->send(request.substr(0, cut));
    const auto answer = one->ask(request.substr(cut));
    ASSERT_TRUE(answer);
    EXPECT_EQ(text_of(handler_.requests.back().body), pattern(bytes));
    EXPECT_TRUE(answer->body.ends_with(pattern(bytes)));
  }
}

TEST_F(HttpServerTest, AcceptsChunkedBodies) {
  const std::string chunked =
      "POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
      "5\r\nhello\r\n1;name=value\r\n \r\nA\r\n0123456789\r\n0\r\nTrailer: ignored\r\n\r\n";
  const auto one = client();
  const auto whole = one->ask(chunked + get("/after"));
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->body, "POST /c\nhello 0123456789");
  EXPECT_EQ(find_header(handler_.requests.front().headers, "Trailer"), "");
  EXPECT_EQ(one->answer()->body, "GET /after\n");
  for (const char byte : chunked) one->send(std::string(1, byte));
  EXPECT_EQ(one->answer()->body, "POST /c\nhello 0123456789");

  std::string large = "POST /l HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 10; ++i) large += "186a0\r\n" + pattern(100000) + "\r\n";
  ASSERT_TRUE(one->ask(large + "0\r\n\r\n"));
  EXPECT_EQ(handler_.requests.back().body.size(), 1000000U);
}

TEST_F(HttpServerTest, DecodesContentEncodings) {
  const auto one = client();
  const std::string text = pattern(500000);
  const std::string twice =
      compressed(text.substr(0, 1000), kGzipFrame) + compressed(text.substr(1000), kGzipFrame);
  for (const auto& [coding, body] :
       {std::pair("gzip", compressed(text, kGzipFrame)), std::pair("GZIP", twice),
        std::pair("deflate", compressed(text, kZlibFrame)),
        std::pair("deflate", compressed(text, kNoFrame)), std::pair("identity", text)}) {
    const auto answer =
        one->ask(post("/", body, "Content-Encoding: " + std::string(coding) + "\r\n"));
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->body, "POST /\n" + text) << coding;
  }
}

TEST_F(HttpServerTest, RejectsInvalidOrTooLongEncodedBodies) {
  HttpServerOptions options;
  options.max_body_bytes = 100000;
  serve(options);
  const auto status_of = [&](const std::string& body) {
    const auto answer = client()->ask(post("/", body, "Content-Encoding: gzip\r\n"));
    return answer ? answer->status : 0;
  };
  const std::string sound = compressed(pattern(1000), kGzipFrame);
  EXPECT_EQ(status_of(sound), 200U);
  EXPECT_EQ(status_of(sound.substr(0, sound.size() - 5)), 400U);
  EXPECT_EQ(status_of(sound + "more"), 400U);
  EXPECT_EQ(status_of("no gzip at all"), 400U);
  EXPECT_EQ(status_of(compressed(zeros(50000000), kGzipFrame)), 413U);
  EXPECT_EQ(client()->ask(post("/", "x", "Content-Encoding: br\r\n"))->status, 415U);
  EXPECT_EQ(handler_.requests.size(), 1U);
}

TEST_F(HttpServerTest, CompressesLargeResponsesOnRequest) {
  const auto one = client();
  const std::string text = pattern(300000);
  const auto gzip = one->ask(post("/", text, "Accept-Encoding: br, gzip;q=0.8, deflate;q=0.5\r\n"));
  ASSERT_TRUE(gzip);
  EXPECT_EQ(gzip->header("Content-Encoding"), "gzip");
  EXPECT_LT(gzip->body.size(), text.size() / 10);
  EXPECT_EQ(decompressed(gzip->body, kGzipFrame), "POST /\n" + text);
  const auto deflate = one->ask(post("/", text, "Accept-Encoding: gzip;q=0, deflate\r\n"));
  ASSERT_TRUE(deflate);
  EXPECT_EQ(deflate->header("Content-Encoding"), "deflate");
  EXPECT_EQ(decompressed(deflate->body, kZlibFrame), "POST /\n" + text);
  for (const auto& plain : {post("/", text), post("/", "short", "Accept-Encoding: gzip\r\n")})
    EXPECT_EQ(one->ask(plain)->header("Content-Encoding"), "");
}

TEST_F(HttpServerTest, AnswersHeadLikeGetWithoutABody) {
  const auto one = client();
  one->send("HEAD /h HTTP/1.1\r\n\r\n" + get("/h"));
  const auto head = one->answer(true);
  ASSERT_TRUE(head);
  EXPECT_EQ(head->header("Content-Length"), "8");
  EXPECT_EQ(one->answer()->body, "GET /h\n");
}

TEST_F(HttpServerTest, SendsContinueUnlessTheRequestIsRejected) {
  const auto one = client();
  const std::string expecting = post("/large", "body!", "Expect: 100-continue\r\n");
  const auto leave = one->ask(expecting.substr(0, expecting.size() - 5));
  ASSERT_TRUE(leave);
  EXPECT_EQ(leave->status, 100U);
  EXPECT_EQ(one->ask("body!")->body, "POST /large\nbody!");
  const std::string refused = post("/refused", "body!", "Expect: 100-continue\r\n");
  EXPECT_EQ(one->ask(refused.substr(0, refused.size() - 5))->status, 405U);
  EXPECT_TRUE(one->is_closed());
  EXPECT_EQ(client()->ask(post("/", "x", "Expect: the-unexpected\r\n"))->status, 417U);
}

TEST_F(HttpServerTest, KeepsTheConnectionOfARejectedRequestWithAShortBody) {
  const auto one = client();
  EXPECT_EQ(one->ask(post("/refused", pattern(20000)))->status, 405U);
  EXPECT_EQ(one->ask(get("/next"))->body, "GET /next\n");
  const auto large = one->ask(post("/refused", pattern(100000)));
  ASSERT_TRUE(large);
  EXPECT_EQ(large->status, 405U);
  EXPECT_EQ(large->header("Connection"), "close");
  EXPECT_EQ(handler_.requests.size(), 1U);
}

TEST_F(HttpServerTest, DetectsOtherProtocolsBeforeAWholeHead) {
  for (const std::string& bytes :
       {std::string("GPLT\x01\x10\0\0\0\0\0\0\0\0\0\0", 16),                 // gpulet's frames
        std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11)}) {  // TLS's hello
    const auto one = client();
    const auto answer = one->ask(bytes);
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->status, 400U);
    EXPECT_TRUE(one->is_closed());
  }
}

// In its own protocol, which is all that such a client reads.
TEST_F(HttpServerTest, TellsAnHttp2ClientToUseHttp11) {
  using namespace std::string_literals;
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  for (const std::string& bytes : {preface, preface + "\0\0\0\4\0\0\0\0\0"s}) {
    const auto one = client();
    one->send(bytes);
    ASSERT_TRUE(run_until([&] { return one->received().ends_with("by default"); }));
    const std::string answer = one->received();
    one->clear();
    EXPECT_TRUE(one->is_closed());
    EXPECT_EQ(answer.substr(0, 9), "\0\0\0\4\0\0\0\0\0"s) << "SETTINGS comes first";
    const std::string goaway = answer.substr(9);
    const auto length = static_cast<std::size_t>(static_cast<unsigned char>(goaway.at(2)));
    EXPECT_EQ(goaway.substr(0, 2), "\0\0"s);
    EXPECT_EQ(goaway.substr(3, 6), "\7\0\0\0\0\0"s);
    ASSERT_EQ(goaway.size(), 9 + length);
    EXPECT_EQ(goaway.substr(9, 8), "\0\0\0\0\0\0\0\x0d"s) << "HTTP_1_1_REQUIRED";
    EXPECT_NE(goaway.find("HTTP/1.1"), std::string::npos);
  }
  EXPECT_TRUE(handler_.requests.empty());
}

TEST_F(HttpServerTest, ReportsMalformedRequestsAndCloses) {
  HttpServerOptions options;
  options.max_header_bytes = 1000;
  options.max_body_bytes = 5000;
  serve(options);
  const std::string chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const auto& [status, request] : std::vector<std::pair<unsigned, std::string>>{
           {400, "nonsense\r\n\r\n"},
           {400, "GET / HTTP/1.1\nHost: x\n\n"},
           {400, "GET /a b HTTP/1.1\r\n\r\n"},
           {400, "GET / HTTP/1.1\r\nno colon\r\n\r\n"},
           {400, post("/", "", "Content-Length: 3\r\n")},
           {400, "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"},
           {400, "POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"},
           {400, chunked + "xyz\r\n"},
           {400, chunked + "5\r\nhello!!!!"},
           {400, chunked + "5;" + std::string(70000, 'x')},
           {413, chunked + "1389\r\n"},
           {413, chunked + "fffffffffffffff\r\n"},
           {413, "POST / HTTP/1.1\r\nContent-Length: 5001\r\n\r\n"},
           {413, "POST / HTTP/1.1\r\nContent-Length: 18446744073709551615\r\n\r\n"},
           {431, "GET /" + std::string(2000, 'x') + " HTTP/1.1\r\n\r\n"},
           {431, get("/", "Long: " + std::string(1000, 'x') + "\r\n")},
           {501, "POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"},
           {400, "GET / HTTP/2.0\r\n\r\n"}}) {
    const auto one = client();
    const auto answer = one->ask(request);
    ASSERT_TRUE(answer) << request.substr(0, 80);
    EXPECT_EQ(answer->status, status) << request.substr(0, 80);
    EXPECT_NE(answer->body, "");
    EXPECT_EQ(answer->header("Connection"), "close");
    EXPECT_TRUE(one->is_closed());
  }
  EXPECT_TRUE(handler_.requests.empty());
}

TEST_F(HttpServerTest, LimitsAHeadThatArrivesInPieces) {
  HttpServerOptions options;
  options.max_header_bytes = 20000;
  serve(options);
  const auto one = client();
  one->send("GET / HTTP/1.1\r\n");
  std::size_t sent = 0;
  for (; sent < 40000 && one->received().empty(); sent += 7) one->send("a: bc\r\n");
  EXPECT_GT(sent, 19000U);
  EXPECT_LT(sent, 40000U);
  EXPECT_EQ(one->answer()->status, 431U);
  EXPECT_EQ(client()->ask(get("/", "Long: " + std::string(19000, 'x') + "\r\n"))->status, 200U);
}

TEST_F(HttpServerTest, TimesOutUnfinishedRequests) {
  HttpServerOptions options;
  options.header_timeout = options.progress_timeout = 40ms;
  serve(options);
  const auto head = client();
  EXPECT_EQ(head->ask("GET / HT")->status, 408U);
  EXPECT_TRUE(head->is_closed());
  const auto body = client();
  EXPECT_EQ(body->ask(post("/", pattern(50)).substr(0, 80))->status, 408U);
  EXPECT_TRUE(body->is_closed());
  const auto chunks = client();
  EXPECT_EQ(chunks->ask("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe")->status,
            408U);
  EXPECT_TRUE(chunks->is_closed());
}

TEST_F(HttpServerTest, ClosesIdleConnections) {
  HttpServerOptions options;
  options.idle_timeout = 40ms;
  serve(options);
  const auto silent = client();
  const auto once = client();
  ASSERT_TRUE(once->ask(get("/")));
  EXPECT_TRUE(silent->is_closed());
  EXPECT_TRUE(once->is_closed());
  EXPECT_TRUE(run_until([&] { return server_->connections() == 0; }));
}

TEST_F(HttpServerTest, ClosesOnClientsThatDoNotRead) {
  HttpServerOptions options;
  options.progress_timeout = 60ms;
  options.idle_timeout = 20s;
  serve(options);
  const auto deaf = client();
  deaf->stop_reading();
  handler_.holding = true;
  deaf->send(get("/"));
  ASSERT_TRUE(run_until([&] { return handler_.held.size() == 1; }));
  handler_.held.front()->answer(text_response(200, "text/plain", zeros(50000000)));
  EXPECT_EQ(server_->connections(), 1U);
  EXPECT_TRUE(run_until([&] { return server_->connections() == 0; }));
}

TEST_F(HttpServerTest, SendsALargeResponseToASlowReader) {
  const auto one = client();
  const std::string text = pattern(20000000);
  const auto answer = one->ask(post("/", text));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->body, "POST /\n" + text);
}

TEST_F(HttpServerTest, ReportsADisconnectOnce) {
  handler_.holding = true;
  auto leaves = client();
  leaves->send(post("/", "x"));
  const auto stays = client();
  stays->send(get("/stays"));
  ASSERT_TRUE(run_until([&] { return handler_.held.size() == 2; }));
  leaves.reset();
  ASSERT_TRUE(run_until([&] { return !handler_.gone.empty(); }));
  EXPECT_EQ(handler_.gone, std::vector<std::size_t>{1});
  handler_.release();  // nobody is there any more
  handler_.release();
  EXPECT_EQ(stays->answer()->body, "held");
  EXPECT_TRUE(run_until([&] { return server_->connections() == 1; }));
  EXPECT_EQ(handler_.gone.size(), 1U);
}

TEST_F(HttpServerTest, KeepsPipelinedBytesWhileTheHandlerWorks) {
  handler_.holding = true;
  const auto one = client();
  one->send(post("/first", "x"));
  ASSERT_TRUE(run_until([&] { return handler_.held.size() == 1; }));
  one->send(post("/second", pattern(100000)));  // more than is read ahead
  loop_.run_ready();
  EXPECT_TRUE(handler_.gone.empty());
  handler_.release();
  ASSERT_TRUE(run_until([&] { return handler_.held.size() == 1; }));
  EXPECT_EQ(text_of(handler_.requests.back().body), pattern(100000));
  handler_.release();
  ASSERT_TRUE(one->answer());
  ASSERT_TRUE(one->answer());
}

TEST_F(HttpServerTest, RespondsForAHandlerThatDropsAnExchange) {
  handler_.dropping = true;
  EXPECT_EQ(client()->ask(get("/"))->status, 500U);
}

// ---- under TLS

class HttpsServerTest : public HttpServerTest {
 protected:
  [[nodiscard]] std::unique_ptr<Client> secure_client(HttpServerOptions options = {}) {
    options.tls = TlsContext::server({files_.certificate, files_.key, {}}).value();
    serve(options);
    return std::make_unique<Client>(loop_, server_->port(), trust_);
  }

  support::TemporaryFolder folder_;
  const gpulet::testing::Authority authority_{folder_.path(), "authority"};
  const config::TlsFiles files_ = authority_.issue("server", {"127.0.0.1"});
  const TlsContextPointer trust_ = TlsContext::client({{}, {}, files_.authority}).value();
};

TEST_F(HttpsServerTest, ServesPipelinedRequestsInOrder) {
  const auto one = secure_client();
  EXPECT_EQ(one->ask(get("/first"))->body, "GET /first\n");
  one->send(get("/a") + post("/b", "body") + get("/c"));
  EXPECT_EQ(one->answer()->body, "GET /a\n");
  EXPECT_EQ(one->answer()->body, "POST /b\nbody");
  EXPECT_EQ(one->answer()->body, "GET /c\n");
}

TEST_F(HttpsServerTest, TransfersLargeBodiesInBothDirections) {
  const auto one = secure_client();
  const std::string body = pattern(3U << 20U);
  const auto answer = one->ask(post("/large", body));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->body, "POST /large\n" + body);
  EXPECT_EQ(one->ask(get("/after"))->body, "GET /after\n");
}

TEST_F(HttpsServerTest, SendsTheLastResponseBeforeClosing) {
  const auto one = secure_client();
  const std::string body = pattern(1U << 20U);
  const auto answer = one->ask(post("/last", body, "Connection: close\r\n"));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->body.size(), body.size() + 11);
  EXPECT_TRUE(one->is_closed());
}

TEST_F(HttpsServerTest, TellsAPlainClientToUseTls) {
  (void)secure_client();
  Client plain(loop_, server_->port());
  const auto answer = plain.ask(get("/"));
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->status, 400U);
  EXPECT_NE(answer->body.find("https://"), std::string::npos);
  EXPECT_TRUE(plain.is_closed());
}

TEST_F(HttpsServerTest, ClosesAfterTheHandshakeTimeout) {
  HttpServerOptions options;
  options.header_timeout = std::chrono::milliseconds(50);
  const auto one = secure_client(options);
  Client silent(loop_, server_->port());
  EXPECT_TRUE(silent.is_closed());
  Client plain(loop_, server_->port());
  plain.send(get("/plain"));
  EXPECT_TRUE(run_until([this] { return server_->connections() <= 1; }));
  EXPECT_EQ(handler_.requests.size(), 0U);
}

TEST_F(HttpsServerTest, ServesAConnectionThatWasIdle) {
  HttpServerOptions options;
  options.header_timeout = std::chrono::milliseconds(100);
  const auto one = secure_client(options);
  EXPECT_EQ(one->ask(get("/one"))->body, "GET /one\n");
  const auto later = std::chrono::steady_clock::now() + std::chrono::milliseconds(2300);
  EXPECT_TRUE(run_until([later] { return std::chrono::steady_clock::now() > later; }));
  EXPECT_EQ(one->ask(get("/two"))->body, "GET /two\n");
}

class StreamTest : public HttpServerTest {
 protected:
  [[nodiscard]] std::unique_ptr<ResponseStream> stream_to(Client& one, const std::string& request) {
    handler_.holding = true;
    one.send(request);
    if (!run_until([&] { return handler_.held.size() == 1; })) return nullptr;
    auto stream = handler_.held.front()->stream(text_response(200, "text/event-stream", ""));
    handler_.held.clear();
    return stream;
  }
};

TEST_F(StreamTest, SendsPartsAndEndsWithTheConnection) {
  const auto one = client();
  auto stream = stream_to(*one, get("/"));
  ASSERT_TRUE(stream);
  EXPECT_TRUE(stream->send("data: 1\n\n"));
  ASSERT_TRUE(run_until([&] { return one->received().find("data: 1") != std::string::npos; }));
  EXPECT_TRUE(stream->send("data: 2\n\n"));
  stream.reset();
  const auto answer = one->answer();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->body, "data: 1\n\ndata: 2\n\n");
  EXPECT_TRUE(one->is_closed());

  const auto old = client();
  stream = stream_to(*old, "GET / HTTP/1.0\r\n\r\n");
  EXPECT_TRUE(stream->send("data"));
  stream.reset();
  ASSERT_TRUE(run_until([&] { return old->received().ends_with("\r\n\r\ndata"); }));
  old->clear();
  EXPECT_TRUE(old->is_closed());
}

TEST_F(StreamTest, EndsWhenTheClientDisconnects) {
  auto leaves = client();
  const auto to_nobody = stream_to(*leaves, get("/"));
  leaves.reset();
  ASSERT_TRUE(run_until([&] { return server_->connections() == 0; }));
  EXPECT_FALSE(to_nobody->send("data"));
}

TEST_F(StreamTest, EndsWhenTooMuchIsQueuedForASlowReader) {
  HttpServerOptions options;
  options.max_stream_bytes = 100000;
  serve(options);
  const auto deaf = client();
  deaf->stop_reading();
  const auto stream = stream_to(*deaf, get("/"));
  int parts = 0;
  while (parts < 10000 && stream->send(pattern(10000))) ++parts;
  EXPECT_GT(parts, 9);
  EXPECT_LT(parts, 10000);
}

TEST_F(StreamTest, ReportsWhenAllPartsAreSent) {
  const auto deaf = client();
  deaf->stop_reading();
  const auto stream = stream_to(*deaf, get("/"));
  ASSERT_TRUE(stream);
  int drained = 0;
  bool within = true;
  stream->on_drained([&] { drained += within ? 100 : 1; });
  within = false;
  ASSERT_TRUE(run_until([&] { return drained == 1; })) << "there was nothing to send";
  const std::string part = pattern(1U << 20U);
  for (int i = 0; i < 16 && drained > 0; ++i) {  // until the peer's buffers are full
    ASSERT_TRUE(stream->send(part));
    drained = 0;
    stream->on_drained([&] { ++drained; });
    loop_.run_ready();
    loop_.run_ready();
  }
  EXPECT_EQ(drained, 0);
  deaf->read_on();
  EXPECT_TRUE(run_until([&] { return drained == 1; }));
}

TEST_F(StreamTest, ReportsDrainedAlsoAfterADisconnect) {
  auto leaves = client();
  const auto stream = stream_to(*leaves, get("/"));
  ASSERT_TRUE(stream);
  leaves.reset();
  ASSERT_TRUE(run_until([&] { return server_->connections() == 0; }));
  bool drained = false;
  stream->on_drained([&] { drained = true; });
  EXPECT_TRUE(run_until([&] { return drained; }));
}

TEST_F(StreamTest, AnAbortedStreamHasNoEnd) {
  const auto one = client();
  const auto stream = stream_to(*one, get("/"));
  ASSERT_TRUE(stream);
  EXPECT_TRUE(stream->send("data"));
  stream->abort();
  ASSERT_TRUE(run_until([&] { return server_->connections() == 0; }));
  EXPECT_FALSE(stream->send("more"));
  EXPECT_EQ(one->received().find("0\r\n\r\n"), std::string::npos);
}

TEST_F(HttpServerTest, CompletesPendingRequestsWhenDraining) {
  HttpServerOptions options;
  options.progress_timeout = 100ms;  // also of the peer to close its side
  serve(options);
  const auto idle = client();
  ASSERT_TRUE(idle->ask(get("/")));
  const auto begun = client();
  begun->send("GET /begun HTTP/1.1\r\n");
  handler_.holding = true;
  const auto waits = client();
  waits->send(get("/waits") + get("/never"));
  ASSERT_TRUE(run_until([&] { return handler_.held.size() == 1; }));
  server_->drain();
  EXPECT_TRUE(idle->is_closed());
  handler_.release();
  handler_.holding = false;
  for (const auto& last : {waits->answer(), begun->ask("\r\n")}) {
    ASSERT_TRUE(last);
    EXPECT_EQ(last->status, 200U);
    EXPECT_EQ(last->header("Connection"), "close");
  }
  EXPECT_TRUE(waits->is_closed());
  EXPECT_EQ(handler_.requests.size(), 3U);
  EXPECT_TRUE(run_until([&] { return server_->connections() == 0; }));
}

TEST_F(HttpServerTest, RejectsConnectionsBeyondItsLimit) {
  HttpServerOptions options;
  options.connections = {.general = 1, .reserve = 4};
  options.progress_timeout = 100ms;  // also of the peer to close its side
  serve(options);
  auto first = client();
  ASSERT_TRUE(first->ask(get("/")));
  const auto second = client();
  EXPECT_EQ(second->ask(get("/"))->status, 503U);
  EXPECT_TRUE(second->is_closed());
  const auto probe = client();
  EXPECT_EQ(probe->ask(get("/probe"))->status, 200U);
  EXPECT_TRUE(probe->is_closed());
  first.reset();
  ASSERT_TRUE(run_until([&] { return server_->connections() == 0; }));
  EXPECT_EQ(client()->ask(get("/"))->status, 200U);
}

TEST_F(HttpServerTest, RejectsABodyWithoutMemory) {
  BufferPool small({.max_idle_bytes = 0, .max_used_bytes = 200000});
  server_ = HttpServer::listen(loop_.executor(), "127.0.0.1", 0, {}, small, handler_).value();
  EXPECT_EQ(client()->ask(post("/", pattern(100000)))->status, 200U);
  handler_.requests.clear();
  EXPECT_EQ(client()->ask(post("/", pattern(300000)))->status, 503U);
}

TEST_F(HttpServerTest, ClosesEverythingWithoutACallbackWhenDestroyed) {
  handler_.holding = true;
  const auto idle = client();
  const auto waits = client();
  waits->send(get("/"));
  ASSERT_TRUE(run_until([&] { return handler_.held.size() == 1; }));
  server_.reset();
  EXPECT_TRUE(idle->is_closed());
  EXPECT_TRUE(waits->is_closed());
  handler_.release();
  loop_.run_ready();
  EXPECT_TRUE(handler_.gone.empty());
}

}  // namespace
}  // namespace gpulet::net::http
