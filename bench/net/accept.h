// The main of a minimal single-threaded TCP server: listens on loopback at PORT (default: any free
// port) until SIGINT or SIGTERM. Constructs a shared Session from each socket and starts it.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "gpulet/net/asio.h"

namespace gpulet::bench {

template <typename Session>
void accept(boost::asio::ip::tcp::acceptor& acceptor) {
  using boost::asio::ip::tcp;
  acceptor.async_accept([&acceptor](const boost::system::error_code& error, tcp::socket socket) {
    if (!error) {
      socket.set_option(tcp::no_delay(true));
      std::make_shared<Session>(std::move(socket))->start();
    }
    accept<Session>(acceptor);
  });
}

template <typename Session>
int serve(int argc, char** argv) {
  namespace asio = boost::asio;
  const unsigned long port = argc > 1 ? std::stoul(argv[1]) : 0;
  asio::io_context context(1);
  asio::ip::tcp::acceptor acceptor(
      context, {asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(port)});
  std::printf("listening on 127.0.0.1:%u\n",
              static_cast<unsigned>(acceptor.local_endpoint().port()));
  std::fflush(stdout);
  accept<Session>(acceptor);
  asio::signal_set signals(context, SIGINT, SIGTERM);
  signals.async_wait([&](const boost::system::error_code&, int) { context.stop(); });
  context.run();
  return 0;
}

}  // namespace gpulet::bench
