// ClientPort: the sessions of all clients of gpulet's own protocol, wherever they run: on the
// thread of the engine, or on the I/O threads. Belongs to the thread of the engine, which must not
// run any more, nor an I/O thread, when this object is destroyed.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "frontend/frames/client_sessions.h"
#include "frontend/frames/engine_link.h"
#include "frontend/frames/remote_engine.h"
#include "frontend/frames/sessions.h"
#include "gpulet/access/gate.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/buffer_pool.h"
#include "gpulet/net/listener.h"

namespace gpulet::frontend {

// A thread on which connections of clients run, and what they reach from there.
struct ConnectionPlace {
  net::asio::io_context& io;
  EngineLink engine;
  ClientRequests& requests;
  RemoteEngine* remote = nullptr;  // the engine as an I/O thread sees it; null: its own thread
};

class ClientPort {
 public:
  // The references, those of `places` among them, must outlive this object. REQUIRES: a place.
  ClientPort(const std::vector<ConnectionPlace>& places, const config::FrontendConfig& config,
             const std::shared_ptr<access::Gate>& gate, net::BufferPool& buffers);

  // Of the port's listener. REQUIRES: this object outlives the connections on their way.
  [[nodiscard]] std::vector<net::Listener::Receiver> receivers();
  // Connections.
  [[nodiscard]] std::size_t size() const;

  // As the functions of ClientSessions, for all sessions. On I/O threads they take effect soon, in
  // the order of the calls.
  void open(const FramePort& port);
  void start_leaving();
  void tokens_changed();
  void close_after_sending();

 private:
  struct Part {
    net::asio::io_context& io;
    bool is_here;
    std::unique_ptr<ClientSessions> sessions;
  };
  template <typename Act>
  void each(Act act);

  std::vector<Part> parts_;
};

}  // namespace gpulet::frontend
