// Acceptor: accepts gRPC's connections and passes them to the library as descriptors. The library's
// own listener has no limit and stops accepting for good once the process runs out of descriptors.
// Private to net/grpc. Single-strand type, on the executor.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "gpulet/base/status.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/event_loop.h"
#include "gpulet/net/listener.h"

namespace gpulet::net::grpc_api {

class Acceptor {
 public:
  // Takes ownership of the descriptor.
  using HandOver = std::function<void(int descriptor)>;

  // Fails as Listener::listen.
  [[nodiscard]] static Result<std::unique_ptr<Acceptor>> listen(
      const asio::any_io_executor& executor, const std::string& host, std::uint16_t port,
      const ListenerOptions& options, HandOver hand_over);

  [[nodiscard]] std::uint16_t port() const { return listener_->port(); }
  // Stops accepting. Existing connections stay.
  void close();

  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

 private:
  class Connection;

  Acceptor(const asio::any_io_executor& executor, HandOver hand_over);
  void on_socket(Stream stream, ConnectionSlotPointer slot);
  void sweep_later();
  void sweep();

  HandOver hand_over_;
  std::unique_ptr<Listener> listener_;
  std::list<std::unique_ptr<Connection>> connections_;
  Alarm sweep_timer_;
  bool sweeps_ = false;
};

}  // namespace gpulet::net::grpc_api
