// ClientSessions: the sessions of clients of gpulet's own protocol on one thread. Inference
// requests become events of the engine, whose replies come back through the ReplyRouter; all other
// requests go to ClientRequests. Belongs to the thread of the io_context, and so does what it
// refers to.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>

#include "frontend/frames/engine_link.h"
#include "frontend/frames/sessions.h"
#include "gpulet/access/gate.h"
#include "gpulet/access/tokens.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/buffer_pool.h"
#include "gpulet/net/listener.h"
#include "gpulet/protocol/messages.h"

namespace gpulet::frontend {

// Receives the requests of clients other than inferences. The client's right to each was checked.
// An answer goes to the client's sink in the ReplyRouter.
class ClientRequests {
 public:
  virtual void on_models_request(ClientId client, const ModelsRequest& request) = 0;
  virtual void on_change(ClientId client, ModelsChange change,
                         const access::PeerIdentity& peer) = 0;
  virtual void on_status_request(ClientId client, const StatusRequest& request) = 0;
  // The client disconnected. The engine receives the event after this call.
  virtual void on_gone(ClientId client) = 0;

 protected:
  ~ClientRequests() = default;
};

class ClientSessions final : private ClientSession::Owner {
 public:
  // The references, those of `engine` among them, must outlive this object.
  ClientSessions(net::asio::io_context& io, const config::FrontendConfig& config,
                 std::shared_ptr<access::Gate> gate, net::BufferPool& buffers,
                 const EngineLink& engine, ClientRequests& requests);

  // The port that clients connect to; call before the first accept().
  void open(const FramePort& port) { port_ = port; }
  // Starts the session of a new connection.
  void accept(net::Stream stream, net::ConnectionSlotPointer slot);
  // Any thread.
  [[nodiscard]] std::size_t size() const { return size_; }
  // Asks all clients, and those that connect later, to use another connection.
  void start_leaving();
  // The gate's tokens were replaced: closes the connections whose tokens were revoked.
  void tokens_changed();
  // Closes all connections once the replies that are queued have been sent.
  void close_after_sending();

 private:
  void on_message(ClientId from, ClientMessage&& message) override;
  void on_closed(ClientId client, const Status& reason) override;
  [[nodiscard]] Status accepts(const InferRequest& request,
                               std::size_t payload_bytes) const override;
  void take(ClientId from, InferRequest& request);
  void take(ClientId from, ModelsRequest& request);
  void take(ClientId from, ModelsChange& change);
  void take(ClientId from, StatusRequest& request);
  void take(ClientId from, Authenticate& token);

  net::asio::io_context& io_;
  const config::FrontendConfig& config_;
  const std::shared_ptr<access::Gate> gate_;
  net::BufferPool& buffers_;
  const EngineLink engine_;
  ClientRequests& requests_;
  FramePort port_;
  bool leaving_ = false;
  std::map<ClientId, std::unique_ptr<ClientSession>> sessions_;
  std::atomic<std::size_t> size_ = 0;  // of sessions_
};

}  // namespace gpulet::frontend
