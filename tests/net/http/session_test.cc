// One connection of an HttpServer whose client reads slowly, or ends its direction early.
#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/net/http/server.h"
#include "tests/net/http/http_client.h"

namespace gpulet::net::http::session_test {
namespace {

using namespace std::chrono_literals;
using net::testing::Loop;
using testing::Answer;
using testing::Client;

constexpr std::size_t kMoreThanSocketsHold = 50'000'000;

// Answers with the target, at once or when the test releases it, and at "/large" with more.
class Handler final : public RequestHandler {
 public:
  std::optional<HttpResponse> refuse(const HttpRequest& head) override {
    if (head.target == "/refused") return error(403, "no");
    return std::nullopt;
  }
  void on_request(HttpRequest request, std::unique_ptr<Exchange> exchange) override {
    targets.push_back(request.target);
    if (!holding) return exchange->answer(response_to(request.target));
    exchange->on_gone([this] { ++gone; });
    held.push_back(std::move(exchange));
  }
  HttpResponse error(unsigned status, const std::string& message) override {
    return text_response(status, "text/plain", message);
  }
  static HttpResponse response_to(const std::string& target) {
    return text_response(200, "text/plain",
                         target == "/large" ? std::string(kMoreThanSocketsHold, 'x') : target);
  }
  void release() {
    const std::unique_ptr<Exchange> exchange = std::move(held.front());
    held.pop_front();
    exchange->answer(response_to(targets[released++]));
  }

  bool holding = false;
  int gone = 0;
  std::size_t released = 0;
  std::vector<std::string> targets;
  std::deque<std::unique_ptr<Exchange>> held;
};

std::string get(const std::string& target) {
  return "GET " + target + " HTTP/1.1\r\nHost: x\r\n\r\n";
}

class SessionTest : public ::testing::Test {
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
  // A client that reads nothing more while the response to its request is being sent.
  [[nodiscard]] std::unique_ptr<Client> slow_reader() {
    auto slow = client();
    slow->stop_reading();
    slow->send(get("/large"));
    EXPECT_TRUE(run_until([&] { return !slow->received().empty(); }));
    return slow;
  }
  // Reads the rest of the large response.
  static void expect_the_whole(Client& slow) {
    slow.read_on();
    const std::optional<Answer> answer = slow.answer();
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->body.size(), kMoreThanSocketsHold);
  }

  Loop loop_;
  BufferPool buffers_{BufferPoolOptions{}};
  Handler handler_;
  std::unique_ptr<HttpServer> server_;
};

// ---- the client ends its direction

TEST_F(SessionTest, AnswersAllRequestsOfAClientThatHalfCloses) {
  constexpr int kRequests = 250;  // of more than one turn, but no more than is read ahead
  const auto one = client();
  std::string requests;
  for (int i = 0; i < kRequests; ++i) requests += get("/" + std::to_string(i));
  one->send(requests);
  one->half_close();
  for (int i = 0; i < kRequests; ++i) {
    const std::optional<Answer> answer = one->answer();
    ASSERT_TRUE(answer) << i;
    EXPECT_EQ(answer->body, "/" + std::to_string(i));
  }
  EXPECT_TRUE(one->is_closed());
}

TEST_F(SessionTest, AnswersPipelinedRequestsLateAfterAHalfClose) {
  handler_.holding = true;
  const auto one = client();
  one->send(get("/first") + get("/second"));
  one->half_close();
  ASSERT_TRUE(run_until([&] { return handler_.gone == 1; }));
  handler_.release();
  ASSERT_TRUE(run_until([&] { return handler_.held.size() == 1; }));
  handler_.release();
  EXPECT_EQ(one->answer()->body, "/first");
  const std::optional<Answer> last = one->answer();
  ASSERT_TRUE(last);
  EXPECT_EQ(last->body, "/second");
  EXPECT_EQ(last->header("Connection"), "close");
  EXPECT_TRUE(one->is_closed());
}

TEST_F(SessionTest, ClosesOnARequestThatAHalfCloseCutsOff) {
  const auto one = client();
  one->send(get("/whole") + "GET /cut HTT");
  one->half_close();
  EXPECT_EQ(one->answer()->body, "/whole");
  EXPECT_TRUE(one->is_closed());
  EXPECT_EQ(handler_.targets.size(), 1U);
  EXPECT_TRUE(run_until([&] { return server_->connections() == 0; }));
}

TEST_F(SessionTest, SendsALargeResponseAfterAHalfClose) {
  const auto slow = slow_reader();
  slow->half_close();
  loop_.run_ready();
  expect_the_whole(*slow);
  EXPECT_TRUE(slow->is_closed());
}

TEST_F(SessionTest, AnswersARefusedRequestBeforeAHalfClose) {
  const auto one = client();
  one->send("POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody" + get("/next"));
  one->half_close();
  EXPECT_EQ(one->answer()->status, 403U);
  EXPECT_EQ(one->answer()->body, "/next");
  EXPECT_TRUE(one->is_closed());
}

// ---- the client reads slowly

TEST_F(SessionTest, AClientThatStillReadsAResponseIsNotIdle) {
  HttpServerOptions options;
  options.idle_timeout = 50ms;
  serve(options);
  const auto slow = slow_reader();
  const auto idle = client();  // its time begins later, and ends
  ASSERT_TRUE(idle->ask(get("/")));
  EXPECT_TRUE(idle->is_closed());
  EXPECT_EQ(server_->connections(), 1U);
  expect_the_whole(*slow);
  EXPECT_TRUE(slow->is_closed()) << "it is idle from then on";
}

TEST_F(SessionTest, RequestsOfAClientThatReadsNothingWaitUnread) {
  const auto slow = slow_reader();
  std::string requests;
  for (int i = 0; i < 200; ++i) requests += get("/large");
  slow->send(requests);
  for (int i = 0; i < 20; ++i) loop_.run_ready();
  EXPECT_LE(handler_.targets.size(), 2U) << "each response would hold its memory";
  slow->close();
  EXPECT_TRUE(run_until([&] { return server_->connections() == 0; }));
}

TEST_F(SessionTest, GoesOnWithPipelinedRequestsOnceTheClientReads) {
  const auto slow = slow_reader();
  slow->send(get("/1") + get("/2"));
  loop_.run_ready();
  slow->read_on();
  EXPECT_EQ(slow->answer()->body.size(), kMoreThanSocketsHold);
  EXPECT_EQ(slow->answer()->body, "/1");
  EXPECT_EQ(slow->answer()->body, "/2");
}

}  // namespace
}  // namespace gpulet::net::http::session_test
