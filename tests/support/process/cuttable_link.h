// CuttableLink: relays TCP connections to a port on loopback, and can be cut: then no byte passes,
// and neither side notices, as behind a switch that fails. For tests only.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <thread>

#include "gpulet/net/asio.h"

namespace gpulet::testing {

// Calls from one thread; the relay has its own.
class CuttableLink {
 public:
  explicit CuttableLink(std::uint16_t target);
  ~CuttableLink();
  CuttableLink(const CuttableLink&) = delete;
  CuttableLink& operator=(const CuttableLink&) = delete;

  // Where it listens.
  [[nodiscard]] std::uint16_t port() const { return port_; }
  // New connections are accepted, and hang.
  void cut();
  // Connections from before end, new ones are relayed.
  void restore();

 private:
  class Relay;
  void accept();

  net::asio::io_context io_{1};
  net::asio::ip::tcp::acceptor acceptor_{io_};
  const std::uint16_t target_;
  std::uint16_t port_ = 0;
  bool cut_ = false;                           // used by the thread
  std::set<std::shared_ptr<Relay>> relays_{};  // used by the thread
  std::thread thread_;
};

}  // namespace gpulet::testing
