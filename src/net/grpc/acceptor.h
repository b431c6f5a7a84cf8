// Acceptor: gRPC's connections, accepted here and handed over as descriptors. The library's own
// listener has no bound and never accepts again after the process ran out of descriptors once.
// Private to net/grpc. Single-strand type, on the executor.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "gpulet/core/status.h"
#include "gpulet/net/alarm.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/listener.h"

namespace gpulet::net::grpc_api {

class Acceptor {
 public:
  // Owns the descriptor from then on.
  using HandOver = std::function<void(int descriptor)>;

  // Fails as Listener::listen.
  [[nodiscard]] static Result<std::unique_ptr<Acceptor>> listen(
      const asio::any_io_executor& executor, const std::string& host, std::uint16_t port,
      const ListenerOptions& options, HandOver hand_over);

  [[nodiscard]] std::uint16_t port() const { return listener_->port(); }
  // Hands over no more. Connections that were handed over stay.
  void close();

  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

 private:
  class Connection;

  Acceptor(const asio::any_io_executor& executor, HandOver hand_over);
  void on_socket(Stream stream, ConnectionSlot place);
  void sweep_later();
  void sweep();

  HandOver hand_over_;
  std::unique_ptr<Listener> listener_;
  std::list<std::unique_ptr<Connection>> connections_;
  Alarm sweep_timer_;
  bool sweeps_ = false;
};

}  // namespace gpulet::net::grpc_api
