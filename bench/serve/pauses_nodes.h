// Nodes as a frontend sees them, without processes: connections that offer devices, have every
// gpulet ready at once, and answer every batch with an error.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gpulet/net/asio.h"

namespace gpulet::bench {

class MadeUpNodes {
 public:
  // They connect to that port of this machine.
  MadeUpNodes(std::uint16_t port, std::uint32_t nodes, std::uint32_t devices_each);
  ~MadeUpNodes();
  MadeUpNodes(const MadeUpNodes&) = delete;
  MadeUpNodes& operator=(const MadeUpNodes&) = delete;

  // So many of them lose their connections, and come back with the gpulets that they have.
  void reconnect(std::size_t count);

 private:
  class Node;

  net::asio::io_context io_{1};
  std::vector<std::unique_ptr<Node>> nodes_;
  std::jthread thread_;
};

}  // namespace gpulet::bench
