// bench_frame_server [PORT]: answers every InferRequest at once with its own inputs as outputs,
// through Connection and codec. Its cost beyond bench_echo_server is that of frames and messages,
// without engine and backend.
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "gpulet/net/asio.h"
#include "gpulet/net/buffer_pool.h"
#include "gpulet/net/connection.h"
#include "gpulet/net/listener.h"
#include "gpulet/protocol/codec.h"

namespace {

using namespace gpulet;

class Server;

class Session : public net::ConnectionHandler {
 public:
  Session(Server& server, std::uint64_t id, net::Stream socket, net::ConnectionSlotPointer slot);

  Result<MutableBytes> payload_memory(const protocol::FrameHeader& header,
                                      std::span<const std::byte> message) override;
  void on_frame(const protocol::FrameHeader& header, std::span<const std::byte> message,
                MutableBytes payload) override;
  void on_closed(const Status& reason) override;

 private:
  Server& server_;
  std::uint64_t id_;
  net::ConnectionSlotPointer slot_;
  std::shared_ptr<net::Connection> connection_;
};

class Server {
 public:
  void add(net::Stream socket, net::ConnectionSlotPointer slot) {
    const std::uint64_t id = next_id_++;
    sessions_.emplace(id, std::make_unique<Session>(*this, id, std::move(socket), std::move(slot)));
  }
  void remove(std::uint64_t id) { sessions_.erase(id); }
  [[nodiscard]] net::BufferPool& pool() { return pool_; }

 private:
  net::BufferPool pool_{net::BufferPoolOptions{}};
  std::map<std::uint64_t, std::unique_ptr<Session>> sessions_;
  std::uint64_t next_id_ = 0;
};

Session::Session(Server& server, std::uint64_t id, net::Stream socket,
                 net::ConnectionSlotPointer slot)
    : server_(server),
      id_(id),
      slot_(std::move(slot)),
      connection_(net::Connection::start(std::move(socket), {}, *this)) {}

Result<MutableBytes> Session::payload_memory(const protocol::FrameHeader& header,
                                             std::span<const std::byte>) {
  return server_.pool().take(header.payload_bytes);
}

void Session::on_frame(const protocol::FrameHeader& header, std::span<const std::byte> message,
                       MutableBytes payload) {
  Result<ClientMessage> decoded =
      protocol::decode<ClientMessage>(header, message, payload.freeze());
  if (!decoded.ok()) return connection_->close(decoded.status());
  auto* const request = std::get_if<InferRequest>(&decoded.value());
  if (request == nullptr) return;
  InferReply reply;
  reply.tag = request->tag;
  reply.outputs = std::move(request->inputs);
  reply.payload.push_back(std::move(request->payload));
  reply.batch_size = 1;
  connection_->send(protocol::encode(FrontendReply(std::move(reply))));
}

void Session::on_closed(const Status&) { server_.remove(id_); }

}  // namespace

int main(int argc, char** argv) {
  const unsigned long port = argc > 1 ? std::stoul(argv[1]) : 0;
  net::asio::io_context context(1);
  Server server;
  const auto listener =
      net::Listener::listen(context.get_executor(), "127.0.0.1", static_cast<std::uint16_t>(port),
                            {}, [&](net::Stream socket, net::ConnectionSlotPointer slot) {
                              server.add(std::move(socket), std::move(slot));
                            });
  if (!listener.ok()) {
    std::fprintf(stderr, "%s\n", listener.status().message().c_str());
    return 1;
  }
  std::printf("listening on %s\n", listener.value()->local_address().c_str());
  std::fflush(stdout);
  net::asio::signal_set signals(context, SIGINT, SIGTERM);
  signals.async_wait([&](const boost::system::error_code&, int) { context.stop(); });
  context.run();
}
