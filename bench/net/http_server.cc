// bench_http_server [PORT]: answers every request with its own body, through HttpServer. Its
// cost beyond bench_http_echo_server is that of the limits that it enforces; the endpoint of a
// frontend adds the cost of the protocol and the engine.
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "gpulet/net/asio.h"
#include "gpulet/net/http/server.h"

namespace {

using namespace gpulet;
using namespace gpulet::net;

class Echo final : public http::RequestHandler {
 public:
  std::optional<http::HttpResponse> refuse(const http::HttpRequest&) override {
    return std::nullopt;
  }
  void on_request(http::HttpRequest request, std::unique_ptr<http::Exchange> exchange) override {
    exchange->answer({.status = 200, .headers = {}, .body = {std::move(request.body)}});
  }
  http::HttpResponse error(unsigned status, const std::string& message) override {
    return http::text_response(status, "text/plain", message);
  }
};

}  // namespace

int main(int argc, char** argv) {
  const unsigned long port = argc > 1 ? std::stoul(argv[1]) : 0;
  asio::io_context context(1);
  BufferPool buffers{BufferPoolOptions{}};
  Echo echo;
  const auto server = http::HttpServer::listen(context.get_executor(), "127.0.0.1",
                                               static_cast<std::uint16_t>(port), {}, buffers, echo);
  if (!server.ok()) {
    std::fprintf(stderr, "%s\n", server.status().message().c_str());
    return 1;
  }
  std::printf("listening on %s\n", server.value()->local_address().c_str());
  std::fflush(stdout);
  asio::signal_set signals(context, SIGINT, SIGTERM);
  signals.async_wait([&](const boost::system::error_code&, int) { context.stop(); });
  context.run();
}
