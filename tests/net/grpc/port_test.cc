// The port of a GrpcServer as raw sockets see it: other protocols, calls without a token, silence.
#include <algorithm>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <string>

#include "tests/net/grpc/grpc_fixture.h"
#include "tests/net/grpc/http2_bytes.h"

namespace gpulet::net::grpc_api {
namespace {

using namespace testing;
using asio::ip::tcp;

class RawClient {
 public:
  explicit RawClient(std::uint16_t port) : socket_(io_, tcp::v4()) {
    socket_.connect({asio::ip::make_address("127.0.0.1"), port});
  }

  // False once the server has closed the connection.
  bool send(std::string_view bytes) {
    boost::system::error_code error;
    asio::write(socket_, asio::buffer(bytes), error);
    return !error;
  }
  // Reads until `done` or the end.
  template <typename Done>
  bool read_until(Done done) {
    std::array<char, 4096> buffer{};
    boost::system::error_code error;
    while (!done()) {
      const std::size_t bytes = socket_.read_some(asio::buffer(buffer), error);
      if (error) return done();
      text.append(buffer.data(), bytes);
      answers.read({buffer.data(), bytes});
    }
    return true;
  }
  std::string read_all() {
    std::string all;
    boost::system::error_code end;
    asio::read(socket_, asio::dynamic_buffer(all), end);
    return all;
  }

  std::string text;
  Answers answers;

 private:
  asio::io_context io_;
  tcp::socket socket_;
};

TEST_F(GrpcTest, AnHttp1ClientIsToldThatThisIsAGrpcPort) {
  RawClient client(server_->port());
  ASSERT_TRUE(client.send("GET /v2/health/ready HTTP/1.1\r\nHost: here\r\n\r\n"));
  const std::string answer = client.read_all();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 400 ")) << answer;
  EXPECT_NE(answer.find("gRPC"), std::string::npos);
}

TEST_F(GrpcTest, AHugeHeaderIsNotRead) {
  RawClient client(server_->port());
  client.send(std::string(kPreface) + settings() + frame(NGHTTP2_HEADERS, 0, 1, call_fields("/x")));
  const std::string part = frame(NGHTTP2_CONTINUATION, 0, 1, std::string(16384, 'x'));
  constexpr std::size_t kAll = 60U << 20U;
  std::size_t sent = 0;
  while (sent < kAll && client.send(part)) sent += part.size();
  EXPECT_LT(sent, kAll / 2) << "what the kernel buffers";
  inference::ServerLiveResponse live;
  EXPECT_TRUE(call(&Stub::ServerLive, inference::ServerLiveRequest(), live).ok());
}

TEST_F(GuardedGrpcTest, ACallWithoutATokenEndsBeforeItsMessage) {
  RawClient client(server_->port());
  ASSERT_TRUE(client.send(std::string(kPreface) + settings() +
                          headers(1, "/inference.GRPCInferenceService/ModelInfer") +
                          headers(3, "/inference.GRPCInferenceService/RepositoryModelLoad")));
  EXPECT_TRUE(client.read_until(
      [&] { return client.answers.status(1) == "16" && client.answers.status(3) == "16"; }));
}

TEST_F(GrpcTest, AStreamWithPingsIsKept) {
  RawClient client(server_->port());
  std::string pings;
  for (int i = 0; i < 100; ++i) pings += ping();
  ASSERT_TRUE(client.send(std::string(kPreface) + settings() +
                          headers(1, "/inference.GRPCInferenceService/ModelStreamInfer") + pings));
  EXPECT_TRUE(client.read_until([&] { return client.answers.frames[NGHTTP2_PING] == 100; }));
  EXPECT_EQ(client.answers.frames[NGHTTP2_GOAWAY], 0U);
}

}  // namespace
}  // namespace gpulet::net::grpc_api
