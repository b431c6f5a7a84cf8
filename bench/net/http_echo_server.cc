// bench_http_echo_server [PORT]: the reference for HTTP. A plain Boost.Beast server that answers
// every request with its own body: one async_read and one async_write per message.
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/vector_body.hpp>
#include <boost/beast/http/write.hpp>
#include <memory>
#include <optional>
#include <utility>

#include "bench/net/accept.h"

namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using Body = http::vector_body<unsigned char>;

constexpr std::uint64_t kMaxBodyBytes = 256U << 20U;
constexpr std::size_t kBufferBytes = 64U << 10U;  // Beast would read 512 bytes at a time

class EchoSession : public std::enable_shared_from_this<EchoSession> {
 public:
  explicit EchoSession(tcp::socket socket) : socket_(std::move(socket)) {
    buffer_.reserve(kBufferBytes);
  }

  void start() { read(); }

 private:
  void read() {
    parser_.emplace();
    parser_->body_limit(kMaxBodyBytes);
    http::async_read(socket_, buffer_, *parser_,
                     [self = shared_from_this()](const error_code& error, std::size_t) {
                       if (!error) self->write();
                     });
  }

  void write() {
    answer_.emplace(http::status::ok, parser_->get().version());
    answer_->keep_alive(parser_->get().keep_alive());
    answer_->body() = std::move(parser_->get().body());
    answer_->prepare_payload();
    http::async_write(socket_, *answer_,
                      [self = shared_from_this()](const error_code& error, std::size_t) {
                        if (!error && self->answer_->keep_alive()) self->read();
                      });
  }

  tcp::socket socket_;
  boost::beast::flat_buffer buffer_;
  std::optional<http::request_parser<Body>> parser_;
  std::optional<http::response<Body>> answer_;
};

}  // namespace

int main(int argc, char** argv) { return gpulet::bench::serve<EchoSession>(argc, argv); }
