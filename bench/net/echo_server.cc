// bench_echo_server [PORT]: the reference. A plain Boost.Asio TCP server that sends back every
// length-prefixed message (exchanges.h): one read of the length, one of the message, one write.
#include <array>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "bench/net/accept.h"

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::uint32_t kMaxMessageBytes = 256U << 20U;

class EchoSession : public std::enable_shared_from_this<EchoSession> {
 public:
  explicit EchoSession(tcp::socket socket) : socket_(std::move(socket)) {}

  void start() { read_length(); }

 private:
  void read_length() {
    asio::async_read(socket_, asio::buffer(&length_, sizeof(length_)),
                     [self = shared_from_this()](const error_code& error, std::size_t) {
                       if (!error && self->length_ <= kMaxMessageBytes) self->read_message();
                     });
  }

  void read_message() {
    message_.resize(length_);
    asio::async_read(socket_, asio::buffer(message_),
                     [self = shared_from_this()](const error_code& error, std::size_t) {
                       if (!error) self->write();
                     });
  }

  void write() {
    const std::array<asio::const_buffer, 2> pieces{asio::buffer(&length_, sizeof(length_)),
                                                   asio::buffer(message_)};
    asio::async_write(socket_, pieces,
                      [self = shared_from_this()](const error_code& error, std::size_t) {
                        if (!error) self->read_length();
                      });
  }

  tcp::socket socket_;
  std::uint32_t length_ = 0;
  std::vector<std::byte> message_;
};

}  // namespace

int main(int argc, char** argv) { return gpulet::bench::serve<EchoSession>(argc, argv); }
